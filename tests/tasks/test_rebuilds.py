"""Lost results: what is looked for, made again, and refused."""

from __future__ import annotations

from time import process_time

import pytest

from tests.tasks.by_hand import CRASH, ByHand, call, finished, missing, output, raised
from trainrun.tasks import ObjectLostError, TaskError
from trainrun.tasks.calls import Call, ObjectRef
from trainrun.tasks.records import (
    Changed,
    Dispatched,
    Failed,
    Finished,
    Rebuild,
    Record,
    Reset,
    TaskRun,
)

CHAIN = (call("a"), call("b", "a"), call("c", "b"))


def done(*calls: Call, workers: int = 4, **options: object) -> ByHand:
    """Each of them has its result."""
    hand = ByHand(workers=workers, **options)
    for one in calls:
        hand.call(one)
        contents = [f"{one.key}{i}" for i in range(one.options.num_returns)]
        hand.end(one.key, finished(*contents))
    hand.forget()
    return hand


def answer(hand: ByHand, *absent: str) -> None:
    """Answer all looks."""
    looks, hand.looks = hand.looks, []
    for key, index in looks:
        if key in absent:
            hand.engine.lost(key, index, "absent")
        else:
            hand.engine.present(key, index)
    hand.turn()
    if hand.looks:
        answer(hand, *absent)


def rebuilt(hand: ByHand) -> list[tuple[str, int]]:
    return [(one.key, one.generation) for one in hand.new if isinstance(one, Rebuild)]


def lost(hand: ByHand, key: str) -> ObjectLostError:
    error = hand.error(key)
    assert isinstance(error, ObjectLostError)
    return error


def test_what_nobody_waits_for_is_not_made_again() -> None:
    hand = done(*CHAIN)
    hand.lose("b")
    assert hand.engine.outcome("b") is None
    assert hand.settled == ["b"]
    hand.want("c")
    assert (hand.new, hand.looks) == ([], [])
    hand.engine.unwant("c")
    hand.want("b")
    assert hand.looks == [("a", 0)]
    hand.engine.unwant("b")
    answer(hand)
    assert hand.new == []


def test_a_lost_result_runs_its_task_alone() -> None:
    hand = done(*CHAIN)
    hand.lose("b")
    hand.want("b")
    answer(hand)
    assert rebuilt(hand) == [("b", 2)]
    assert hand.of(Rebuild)[0].why == "result 0: absent"
    assert hand.starts[-1][1] == TaskRun(key="b", generation=2, number=2)
    hand.end("b", finished("b0"))
    assert hand.ready("b").generation == 2
    assert hand.engine.output_of("b", 0) == ("b-2/0", output("b0"))
    assert hand.of(Changed) == []


@pytest.mark.case(
    "tasks",
    "A task's result is deleted, truncated, flipped or replaced",
    counted="max_reconstructions of the task",
)
def test_a_chain_of_lost_results_runs_each_once_ancestors_first() -> None:
    hand = done(*CHAIN)
    hand.lose("c")
    hand.want("c")
    answer(hand, "a", "b")
    assert rebuilt(hand) == [("a", 2), ("b", 2), ("c", 2)]
    assert hand.engine.output_of("b", 0) == ("b-1/0", output("b0"))
    hand.do("a", "b", "c")
    assert hand.started() == ["a", "b", "c"]
    assert hand.engine.counts().rebuilt == 3
    assert hand.engine.counts().done == 3


def test_inline_inputs_are_not_looked_for() -> None:
    hand = ByHand()
    hand.call(call("a"))
    hand.end("a", Finished(outputs=(output("a", inline=True),), seconds=1))
    hand.call(call("b", "a"))
    hand.do("b")
    hand.lose("b")
    hand.lose("a")
    hand.want("b")
    assert hand.looks == []
    assert rebuilt(hand) == [("b", 2)]


def test_a_diamond_runs_its_root_once() -> None:
    hand = done(call("a"), call("b", "a"), call("c", "a"), call("d", "b", "c"))
    hand.lose("d")
    hand.want("d")
    answer(hand, "a", "b", "c")
    assert rebuilt(hand) == [("a", 2), ("b", 2), ("c", 2), ("d", 2)]


def test_two_lost_results_of_one_task_run_it_once() -> None:
    two = call("a", num_returns=2)
    hand = done(two)
    hand.lose("a", 0)
    hand.lose("a", 1)
    hand.call(call("b", ObjectRef("a", 0)), call("c", ObjectRef("a", 1)))
    hand.want("a")
    assert rebuilt(hand) == [("a", 2)]
    hand.end("a", finished("a0", "a1"))
    assert hand.started() == ["a", "b", "c"]


def test_a_task_of_two_results_hides_both_while_it_runs_again() -> None:
    hand = done(call("a", num_returns=2))
    hand.lose("a", 0)
    hand.want("a")
    hand.call(call("b", ObjectRef("a", 1)))
    assert hand.started() == ["a"]
    hand.end("a", finished("a0", "a1"))
    assert hand.started() == ["a", "b"]


def test_two_demands_share_their_ancestors() -> None:
    hand = done(call("a"), call("b", "a"), call("c", "a"))
    for key in "abc":
        hand.lose(key)
    hand.engine.want("b")
    hand.engine.want("c")
    hand.turn()
    assert rebuilt(hand) == [("a", 2), ("b", 2), ("c", 2)]


def test_a_pending_call_is_a_demand_for_what_it_takes() -> None:
    hand = done(call("a"))
    hand.lose("a")
    hand.call(call("b", "a"))
    assert rebuilt(hand) == [("a", 2)]
    hand.do("a", "b")
    assert hand.started() == ["a", "b"]


def test_an_input_that_a_worker_misses_is_looked_for_and_rebuilt() -> None:
    hand = done(call("a"))
    hand.call(call("b", "a"))
    hand.end("b", missing("a"))
    answer(hand, "a")
    assert rebuilt(hand) == [("a", 2)]
    hand.do("a", "b")
    assert hand.started() == ["b", "a", "b"]


def test_an_ancestor_that_is_lost_during_a_rebuild_is_rebuilt_once() -> None:
    hand = done(*CHAIN)
    hand.lose("c")
    hand.want("c")
    answer(hand, "b")
    assert rebuilt(hand) == [("b", 2), ("c", 2)]
    hand.end("b", missing("a"))
    answer(hand, "a")
    assert rebuilt(hand)[2:] == [("a", 2)]
    hand.do("a", "b", "c")
    assert hand.ready("c").generation == 2


def test_a_rebuild_that_fails_for_good_gives_readers_its_error() -> None:
    hand = done(call("a"))
    hand.lose("a")
    hand.call(call("b", "a"))
    hand.end("a", raised())
    assert isinstance(hand.error("b"), TaskError)
    assert hand.settled[-2:] == ["a", "b"]


def test_each_generation_has_its_retries() -> None:
    hand = ByHand()
    hand.call(call("a", max_retries=1))
    for _ in range(2):
        hand.end("a", CRASH)
        hand.end("a")
        hand.lose("a")
        hand.want("a")
    assert [one.final for one in hand.of(Failed)] == [False, False]
    assert hand.starts[-1][1] == TaskRun(key="a", generation=3, number=5)
    hand.end("a", CRASH)
    hand.end("a", CRASH)
    assert "on try 2 of 2" in str(hand.error("a"))


def test_results_of_another_content_are_accepted_and_told() -> None:
    hand = done(call("a", num_returns=2))
    hand.lose("a")
    hand.want("a")
    hand.end("a", finished("a0", "other"))
    assert hand.of(Changed) == [Changed(key="a", generation=2, index=1)]
    assert hand.ready("a").outputs[1] == output("other")


def test_results_of_another_content_may_be_refused() -> None:
    hand = done(call("a", on_change="fail"))
    hand.call(call("b", "a"))
    hand.end("b", missing("a"))
    answer(hand, "a")
    hand.end("a", finished("other"))
    assert lost(hand, "b").reason == "OutputChanged"
    assert str(lost(hand, "a")) == (
        "The result of a() (key a) is lost, and its rebuild gave different content and on_change "
        'is "fail". Make the function deterministic, or set on_change="accept".'
    )
    assert hand.started() == ["b", "a"]
    hand.lose("a")
    hand.engine.present("a", 0)
    hand.turn()
    assert lost(hand, "b").reason == "OutputChanged"


def refused(*calls: Call, key: str = "a", **options: object) -> ObjectLostError:
    hand = done(*(calls or (call("a"),)), **options)
    hand.lose(key)
    hand.want(key)
    answer(hand)
    assert hand.new == []
    assert hand.settled == [key, key]
    return lost(hand, key)


@pytest.mark.case("tasks", "A lost result may not be computed again", counted="the task fails")
def test_bounds_have_reasons_and_remedies() -> None:
    disabled = refused(lineage="off")
    assert (disabled.reason, disabled.key) == ("LineageDisabled", "a")
    assert str(disabled) == (
        'The result of a() (key a) is lost, and lineage is off. Use tasks.run(..., lineage="on").'
    )
    assert refused(call("a", max_retries=0)).reason == "RetriesDisabled"
    assert refused(max_reconstructions=0).reason == "ReconstructionsExceeded"
    assert refused(call("a", max_reconstructions=0)).reason == "ReconstructionsExceeded"
    assert refused(lineage_limit=0).reason == "LineageEvicted"


def test_the_oldest_arguments_are_forgotten_first() -> None:
    hand = done(*(call(key, arguments=b"1234") for key in "abc"), lineage_limit=8)
    for key in "abc":
        hand.lose(key)
        hand.want(key)
    assert lost(hand, "a").reason == "LineageEvicted"
    assert rebuilt(hand) == [("b", 2), ("c", 2)]
    assert hand.engine.call_of("a").arguments == b""
    # What is rebuilt is in use, and is counted again when it has finished.
    hand.call(call("d", arguments=b"1234"))
    hand.do("d", "b", "c")
    hand.lose("d")
    hand.want("d")
    assert lost(hand, "d").reason == "LineageEvicted"


def test_max_reconstructions_bounds_rebuilds_over_drivers() -> None:
    hand = done(call("a", max_reconstructions=2), max_reconstructions=0)
    for generation in (2, 3):
        hand.lose("a")
        hand.want("a")
        assert rebuilt(hand)[-1] == ("a", generation)
        hand.do("a")
        again = ByHand(log=hand.log)
        again.call(call("a", max_reconstructions=2))
        hand = again
    hand.lose("a")
    hand.want("a")
    assert lost(hand, "a").reason == "ReconstructionsExceeded"
    without = ByHand(log=hand.log)
    without.call(call("a", max_reconstructions=-1))
    without.lose("a")
    without.want("a")
    assert rebuilt(without) == [("a", 4)]


def test_values_of_put_and_what_needs_them_are_lost_for_good() -> None:
    hand = ByHand()
    hand.engine.given("v", output("v"))
    hand.call(call("a", "v"))
    hand.do("a")
    hand.lose("a")
    hand.want("a")
    assert hand.looks == [("v", 0)]
    answer(hand, "v")
    assert (lost(hand, "a").reason, lost(hand, "a").key) == ("Put", "v")
    assert str(lost(hand, "a")) == (
        "a() (key a) cannot be rebuilt: the result of a value of tasks.put (key v) is also lost, "
        "and it comes from tasks.put, so no task makes it. "
        "Make the value in a task instead: the result of a task can be rebuilt."
    )
    assert hand.of(Rebuild) == []
    hand.want("v")
    assert lost(hand, "v").reason == "Put"
    hand.call(call("b", "v"))
    assert lost(hand, "b").key == "v"


def test_a_bound_is_checked_before_anything_runs() -> None:
    hand = done(call("a", max_retries=0), call("b"), call("c", "b", "a"))
    hand.lose("c")
    hand.want("c")
    answer(hand, "a", "b")
    assert hand.new == []
    assert (lost(hand, "c").reason, lost(hand, "c").key) == ("RetriesDisabled", "a")


def test_unknown_producers() -> None:
    hand = ByHand()
    hand.call(call("b", "a"))
    hand.want("z")
    assert lost(hand, "b").reason == lost(hand, "z").reason == "Unknown"
    assert hand.settled == ["b", "z"]
    hand.call(call("a"))
    hand.do("a", "b")
    assert hand.ready("b").generation == 1
    other = ByHand(log=hand.log)
    other.lose("b")
    other.call(call("c", "b"))
    assert other.error("c") is other.error("b")
    assert "b() (key b) is lost, and this program has not called the task" in str(other.error("b"))


def test_what_is_found_again_can_be_taken_and_lets_others_be_rebuilt() -> None:
    hand = done(call("a", max_retries=0), call("b", "a"))
    hand.lose("a")
    hand.lose("b")
    hand.call(call("c", "b"))
    hand.want("a")
    assert lost(hand, "c").key == "a"
    hand.engine.present("a", 0)
    hand.turn()
    assert hand.ready("a").generation == 1
    answer(hand)
    assert rebuilt(hand) == [("b", 2)]
    hand.do("b", "c")
    assert hand.ready("c").generation == 1


def test_who_asks_again_gets_a_fresh_answer() -> None:
    hand = done(call("a", max_retries=0))
    hand.lose("a")
    hand.want("a")
    first = hand.error("a")
    hand.want("a")
    assert hand.error("a") is not first
    hand.engine.present("a", 0)
    hand.turn()
    assert hand.ready("a").generation == 1


def test_an_ancestor_without_a_result_is_an_answer_too() -> None:
    hand = done(call("a"), call("b", "a"))
    hand.lose("a")
    hand.want("a")
    hand.end("a", raised())
    hand.lose("b")
    hand.want("b")
    assert hand.error("b") is hand.error("a")


def test_a_rebuild_waits_for_an_ancestor_that_runs_again_already() -> None:
    hand = done(call("a"), call("b", "a"))
    hand.lose("a")
    hand.want("a")
    hand.lose("b")
    hand.want("b")
    assert rebuilt(hand) == [("a", 2), ("b", 2)]
    assert hand.started() == ["a"]
    hand.do("a", "b")


def test_cancelled_results_are_not_rebuilt() -> None:
    hand = done(call("a"))
    hand.engine.cancel("a")
    hand.turn()
    assert hand.ready("a").generation == 1
    hand.lose("a")
    hand.want("a")
    assert lost(hand, "a").reason == "Cancelled"
    other = done(call("a"))
    other.lose("a")
    other.want("a")
    other.engine.cancel("a")
    other.turn()
    assert lost(other, "a").reason == "Cancelled"
    assert "trainrun tasks rebuild a" in str(lost(other, "a"))


def test_a_rebuild_goes_on_after_a_start() -> None:
    hand = done(*CHAIN)
    hand.lose("c")
    hand.want("c")
    answer(hand, "b")
    again = ByHand(log=hand.log)
    again.call(*CHAIN)
    assert again.started() == ["b"]
    again.do("b", "c")
    assert again.ready("c").generation == 2


def by_hand_of_a_person(key: str, generation: int = 2) -> list[Record]:
    return [Reset(key=key), Rebuild(key=key, generation=generation, why="asked for")]


def test_a_person_may_ask_for_a_rebuild() -> None:
    hand = done(call("a"), call("b", "a"))
    hand.engine.logged(by_hand_of_a_person("a"))
    hand.turn()
    hand.do("a")
    assert hand.ready("a").generation == 2
    hand.engine.logged(by_hand_of_a_person("elsewhere"))
    hand.turn()
    again = ByHand(log=[*hand.log, *by_hand_of_a_person("b")])
    again.call(call("a"), call("b", "a"))
    assert again.started() == ["b"]


def test_a_person_and_the_engine_may_ask_for_the_same_rebuild() -> None:
    hand = done(call("a"))
    hand.engine.lost("a", 0, "absent")
    hand.engine.want("a")
    plan = hand.engine.decide()
    hand.engine.logged(by_hand_of_a_person("a"))
    hand.engine.logged(plan.records)
    hand.turn()
    assert [one for one in hand.new if isinstance(one, Dispatched)] == [
        Dispatched(key="a", generation=2, number=2, worker=0)
    ]
    assert hand.engine.counts().rebuilt == 1


def test_a_person_cannot_bring_back_forgotten_arguments() -> None:
    hand = done(call("a"), lineage_limit=0)
    hand.engine.logged(by_hand_of_a_person("a"))
    hand.turn()
    assert lost(hand, "a").reason == "LineageEvicted"
    assert hand.starts == []


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    hand = done(call("a"), call("b", "a"))
    hand.engine.present("a", 0)
    hand.engine.present("z", 0)
    hand.engine.lost("z", 0, "absent")
    hand.engine.lost("a", 7, "absent")
    hand.turn()
    assert (hand.new, hand.settled) == ([], [])
    hand.lose("b")
    hand.want("b")
    assert hand.looks == [("a", 0)]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.slow
def test_many_inputs_that_are_looked_for_are_not_gone_through_for_each(order: int) -> None:
    keys = [f"k{i}" for i in range(2000)]
    hand = done(*(call(key) for key in keys), call("all", *keys))
    hand.lose("all")
    hand.want("all")
    began = process_time()
    for i, (key, index) in enumerate(hand.looks[::order]):
        if i % 10:
            hand.engine.present(key, index)
        else:
            hand.engine.lost(key, index, "absent")
        hand.turn()
    assert process_time() - began < 1.5
    assert len(rebuilt(hand)) == 201


def test_a_long_chain_is_rebuilt() -> None:
    length = 1000
    keys = [f"k{i}" for i in range(length)]
    hand = done(*(call(key, *keys[max(0, i - 1) : i]) for i, key in enumerate(keys)))
    for key in keys:
        hand.engine.lost(key, 0, "absent")
    hand.want(keys[-1])
    assert len(rebuilt(hand)) == length
