"""`trainrun logs`: from a storage alone, from files of this machine, and while a run goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog, write_log
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract import layout
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.log_lines.history import LocalLines
from trainrun_operator.cli.log_lines.line import Gap, Line, LogItem, Wanted
from trainrun_operator.worlds.local.place import StatusFile, place_of


def call(*words: str) -> Result:
    return CliRunner().invoke(trainrun, ["logs", *words])


def stored(run: RunStore, attempt: int, slot: int, *texts: str, dropped: int = 0) -> None:
    """What the agent of this slot has stored, with one line each second."""
    lines = tuple(LogLine(at=float(n) + slot / 10, text=text) for n, text in enumerate(texts))
    log = WorkerLog(
        attempt=attempt,
        slot=slot,
        workers=2,
        worker=f"llama-{slot}-1",
        begun=f"2026-11-03T0{attempt}:00:00+00:00",
        ranks=(RankLog(rank=slot, lines=lines, dropped=dropped),),
    )
    assert write_log(run, log)


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    """Two attempts; in the first slot 1 was lost with its node."""
    (tmp_path / "runs").mkdir()
    run = RunStore(open_store((tmp_path / "runs").as_uri()), "llama")
    for attempt in (1, 2):
        run.write_once(layout.attempt_key(attempt), AttemptRecord(attempt=attempt, uid="u"))
    stored(run, 1, 0, "begin", "bad batch \x1b[2J", dropped=7)
    stored(run, 2, 0, "begin", "done")
    stored(run, 2, 1, "begin", "done token=hunter2")
    return run


@pytest.mark.case("operator", "A node dies before the last lines of its processes are stored")
def test_a_folder_alone_shows_lines_by_attempt_and_time_and_what_is_missing(run: RunStore) -> None:
    result = call(run.uri)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "[attempt 1 llama-0-1] -- 7 earlier lines of rank 0 were not kept, only the last 2 --",
        "[attempt 1 rank 0] begin",
        "[attempt 1 rank 0] bad batch ",
        "[attempt 1] -- nothing is stored for slot 1 (rank 1): its worker was lost before it could "
        "store its last lines --",
        "[attempt 2 rank 0] begin",
        "[attempt 2 rank 1] begin",
        "[attempt 2 rank 0] done",
        "[attempt 2 rank 1] done token=***",
    ]


def test_a_secret_in_colors_was_stored_and_shown(run: RunStore) -> None:
    stored(
        run, 3, 0, "\x1b[36mtoken\x1b[0m=\x1b[35mhunter2\x1b[0m", "\x1b[32mhf_hunter2hunter2\x1b[0m"
    )
    packed = gzip.decompress(run.store.get(run.key(layout.log_key(3, 0))))
    assert b"hunter2" not in packed
    assert b'{"at":0.0,"text":"token=***"},{"at":1.0,"text":"***"}' in packed
    assert call(run.uri, "--attempt", "3", "--rank", "0").output.splitlines() == [
        "[attempt 3 rank 0] token=***",
        "[attempt 3 rank 0] ***",
    ]


@pytest.mark.parametrize(
    "begun", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59+00:00", "yesterday"]
)
def test_lines_whose_times_no_calendar_has_ended_the_command_with_a_traceback(
    run: RunStore, begun: str
) -> None:
    lines = (LogLine(at=1e9, text="odd"),)
    log = WorkerLog(attempt=3, slot=0, begun=begun, ranks=(RankLog(rank=0, lines=lines),))
    assert write_log(run, log)
    result = call(run.uri, "--attempt", "3", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"attempt": 3, "rank": 0, "text": "odd"}


def test_what_is_stored_in_a_hundred_thousand_lists_is_damaged(run: RunStore) -> None:
    run.store.put(run.key(layout.log_key(3, 0)), gzip.compress(b"[" * 100_000))
    result = call(run.uri, "--attempt", "3")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "[attempt 3] -- the stored lines of slot 0 cannot be read --",
    ]


def test_some_ranks_one_attempt_and_the_last_lines_can_be_asked_for(run: RunStore) -> None:
    assert call(run.uri, "--rank", "1").output.splitlines() == [
        "[attempt 1] -- nothing is stored for slot 1 (rank 1): its worker was lost before it could "
        "store its last lines --",
        "[attempt 2 rank 1] begin",
        "[attempt 2 rank 1] done token=***",
    ]
    tail = call(run.uri, "--attempt", "2", "--tail", "1").output.splitlines()
    assert tail == ["[attempt 2 rank 0] done", "[attempt 2 rank 1] done token=***"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--attempt", "9"], "there is no attempt 9: attempts are 1 to 2"),
        (["--rank", "9", "--attempt", "2"], "there is no rank 9: ranks are 0 to 1"),
    ],
)
def test_an_attempt_or_a_rank_that_is_not_there_is_no_success(
    run: RunStore, asked: list[str], says: str
) -> None:
    result = call(run.uri, *asked)
    assert result.exit_code == 2
    assert result.output == f"error: {says}\n"


def test_as_json_each_line_is_an_object(run: RunStore) -> None:
    rows = [json.loads(row) for row in call(run.uri, "--json", "--rank", "1").output.splitlines()]
    assert list(rows[0]) == ["attempt", "missing"]
    assert rows[2] == {
        "attempt": 2,
        "rank": 1,
        "worker": "llama-1-1",
        "time": "2026-11-03T02:00:01.100+00:00",
        "text": "done token=***",
    }


def test_what_cannot_be_read_costs_only_itself(run: RunStore) -> None:
    run.store.put(run.key(layout.log_key(2, 0)), b"rubbish")
    output = call(run.uri, "--attempt", "2").output
    assert "[attempt 2] -- the stored lines of slot 0 cannot be read --" in output
    assert "[attempt 2 rank 1] begin" in output


def test_attempts_whose_lines_were_deleted_and_those_that_stored_nothing_are_named(
    run: RunStore,
) -> None:
    run.write_once(layout.attempt_key(23), AttemptRecord(attempt=23, uid="u"))
    run.delete([layout.log_key(1, 0), layout.log_key(2, 0), layout.log_key(2, 1)])
    output = call(run.uri).output
    deleted = "the lines of attempts 1 to 2 were deleted: only the newest 20 attempts keep theirs"
    assert deleted in output
    assert "[attempt 23] -- nothing is stored" in output
    assert "deleted" not in call(run.uri, "--attempt", "23").output


def test_a_place_without_a_run_is_said_to_be_none(tmp_path: Path) -> None:
    result = call(f"{tmp_path.as_uri()}/nothing")
    assert result.exit_code == 2
    assert (
        "was never started: the storage has nothing of it. Give <storage URI>/<run name>"
        in result.output
    )


def test_a_storage_cannot_be_followed(run: RunStore) -> None:
    result = call("-f", run.uri)
    assert result.exit_code == 2
    assert "to follow the run, give its YAML file or its name in the cluster" in result.output


def test_here_the_files_of_workers_tell_what_is_not_stored(run: RunStore) -> None:
    place = place_of(run.store.uri, "llama", environ={})
    file = StatusFile(place.status)
    file.replace(replace(file.create({}), status=TrainRunStatus(attempt=3)))
    write(place.nodes, "llama-0-1", START.format(2), "[rank 0] stored already", START.format(3))
    write(place.nodes, "llama-0-1", "[rank 0] now", "[rank 0] not yet a wh")
    write(place.nodes, "llama-1-1", START.format(1), "[rank 1] lost")
    lines = call(run.uri).output.splitlines()
    assert "[attempt 1 rank 1] lost" in lines
    assert not [line for line in lines if "nothing is stored" in line]
    assert "[attempt 2 rank 0] stored already" not in lines
    assert lines[-2:] == ["[attempt 3 rank 0] now", "[attempt 3 rank 0] not yet a wh"]


# ------------------------------------------------------------------------------- following

START = "[agent] INFO starting attempt {}"
ENDED = "[agent] INFO rank {} was stopped"


def write(nodes: Path, worker: str, *lines: str) -> None:
    folder = nodes / worker
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "output.log").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


class World:
    """What happens between two looks at the files: one step each, then the run is over."""

    def __init__(self, nodes: Path, *steps: tuple[str, ...]) -> None:
        self.nodes = nodes
        self.steps = list(steps)

    def pause(self, _seconds: float) -> None:
        if self.steps:
            worker, *lines = self.steps.pop(0)
            if worker:
                write(self.nodes, worker, *lines)

    def over(self) -> bool:
        return not self.steps

    def followed(self, wanted: Wanted | None = None) -> Iterator[LogItem]:
        lines = LocalLines(nodes=self.nodes, wanted=wanted or Wanted())
        return lines.follow(over=self.over, pause=self.pause)


def texts(shown: Iterator[LogItem]) -> list[str]:
    return [
        f"{each.attempt}.{each.rank} {each.text}" if isinstance(each, Line) else each.worker
        for each in shown
    ]


QUIET = ("",)


def test_a_follower_that_came_before_the_run_sees_every_line_once(tmp_path: Path) -> None:
    world = World(
        tmp_path / "nodes",
        QUIET,
        ("a-0-1", START.format(1), "[rank 0] one"),
        ("a-1-1", START.format(1), "[rank 1] one"),
        ("a-0-1", "[rank 0] two", ENDED.format(0), START.format(2), "[rank 0] again"),
        *[QUIET] * 6,
        ("a-1-2", START.format(2), "[rank 1] again", ENDED.format(1)),
        ("a-0-1", ENDED.format(0)),
    )
    assert texts(world.followed()) == [
        *("1.0 one", "1.1 one", "1.0 two", "2.0 again"),
        "a-1-1",  # lost with its node: said when the next attempt runs and nothing more comes
        "2.1 again",
    ]


def test_ranks_attempts_and_an_end_of_what_is_there_can_be_followed(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    write(nodes, "a-0-1", START.format(1), "[rank 0] one", "[rank 0] two", "[rank 1] one")

    def world() -> World:
        return World(nodes, ("a-0-1", "[rank 0] three", "[rank 0] four", ENDED.format(0)))

    first = texts(world().followed(Wanted(ranks=frozenset({0}), tail=1)))
    assert first == ["1.0 two", "1.0 three", "1.0 four", "a-0-1"]
    assert texts(World(nodes).followed(Wanted(attempt=2)))[:-1] == []


def test_a_worker_made_anew_under_its_old_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    write(nodes, "a-0-1", START.format(1), "[rank 0] a line of the one before", ENDED.format(0))
    lines = LocalLines(nodes=nodes, wanted=Wanted())
    assert len(list(lines.new())) == 1
    (nodes / "a-0-1" / "output.log").unlink()
    write(nodes, "a-0-1", START.format(1), "[rank 0] new")
    (line,) = lines.new()
    assert line.text == "new"


def test_a_worker_whose_file_is_gone_is_lost_when_the_run_is_over(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    write(nodes, "a-0-1", START.format(1), "[rank 0] one")
    lines = LocalLines(nodes=nodes, wanted=Wanted())
    assert len(list(lines.new())) == 1
    (nodes / "a-0-1" / "output.log").unlink()
    assert list(lines.new()) == []
    (missing,) = lines.lost(over=True)
    assert isinstance(missing, Gap)
