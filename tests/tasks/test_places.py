"""Workers: who gets what, blips, cancelling, and leaving."""

from __future__ import annotations

import pytest

from tests.tasks.by_hand import CRASH, ByHand, call, finished, raised
from trainrun.tasks import TaskCancelledError, TaskUnschedulableError
from trainrun.tasks.records import Began, Cancelled, Dispatched, Stopped, TaskRun


def joined(hand: ByHand, worker: int, *running: TaskRun, cpus: float = 1, gpus: int = 0) -> None:
    hand.engine.joined(worker, cpus, gpus, running)
    hand.turn()


def stop(hand: ByHand, worker: int, run: TaskRun) -> None:
    hand.engine.ended(worker, run, Stopped())
    hand.turn()


def test_the_oldest_call_goes_first_to_the_worker_with_most_room() -> None:
    hand = ByHand(workers=2, cpus=2)
    hand.call(*(call(key) for key in "abcdef"))
    assert [(w, r.key) for w, r in hand.starts] == [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    hand.do("d")
    assert hand.starts[-1] == (1, TaskRun(key="e"))
    hand.end("a", CRASH)
    assert hand.starts[-1] == (0, TaskRun(key="a", number=2))


def test_tenths_of_a_cpu_add_up() -> None:
    hand = ByHand(cpus=0.3)
    hand.call(*(call(key, cpus=0.1) for key in "abcd"))
    assert hand.started() == ["a", "b", "c"]
    hand.do("a", "b", "c", "d")
    hand.call(call("e", cpus=0.3), call("f", cpus=0))
    assert hand.started()[-2:] == ["e", "f"]


def test_gpus_are_given_out() -> None:
    hand = ByHand(workers=0)
    joined(hand, 0, cpus=8, gpus=1)
    joined(hand, 1, cpus=4, gpus=2)
    hand.call(*(call(key, gpus=1) for key in "abcd"), call("e"))
    assert sorted((w, r.key) for w, r in hand.starts) == [(0, "a"), (0, "e"), (1, "b"), (1, "c")]


def test_a_large_task_gets_its_turn_though_small_ones_keep_coming() -> None:
    hand = ByHand(workers=2, cpus=2)
    hand.call(*(call(f"s{i}") for i in range(4)), call("large", cpus=2))
    hand.call(*(call(f"t{i}") for i in range(100)))
    for turn in range(8):
        # The workers end one each by turns: neither has room for two unless it is kept free.
        worker = turn % 2
        hand.do(next(run.key for where, run in hand.engine.running if where == worker))
        if "large" in hand.started():
            return
    raise AssertionError(hand.started())


def test_a_task_that_waits_for_a_gpu_does_not_keep_cpus_that_it_does_not_need() -> None:
    hand = ByHand(workers=0)
    joined(hand, 0, cpus=4, gpus=1)
    hand.call(call("a", gpus=1), call("b", cpus=2, gpus=1), *map(call, "cde"))
    assert hand.started() == ["a", "c"]
    hand.do("a")
    assert hand.started() == ["a", "c", "b", "d"]


def test_the_worker_that_is_kept_free_stays_the_same_while_it_is_there() -> None:
    hand = ByHand(workers=2, cpus=2)
    hand.call(*(call(key) for key in "abcd"), call("large", cpus=2), *map(call, "efgh"))
    hand.do("a")
    assert hand.started()[-1] == "d"
    hand.do("b")
    assert hand.starts[-1] == (1, TaskRun(key="e"))
    hand.engine.away(0)
    hand.do("d")
    assert hand.started()[-1] == "e"
    hand.do("e")
    assert hand.starts[-1] == (1, TaskRun(key="large"))


def test_what_fits_nowhere_now_does_not_hold_up_what_fits() -> None:
    hand = ByHand(workers=0)
    joined(hand, 0, cpus=1)
    joined(hand, 1, cpus=4)
    hand.engine.away(1)
    hand.call(call("large", cpus=4), call("a"))
    assert hand.started() == ["a"]


@pytest.mark.case(
    "tasks", "A task needs more CPUs or GPUs than any worker has", counted="the task fails"
)
def test_what_can_never_fit_is_said_once_all_workers_have_joined() -> None:
    hand = ByHand(workers=2, cpus=2)
    early = ByHand(workers=0)
    early.engine._places.expected = 2
    joined(early, 0, cpus=2)
    for one in (hand, early):
        one.call(call("a", cpus=4, gpus=1), call("b", "a"), call("c"))
        assert one.started() == ["c"]
    assert early.engine.outcome("a") is None
    joined(early, 1, cpus=2)
    for one in (hand, early):
        error = one.error("b")
        assert isinstance(error, TaskUnschedulableError)
        assert str(error) == (
            "a() (key a) needs cpus=4, gpus=1, but no worker is that large: "
            "they have 2 CPUs and 0 GPUs. Lower cpus or gpus, or use larger workers."
        )
    joined(early, 1, cpus=4, gpus=1)
    early.want("a")
    assert early.started() == ["c", "a"]


def test_a_blip_costs_nothing() -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=0), call("b"))
    run = TaskRun(key="a")
    hand.engine.away(0)
    hand.engine.away(7)
    hand.turn()
    joined(hand, 0, run)
    assert hand.starts == [(0, run)]
    hand.do("a")
    assert hand.started() == ["a", "b"]


def test_a_try_that_was_never_received_is_sent_again_with_its_number() -> None:
    hand = ByHand()
    hand.engine.call(call("a", max_retries=0))
    plan = hand.engine.decide()
    hand.engine.away(0)
    hand.engine.logged(plan.records)
    hand.turn()
    assert hand.starts == []
    joined(hand, 0)
    assert hand.starts == [(0, TaskRun(key="a"))]
    joined(hand, 0)
    assert hand.starts == [(0, TaskRun(key="a"))] * 2


def test_a_worker_that_joins_while_a_record_is_on_its_way_is_sent_it_once() -> None:
    hand = ByHand()
    hand.engine.call(call("a"))
    plan = hand.engine.decide()
    hand.engine.joined(0, 1, 0, ())
    hand.engine.logged(plan.records)
    hand.engine.joined(0, 1, 0, ())
    hand.turn()
    assert hand.starts == [(0, TaskRun(key="a"))]


def test_an_end_that_is_on_its_way_is_not_sent_again() -> None:
    hand = ByHand()
    hand.call(call("a"))
    run = TaskRun(key="a")
    hand.engine.ended(0, run, finished("a"))
    plan = hand.engine.decide()
    hand.engine.joined(0, 1, 0, (run,))
    assert hand.engine.decide().stops == []
    hand.engine.logged(plan.records)
    hand.turn()
    assert hand.acknowledged == [(0, run)]
    joined(hand, 0, run)
    assert hand.stops == [(0, run)]


def test_tries_of_an_older_session_are_stopped() -> None:
    hand = ByHand()
    hand.call(call("a"))
    again = ByHand(workers=0, log=hand.log)
    old = TaskRun(key="a")
    joined(again, 0, old)
    assert again.stops == [(0, old)]
    again.call(call("a"))
    assert again.starts == [(0, TaskRun(key="a", number=2))]
    again.engine.ended(0, old, Stopped())
    again.turn()
    assert again.acknowledged == [(0, old)]


def test_a_cancelled_call_that_waits_never_runs() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b"), call("c", "b"), call("d"))
    hand.engine.cancel("b")
    hand.engine.cancel("b")
    hand.engine.cancel("unknown")
    hand.turn()
    hand.engine.cancel("b")
    hand.do("a")
    assert hand.started() == ["a", "d"]
    assert hand.of(Cancelled) == [Cancelled(key="b")]
    assert isinstance(hand.error("c"), TaskCancelledError)
    assert str(hand.error("c")) == (
        "b() (key b) was cancelled. Run `trainrun tasks rebuild b`, and start the program again."
    )
    again = ByHand(log=hand.log)
    again.call(call("a"), call("b"))
    assert again.settled == ["a", "b"]
    again.engine.cancel("b")
    again.turn()
    assert again.new == []


def test_a_cancelled_try_is_stopped_and_keeps_its_place_until_it_has_ended() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b"))
    run = TaskRun(key="a")
    hand.engine.cancel("a")
    hand.turn()
    assert hand.stops == [(0, run)]
    assert hand.started() == ["a"]
    stop(hand, 0, run)
    assert hand.started() == ["a", "b"]
    assert hand.acknowledged == [(0, run)]


def test_an_end_after_cancel_is_ignored() -> None:
    hand = ByHand()
    hand.call(call("a"))
    hand.engine.cancel("a")
    hand.engine.ended(0, TaskRun(key="a"), finished("a"))
    hand.turn()
    assert isinstance(hand.error("a"), TaskCancelledError)
    assert hand.engine.counts().running == 0


def test_cancel_while_the_start_is_on_its_way_starts_nothing() -> None:
    hand = ByHand()
    hand.engine.call(call("a"))
    plan = hand.engine.decide()
    hand.engine.cancel("a")
    hand.engine.logged(plan.records)
    hand.turn()
    assert (hand.starts, hand.stops) == ([], [])
    assert hand.engine.running == ()


def test_cancel_while_the_end_is_on_its_way_comes_second() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b"))
    for key, end in (("a", finished("a")), ("b", raised(retriable=True))):
        hand.engine.ended(0, TaskRun(key=key), end)
        plan = hand.engine.decide()
        hand.engine.cancel(key)
        hand.engine.logged(plan.records)
        hand.turn()
    assert hand.ready("a").generation == 1
    assert isinstance(hand.error("b"), TaskCancelledError)
    assert hand.started() == ["a", "b"]


def test_a_cancelled_try_that_a_worker_never_got_frees_its_place() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b"))
    hand.engine.away(0)
    hand.engine.cancel("a")
    hand.turn()
    joined(hand, 0)
    assert hand.started() == ["a", "b"]


def test_draining_starts_nothing_more() -> None:
    hand = ByHand(workers=2)
    hand.call(call("a"))
    hand.engine.call(call("b"))
    plan = hand.engine.decide()
    hand.engine.drain()
    hand.engine.logged(plan.records)
    hand.call(call("c"))
    assert hand.started() == ["a"]
    assert hand.engine.running == ((0, TaskRun(key="a")),)
    joined(hand, 0)
    assert hand.engine.running == ()
    again = ByHand(workers=2, log=[*hand.log, Began(session="dead", lost=(0,))])
    again.call(call("a"), call("b"))
    assert [r.number for r in again.of(Dispatched)] == [2, 2] or hand.log
