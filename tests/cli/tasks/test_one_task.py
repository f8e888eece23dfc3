"""`trainrun tasks explain` and `rebuild`: one task, its life, and what a person does about it."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from tests.cli.tasks.conftest import WrittenLog, call, key
from trainrun.tasks.records import Cancelled, Changed, Given, Output, Over, Rebuild, Record, Reset
from trainrun.tasks.task_storage import from_bytes
from trainrun_operator.cli.tasks.views import SENTENCES

WHY = "requested by `trainrun tasks rebuild`"


def test_the_life_of_a_task_that_was_retried_and_rebuilt(log: WrittenLog) -> None:
    log.begin()
    log.start("in")
    log.finish("in", data=b"tokens")
    log.start("a", parents=(key("in"),))
    log.fail("a")
    log.start("a", number=2)
    log.finish("a", number=2, data=b"first")
    log.write(Rebuild(key=key("a"), generation=2, why="its object was deleted"))
    log.start("a", number=3, generation=2, worker=1)
    log.finish("a", number=3, generation=2, data=b"other", after=7)
    log.write(Changed(key=key("a"), generation=2, index=0))
    text = call("explain", key("a")[:6]).output
    words = " ".join(text.split())
    assert text.startswith("tokenize('a')\n")
    assert f"key {key('a')}" in words
    assert "state done" in words
    assert f"takes {key('in')[:12]} tokenize('in') done" in words
    assert "try 1 on worker 0" in words
    assert "Signalled: killed by SIGSEGV" in words
    assert "try 3 on worker 1" in words
    assert "done in 7 s" in words
    assert "as generation 2: its object was deleted" in words
    assert "the content of result 0 has changed" in words
    assert f"{log.keep.uri}/objects/{key('a')}-3/0" in words
    assert "rebuild" not in text.splitlines()[-1]
    told = json.loads(call("explain", "prepare.py", key("a"), "--json").output)
    assert [it["kind"] for it in told["history"]][:3] == ["Dispatched", "Failed", "Dispatched"]
    assert told["history"][4]["why"] == "its object was deleted"
    assert told["outputs"][f"{key('a')}-3/0"]["size"] == 5


def test_every_kind_of_record_can_be_told() -> None:
    assert set(SENTENCES) == {cls.__name__ for cls in get_args(Record)}


def test_a_failed_task_is_told_with_its_traceback_and_a_remedy(log: WrittenLog) -> None:
    log.begin()
    log.start("a")
    how = {"reason": "Raised", "message": "ValueError: no", "counted": False, "final": True}
    log.fail("a", traceback="Traceback:\n  line 3", **how)
    text = call("explain", key("a")).output
    assert "  | Traceback:\n  |   line 3\n" in text
    assert text.endswith(
        f"To run it again with fresh retries: trainrun tasks rebuild {key('a')[:12]}\n"
    )


def test_a_key_that_means_several_or_none_is_refused(log: WrittenLog) -> None:
    log.begin()
    names = [str(n) for n in range(17)]  # two of which begin alike
    for name in names:
        log.start(name)
    first = next(c for c in "0123456789abcdef" if sum(key(n)[0] == c for n in names) > 1)
    assert f"tasks have a key that begins with {first}: " in call("explain", first, code=2).stderr
    error = call("explain", "nothing", code=2).stderr
    assert error == "error: no task in the log has a key that begins with nothing\n"
    call("explain", "prepare.py", "a", "b", code=2)


def test_a_failed_task_is_reset_and_a_done_one_rebuilt(log: WrittenLog) -> None:
    log.begin()
    log.start("failed")
    log.fail("failed", final=True)
    log.start("cancelled")
    log.write(Cancelled(key=key("cancelled")))
    log.start("done")
    log.finish("done")
    text = " ".join(call("rebuild", key("failed")).output.split())
    again = "They run again when you start the program. A running program starts them again"
    assert again in text
    call("rebuild", "prepare.py", key("cancelled"))
    call("rebuild", key("done"))
    written = [from_bytes(data) for data in log.keep.read(log.position)]
    assert {batch.session for batch in written} == {"cli"}
    assert [batch.records for batch in written] == [
        (Reset(key=key("failed")),),
        (Reset(key=key("cancelled")),),
        (Reset(key=key("done")), Rebuild(key=key("done"), generation=2, why=WHY)),
    ]
    states = [task["state"] for task in json.loads(call("--json").output)["tasks"]]
    assert states == ["waiting"] * 3


def test_what_took_the_results_of_a_done_task_runs_again_with_it(log: WrittenLog) -> None:
    log.begin()
    for name, parents in (("a", ""), ("b", "a"), ("other", ""), ("c", "b"), ("runs", "a")):
        log.start(name, parents=tuple(map(key, parents)))
        if name == "c":
            log.fail(name, final=True)
        elif name != "runs":
            log.finish(name)
    rows = call("rebuild", key("a")).output.splitlines()[:-2]
    assert [line.split()[1] for line in rows] == ["tokenize('a')", "tokenize('b')", "tokenize('c')"]
    [data] = log.keep.read(log.position)
    again = [Rebuild(key=key(it), generation=2, why=WHY) for it in "ab"]
    resets = [Reset(key=key(it)) for it in "abc"]
    assert from_bytes(data).records == (resets[0], again[0], resets[1], again[1], resets[2])


def test_all_failed_ones_are_reset_at_once(log: WrittenLog) -> None:
    log.begin()
    nothing = "No task has failed, so there is nothing to run.\n"
    assert call("rebuild", "--failed").output == nothing
    for name in "ab":
        log.start(name)
        log.fail(name, final=True)
    assert "They run again" in " ".join(call("rebuild", "--failed").output.split())
    [data] = log.keep.read(log.position)
    assert from_bytes(data).records == (Reset(key=key("a")), Reset(key=key("b")))
    call("rebuild", "--failed", "prepare.py", key("a"), code=2)
    call("rebuild", code=2)


@pytest.mark.parametrize("what", ["running", "put"])
def test_what_needs_no_rebuild_or_can_have_none_is_refused(log: WrittenLog, what: str) -> None:
    log.begin()
    log.start("running")
    log.write(Given(key=key("put"), output=Output(digest="d", size=1, inline="gASVBA==")))
    error = call("rebuild", key(what), code=2).stderr
    reasons = {"running": "it is running", "put": "it is a value of put(), not a task"}
    assert reasons[what] in error


def test_a_batch_that_a_driver_writes_meanwhile_comes_first(
    log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.begin()
    log.start("a")
    log.fail("a", final=True)
    append, pending = type(log.keep).append, [lambda: log.write(Over(outcome="Raised"))]

    def slowly(keep: object, position: int, batch: bytes) -> bool:
        if pending:
            pending.pop()()
        return append(keep, position, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(type(log.keep), "append", slowly)
    call("rebuild", key("a"))
    over, reset = (from_bytes(data).records for data in log.keep.read(log.position - 1))
    assert (over, reset) == ((Over(outcome="Raised"),), (Reset(key=key("a")),))
