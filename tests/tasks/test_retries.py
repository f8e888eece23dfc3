"""Which end of a try is retried, what it costs, and what a reader gets."""

from __future__ import annotations

import pytest

from tests.tasks.by_hand import CRASH, ByHand, call, finished, missing, raised
from trainrun.tasks import (
    OutOfMemoryError,
    TaskCancelledError,
    TaskError,
    TaskTimeout,
    WorkerCrashedError,
)
from trainrun.tasks.driver_state import Broken
from trainrun.tasks.records import Began, Cancelled, Crashed, End, Failed, Reset, Stopped, TaskRun

EXITED = Crashed(reason="Exited", message="exited with code 0 before it returned")
MEMORY = Crashed(reason="OutOfMemory", message="used 2.1 GiB, with memory=2 GiB")
TIMED_OUT = Crashed(reason="TimedOut", message="took longer than its timeout of 10 s")
LISTED = raised(retriable=True, pickled="cGlja2xl")
UNLISTED = raised(pickled="cGlja2xl")


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (CRASH, WorkerCrashedError),
        (EXITED, WorkerCrashedError),
        (MEMORY, OutOfMemoryError),
        (TIMED_OUT, TaskTimeout),
        (LISTED, TaskError),
    ],
)
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_what_is_retried_is_tried_once_more_than_max_retries(
    end: End, error: type[Exception], retries: int
) -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=retries))
    for _ in range(retries + 1):
        assert hand.engine.outcome("a") is None
        hand.end("a", end)
    failed = hand.of(Failed)
    assert [(one.counted, one.final) for one in failed] == [(True, False)] * retries + [
        (True, True)
    ]
    assert [run.number for _, run in hand.starts] == list(range(1, retries + 2))
    assert [run.number for _, run in hand.acknowledged] == list(range(1, retries + 2))
    assert type(hand.error("a")) is error
    assert hand.settled == ["a"]
    assert f"on try {retries + 1} of {retries + 1}: " in str(hand.error("a"))
    assert hand.engine.counts().retried == retries


def test_minus_one_has_no_limit() -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=-1))
    for _ in range(20):
        hand.end("a", CRASH)
    hand.end("a")
    assert hand.ready("a").generation == 1
    assert (
        hand.of(Failed)[6].message
        == "a() (key a) failed on try 7: killed by SIGSEGV. It runs again."
    )


def test_an_exception_that_is_not_listed_is_final_at_once() -> None:
    hand = ByHand()
    hand.call(call("a"))
    hand.end("a", UNLISTED)
    (failed,) = hand.of(Failed)
    assert (failed.counted, failed.final, failed.reason) == (False, True, "Raised")
    assert (failed.traceback, failed.error) == ("Traceback: here", "cGlja2xl")
    outcome = hand.engine.outcome("a")
    assert isinstance(outcome, Broken)
    assert outcome.pickled == "cGlja2xl"
    assert str(outcome.error) == (
        "a() (key a) failed on try 1 of 4: raised ValueError: no. "
        "Only exceptions listed in retry_exceptions are retried.\n\nTraceback: here"
    )


def test_only_a_final_record_holds_traceback_and_exception() -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=1))
    hand.end("a", LISTED)
    hand.end("a", LISTED)
    first, last = hand.of(Failed)
    assert (first.traceback, first.error) == ("", "")
    assert (last.traceback, last.error) == ("Traceback: here", "cGlja2xl")


def test_a_keyboard_interrupt_cancels() -> None:
    hand = ByHand()
    hand.call(call("a"))
    hand.end("a", raised(cancelled=True))
    assert hand.of(Cancelled) == [Cancelled(key="a")]
    assert type(hand.error("a")) is TaskCancelledError
    assert hand.acknowledged == [(0, TaskRun(key="a"))]
    assert hand.stops == []


def test_messages_name_the_remedy_of_the_last_failure() -> None:
    said = {}
    for end in (CRASH, MEMORY, TIMED_OUT):
        hand = ByHand()
        hand.call(call("a", max_retries=0))
        hand.end("a", end)
        said[end.reason] = str(hand.error("a"))
    assert said == {
        "Signalled": "a() (key a) failed on try 1 of 1: killed by SIGSEGV. "
        "See its output, and raise max_retries if another try may succeed.",
        "OutOfMemory": "a() (key a) failed on try 1 of 1: used 2.1 GiB, with memory=2 GiB. "
        "Raise `memory`, or give each task less work.",
        "TimedOut": "a() (key a) failed on try 1 of 1: took longer than its timeout of 10 s. "
        "Raise `timeout`, or give each task less work.",
    }


def test_a_stopped_try_costs_nothing() -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=0))
    hand.end("a", Stopped())
    hand.end("a")
    (failed,) = hand.of(Failed)
    assert (failed.reason, failed.counted, failed.final) == ("Stopped", False, False)
    assert hand.engine.counts().retried == 0


def test_who_takes_a_failed_result_gets_its_error() -> None:
    hand = ByHand(workers=3)
    hand.call(call("a"), call("b", "a"), call("c", "b"), call("d"))
    hand.end("a", UNLISTED)
    assert hand.error("c") is hand.error("a")
    assert hand.settled == ["a", "b", "c"]
    hand.call(call("e", "d", "c"))
    assert hand.error("e") is hand.error("a")
    counts = hand.engine.counts()
    assert (counts.total, counts.failed, counts.running, counts.waiting) == (5, 4, 1, 0)


def test_a_final_failure_is_answered_at_once_after_a_start_until_it_is_reset() -> None:
    hand = ByHand()
    hand.call(call("a"))
    hand.end("a", UNLISTED)
    again = ByHand(log=hand.log)
    again.call(call("a"), call("b", "a"))
    assert again.starts == []
    assert str(again.error("b")) == str(hand.error("a"))
    reset = ByHand(log=[*hand.log, Reset(key="a")])
    reset.call(call("a"), call("b", "a"))
    reset.do("a", "b")
    assert reset.ready("b").generation == 1


def test_a_reset_in_the_log_of_a_living_program_lets_it_run() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b", "a"), call("c"))
    hand.end("a", UNLISTED)
    hand.engine.cancel("c")
    hand.turn()
    hand.engine.ended(0, TaskRun(key="c"), Stopped())
    hand.engine.logged([Reset(key="a"), Reset(key="c"), Reset(key="elsewhere")])
    hand.turn()
    hand.do("a", "c", "b")
    assert hand.engine.counts().done == 3
    assert hand.engine.counts().failed == 0


def test_retries_survive_drivers_and_only_lost_workers_cost_one() -> None:
    hand = ByHand(workers=2)
    hand.call(call("a", max_retries=1), call("b", max_retries=1))
    again = ByHand(workers=2, log=[*hand.log, Began(session="dead", lost=(0,))])
    again.call(call("a", max_retries=1), call("b", max_retries=1))
    assert again.engine.counts().retried == 1
    again.end("a", CRASH)
    again.end("b", CRASH)
    again.end("b")
    assert "on try 2 of 2" in str(again.error("a"))
    assert again.ready("b").generation == 1


def test_a_try_that_was_lost_with_its_worker_may_be_the_last() -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=0), call("b", "a"))
    lost = [*hand.log, Began(session="dead", lost=(0,))]
    again = ByHand(log=lost)
    again.call(call("a", max_retries=0), call("b", "a"))
    assert again.starts == []
    (failed,) = again.of(Failed)
    assert (failed.reason, failed.final, failed.counted) == ("WorkerLost", True, False)
    assert str(again.error("b")) == (
        "a() (key a) failed on try 1 of 1: its worker was lost. "
        "Raise max_retries, or find out why the worker was lost."
    )
    more = ByHand(log=lost)
    more.call(call("a", max_retries=1))
    more.do("a")
    assert more.ready("a").generation == 1


def test_ends_of_other_tries_are_heard_and_ignored() -> None:
    hand = ByHand()
    hand.call(call("a"))
    hand.end("a", CRASH)
    hand.forget()
    for run in (TaskRun(key="a"), TaskRun(key="a", generation=2, number=2), TaskRun(key="z")):
        hand.engine.ended(0, run, finished("a"))
    hand.turn()
    assert len(hand.acknowledged) == 3
    assert hand.new == []


def test_an_end_that_is_repeated_is_taken_once() -> None:
    hand = ByHand()
    hand.call(call("a"))
    run = TaskRun(key="a")
    hand.engine.ended(0, run, CRASH)
    plan = hand.engine.decide()
    hand.engine.ended(0, run, CRASH)
    assert hand.engine.decide().records == []
    hand.engine.logged(plan.records)
    hand.turn()
    assert hand.acknowledged == [(0, run)]


def test_a_missing_input_costs_nothing_and_is_looked_for_before_the_next_try() -> None:
    hand = ByHand(workers=2)
    hand.call(call("a"), call("b", "a", max_retries=0), call("c", "a", max_retries=0))
    hand.do("a")
    hand.end("b", missing("a"))
    hand.end("c", missing("a"))
    assert hand.looks == [("a", 0)]
    assert hand.started() == ["a", "b", "c"]
    assert [one.reason for one in hand.of(Failed)] == ["InputMissing", "InputMissing"]
    hand.engine.present("a", 0)
    hand.turn()
    hand.do("b", "c")
    assert hand.ready("c").generation == 1
    assert hand.engine.counts().retried == 0


def test_an_input_that_a_worker_never_reads_though_it_is_there_costs_retries_in_the_end() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b", "a", max_retries=1))
    hand.do("a")
    for _ in range(5):
        assert hand.engine.outcome("b") is None
        hand.end("b", missing("a"))
        hand.engine.present("a", 0)
        hand.turn()
    assert [one.counted for one in hand.of(Failed)] == [False] * 3 + [True] * 2
    text = "result 0 of a is absent for worker 0, although each search found it"
    assert text in str(hand.error("b"))
