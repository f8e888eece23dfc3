"""The engine on its happy path, and after a new start of the program."""

from __future__ import annotations

from tests.tasks.by_hand import ByHand, call, finished, output
from trainrun.tasks.records import Dispatched, Done, Given, TaskRun


def test_a_call_is_logged_before_it_starts_and_committed_before_it_is_heard() -> None:
    hand = ByHand()
    engine = hand.engine
    engine.call(call("a"))
    plan = engine.decide()
    dispatched = Dispatched(
        key="a", generation=1, number=1, worker=0, function="m:a", arguments="a()"
    )
    assert plan.records == [dispatched]
    assert not plan.starts
    engine.logged(plan.records)
    run = TaskRun(key="a")
    assert engine.decide().starts == {(0, run): None}

    engine.ended(0, run, finished("a"))
    plan = engine.decide()
    assert plan.acknowledged == []
    assert engine.outcome("a") is None
    (done,) = plan.records
    assert isinstance(done, Done)
    assert done.outputs == (output("a"),)
    engine.logged(plan.records)
    plan = engine.decide()
    assert plan.acknowledged == [(0, run)]
    assert list(plan.settled) == ["a"]
    assert hand.ready("a").outputs == (output("a"),)


def test_a_task_waits_for_its_inputs() -> None:
    hand = ByHand(workers=2)
    hand.call(call("a"), call("b"), call("c", "a", "b", "a"))
    assert hand.started() == ["a", "b"]
    hand.do("b", "a")
    hand.call(call("a"))
    assert hand.started() == ["a", "b", "c"]
    (record,) = [r for r in hand.new if isinstance(r, Dispatched) and r.key == "c"]
    assert record.parents == ("a", "b")
    hand.do("c")
    assert hand.settled == ["b", "a", "c"]


def test_a_value_is_given_once_and_then_taken() -> None:
    hand = ByHand()
    hand.engine.given("v", output("v"))
    hand.engine.call(call("a", "v"))
    hand.engine.given("v", output("v"))
    hand.turn()
    assert hand.of(Given) == [Given(key="v", output=output("v"))]
    assert hand.ready("v").generation == 1
    assert hand.started() == ["a"]
    hand.engine.given("v", output("v"))
    hand.turn()
    assert len(hand.of(Given)) == 1


def test_a_program_that_starts_again_runs_nothing_that_is_committed() -> None:
    hand = ByHand()
    hand.call(call("a"), call("b", "a"))
    hand.do("a")
    again = ByHand(log=hand.log)
    again.call(call("a"), call("b", "a"), call("c", "b"))
    assert again.settled == ["a"]
    assert again.starts == [(0, TaskRun(key="b", number=2))]
    again.do("b", "c")
    assert again.ready("c").generation == 1
