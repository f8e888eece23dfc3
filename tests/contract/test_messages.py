"""Each message that one end writes, the other end reads as the same message."""

from __future__ import annotations

import pytest

from trainrun.contract import metrics
from trainrun.contract.messages import (
    AskedForCheckpoint,
    Finish,
    Hello,
    MalformedLine,
    Raised,
    Report,
    line_of,
    parse,
    parse_reply,
    report_line,
)
from trainrun.contract.questions import (
    AskAttemptKey,
    AskSave,
    AskTasks,
    AskToStage,
    AttemptKey,
    Decided,
    DescribeCheckpoint,
    Described,
    Failed,
    FetchCheckpoint,
    Fetched,
    FetchInitial,
    FetchRanges,
    Granted,
    Question,
    Reply,
    SaveNow,
    TasksDone,
    reply_line,
)

KEY = AttemptKey(key="ab" * 32, uri="s3://b/run/tasks")
SAVE_NOW = SaveNow(reason="SIGTERM", deadline=12.5, writer_rank=3)


@pytest.mark.parametrize(
    "message",
    [
        Hello(rank=2, pid=77),
        Hello(rank=2, pid=77, imported=0.5, memory=390_000_000),
        AskToStage(step=5),
        FetchCheckpoint(rank=None),
        FetchCheckpoint(rank=3),
        DescribeCheckpoint(),
        FetchInitial(),
        FetchRanges(file="__0_0.distcp", ranges=((0, 4), (9, 1))),
        AskSave(call=9),
        AskTasks(call="append", position=3, path="/w/b", names=("k-1/0",)),
        AskAttemptKey(),
        Finish(),
        AskedForCheckpoint(),
        Raised(error="ValueError: x", traceback="Traceback ..."),
    ],
)
def test_a_message_is_read_as_it_was_written(message: Hello | Finish | Raised | AskToStage) -> None:
    assert parse(line_of(message).encode()) == message


@pytest.mark.parametrize("files", [None, "step-000000000007"])
def test_a_report_is_read_as_it_was_written(files: str | None) -> None:
    line = report_line(7, metrics.to_json({"loss": 0.5}), files=files, whole=files is not None)
    read = parse(line.encode())
    assert read == Report(step=7, metrics={"loss": 0.5}, files=files, whole=files is not None)


def test_metadata_is_read_as_it_was_written() -> None:
    read = parse(report_line(7, "{}", files="x", metadata='{"epoch":[2]}').encode())
    assert read == Report(step=7, metrics={}, files="x", whole=False, metadata={"epoch": [2]})


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (AskToStage(step=5), Granted()),
        (FetchCheckpoint(rank=None), Fetched(path="/cache/x")),
        (FetchInitial(), Fetched(path="/cache/initial")),
        (DescribeCheckpoint(), Described(attempt=2, step=5, metrics={"loss": 0.5})),
        (DescribeCheckpoint(), Described(attempt=2, step=5, metrics={}, metadata={"a": [1]})),
        (AskSave(call=9), Decided(save=None)),
        (AskSave(call=9), Decided(save=SAVE_NOW)),
        (AskSave(call=9), Failed(error="no")),
        (AskTasks(call="sizes"), TasksDone(sizes=(3, None))),
        (AskTasks(call="append"), TasksDone(written=True)),
        (AskTasks(call="read"), Failed(error="no", kind="StoreDenied")),
        (AskAttemptKey(), KEY),
    ],
)
def test_a_reply_is_read_as_it_was_written(question: Question[object], reply: Reply) -> None:
    assert parse_reply(reply_line(reply).encode(), question) == reply


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"save":{"reason":"x","deadline":"soon","writer_rank":0}}']
)
def test_a_line_that_is_no_reply_is_named(line: bytes) -> None:
    with pytest.raises(MalformedLine, match="not a reply of the agent"):
        parse_reply(line, AskSave(call=1))


FLAT = b'{"type":"report","step":3,"metadata":"x"}'


def test_messages_of_unknown_type_are_ignored_and_broken_ones_named() -> None:
    assert parse(b'{"type":"telepathy"}') is None
    assert parse(b'{"type":"report","step":3,"metrics":{"a":1},"new":1}') == Report(
        step=3, metrics={"a": 1}, files=None, whole=False
    )
    for line in (b"x", b"[]", b'{"type":"report"}', b'{"type":"report","step":"3"}', FLAT):
        with pytest.raises(MalformedLine, match="not a message of the library"):
            parse(line)


def test_files_outside_the_staging_folder_are_not_taken() -> None:
    with pytest.raises(MalformedLine, match="not a directory name"):
        parse(b'{"type":"report","step":3,"files":"../../etc"}')
