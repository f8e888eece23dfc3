"""New workers are kept away from nodes that took workers with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import (
    BEGIN,
    HOUR,
    WorkerObservation,
    a_run,
    a_worker,
    an_agent,
    an_incident,
    seconds,
)
from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import (
    CreateWorker,
    DeleteWorker,
    NodeStrike,
    Pending,
    WorkerLoss,
)
from trainrun_operator.core.run.gang.avoiding import MOST, disfavored


def avoid(scene: WorkerObservation) -> dict[str, tuple[str, ...]]:
    """Of every worker that is created: the nodes that it keeps away from."""
    return {a.name: a.avoid for a in scene.plan.actions if isinstance(a, CreateWorker)}


def disfavor(scene: WorkerObservation) -> dict[str, tuple[str, ...]]:
    """Of every worker that is created: the nodes that it is better not put on."""
    scene = scene.after(scene.plan)  # that nodes are avoided stands in the status first
    return {a.name: a.disfavor for a in scene.plan.actions if isinstance(a, CreateWorker)}


def after_a_loss(cause: Cause = Cause.NODE_LOST) -> WorkerObservation:
    """Slot 1's worker is lost, and so is its object."""
    told = an_incident(cause, node="node-1")
    return a_run(replicas=3, max_failures=-1).running().ended(told).without(1)


def test_a_new_worker_keeps_away_from_the_node_that_is_not_heard_any_more() -> None:
    scene = a_run(replicas=3, max_failures=-1).running().ended()
    scene = scene.with_worker(1, suspect_node="it is NotReady", silent_for=seconds(31))
    assert avoid(scene) == {"run-1-2": ("node-1",)}


def test_a_new_worker_keeps_away_from_a_node_that_is_known_to_be_gone() -> None:
    gone = WorkerLoss(cause=Cause.NODE_LOST, message="it is off", unreachable=True)
    scene = a_run(replicas=3, max_failures=-1).running().ended().with_worker(1, loss=gone)
    assert avoid(scene) == {"run-1-2": ("node-1",)}


def test_a_new_worker_keeps_away_from_a_node_where_nobody_answers() -> None:
    scene = a_run(replicas=3, max_failures=-1).running().ended().silent(1, 31)
    assert avoid(scene) == {"run-1-2": ("node-1",)}


def test_a_node_where_another_worker_answers_is_not_avoided() -> None:
    scene = a_run(replicas=3, max_failures=-1).running().ended().silent(1, 31)
    assert avoid(scene.with_worker(2, node="node-1")) == {"run-1-2": ()}


def test_the_node_of_a_failed_worker_that_is_kept_for_its_logs_is_not_avoided() -> None:
    """A pod deleted by force found no room: it kept away from the only node that had some."""
    scene = a_run(replicas=3, max_failures=-1).running().ended().silent(1, 31)
    assert avoid(scene.with_worker(1, phase="Ended")) == {"run-1-2": ()}


def test_a_neighbour_that_missed_a_call_too_does_not_vouch_for_its_node() -> None:
    scene = a_run(replicas=4, max_failures=-1).running().ended().silent(1, 31)
    scene = scene.with_worker(2, node="node-1", silent_for=seconds(16))
    assert avoid(scene) == {"run-1-2": ("node-1",)}


def test_a_node_where_nobody_answers_is_avoided_for_a_minute() -> None:
    """The pod of the silent worker may never go, and the run waited for another node for ever."""
    scene = a_run(replicas=3, max_failures=-1).running().ended()
    assert avoid(scene.silent(1, 89)) == {"run-1-2": ("node-1",)}
    assert avoid(scene.silent(1, 91)) == {"run-1-2": ()}


@pytest.mark.case("nodes", "A node falls silent (power, network)", counted="maxPreemptions")
def test_a_lost_node_is_avoided_for_a_minute() -> None:
    scene = after_a_loss()
    begin = scene.status.incident
    assert begin is not None
    assert avoid(replace(scene, now=begin.time + seconds(59))) == {"run-1-2": ("node-1",)}
    assert avoid(replace(scene, now=begin.time + seconds(61))) == {"run-1-2": ()}


def test_a_node_that_came_back_is_not_avoided_any_more() -> None:
    scene = after_a_loss()
    begin = scene.status.incident
    assert begin is not None
    scene = replace(scene, now=begin.time + seconds(20))
    was_ready = replace(scene, ready_since={"node-1": begin.time - seconds(900)})
    assert avoid(was_ready) == {"run-1-2": ("node-1",)}
    came_back = replace(scene, ready_since={"node-1": begin.time + seconds(15)})
    assert avoid(came_back) == {"run-1-2": ()}


def test_a_node_whose_worker_failed_by_itself_is_not_avoided() -> None:
    scene = after_a_loss(Cause.APP_ERROR)
    begin = scene.status.incident
    assert begin is not None
    assert avoid(replace(scene, now=begin.time + seconds(5))) == {"run-1-2": ()}


def waiting_for_room(kind: Any = "Unschedulable") -> WorkerObservation:
    """Slot 1's new worker was kept away from a node, a while ago."""
    scene = after_a_loss()
    pending = Pending(kind=kind, message="0/3 nodes are available", since=seconds(50))
    new = a_worker(1, 2, phase="Pending", node="", agent=None, avoids=("node-1",), pending=pending)
    return scene.plus(new)


def test_a_worker_without_room_is_made_anew_once_its_node_may_be_used_again() -> None:
    scene = waiting_for_room()
    begin = scene.status.incident
    assert begin is not None
    assert avoid(replace(scene, now=begin.time + seconds(59))) == {}
    later = replace(scene, now=begin.time + seconds(61))
    assert avoid(later) == {"run-1-3": ()}
    why = "it finds no room, and a node that it avoids may be used again"
    assert DeleteWorker(name="run-1-2", reason=why) in later.plan.actions


def test_a_worker_without_room_is_left_alone_while_a_large_rack_goes_down_node_by_node() -> None:
    gone = WorkerLoss(cause=Cause.NODE_LOST, message="it is off", unreachable=True)
    scene = a_run(replicas=MOST + 2, max_failures=-1).running().ended()
    for slot in range(1, MOST + 2):
        scene = scene.with_worker(slot, loss=gone)
    nodes = sorted(f"node-{slot}" for slot in range(1, MOST + 2))
    pending = Pending(kind="Unschedulable", message="no room", since=seconds(50))
    # It was made before the first of them was lost, which takes the place of the last one now.
    avoids = tuple(nodes[1:])
    new = a_worker(0, 2, phase="Pending", node="", agent=None, avoids=avoids, pending=pending)
    assert DeleteWorker not in [type(it) for it in scene.without(0).plus(new).plan.actions]


@pytest.mark.parametrize("kind", ["Starting", "SchedulingGated"])
def test_a_worker_that_has_found_room_elsewhere_or_may_not_look_for_it_is_left_alone(
    kind: str,
) -> None:
    scene = waiting_for_room(kind)
    begin = scene.status.incident
    assert begin is not None
    assert avoid(replace(scene, now=begin.time + seconds(61))) == {}


def failed_before(*causes: Cause, collateral: bool = False) -> WorkerObservation:
    """Slot 1's worker is gone, and the run has had such incidents on its node before."""
    told = tuple(an_incident(c, node="node-1", collateral=collateral) for c in causes)
    return after_a_loss(Cause.APP_ERROR).with_status(incidents=told)


def test_a_new_worker_is_better_not_put_on_a_node_with_repeated_incidents() -> None:
    scene = failed_before(Cause.OUT_OF_MEMORY)
    assert disfavor(scene) == {"run-1-2": ("node-1",)}
    assert avoid(scene.after(scene.plan)) == {"run-1-2": ()}


def test_a_single_incident_does_not_speak_against_a_node() -> None:
    assert disfavor(after_a_loss(Cause.APP_ERROR)) == {"run-1-2": ()}


def test_incidents_that_are_not_a_nodes_fault_do_not_speak_against_it() -> None:
    for cause in (Cause.PREEMPTED, Cause.STORAGE_ERROR, Cause.RENDEZVOUS_FAILED):
        assert disfavor(failed_before(cause)) == {"run-1-2": ()}
    assert disfavor(failed_before(Cause.APP_ERROR, collateral=True)) == {"run-1-2": ()}


def test_two_incidents_are_forgotten_after_four_hours_and_each_after_a_day() -> None:
    scene = failed_before(Cause.UNKNOWN)
    begin = scene.status.incidents[0].time
    for hours, nodes in ((4, ("node-1",)), (4.1, ()), (25, ())):
        assert disfavor(replace(scene, now=begin + seconds(3600 * hours))) == {"run-1-2": nodes}


def elsewhere(node: str, *hours_ago: float, cause: str = "AppError") -> tuple[NodeStrike, ...]:
    """An incident of a run each, so many hours ago."""
    now = BEGIN + HOUR
    return tuple(
        NodeStrike(node=node, run=f"{node}-{number}", cause=cause, time=now - hours * HOUR)
        for number, hours in enumerate(hours_ago)
    )


def test_a_new_worker_is_better_not_put_where_other_runs_have_lost_theirs() -> None:
    scene = replace(a_run(replicas=1), strikes=elsewhere("n7", 1, 2))
    assert disfavor(scene) == {"run-0-1": ("n7",)}
    assert scene.plan.status.condition("NodesAvoided") == Condition(
        type="NodesAvoided",
        status="True",
        reason="RepeatedIncidents",
        message="new workers avoid these nodes if others have room: n7 (2 incidents of 2 runs: "
        "AppError; the last on 2026-01-01 at 00:00 UTC); have them checked",
        last_transition_time=scene.now,
        observed_generation=1,
    )
    assert [event.reason for event in scene.plan.events] == ["NodesAvoided"]


def test_a_run_that_has_failed_puts_no_workers_elsewhere() -> None:
    """Its last event was that, and not why it had failed."""
    scene = a_run(replicas=1, max_failures=0).running().with_exit(0, code=1)
    scene = replace(scene, strikes=elsewhere("n7", 1, 2))
    plan = scene.after(scene.plan).plan
    assert plan.status.phase == "Failed"
    assert plan.status.condition("NodesAvoided") is None
    assert [event.reason for event in plan.events] == ["MaxFailuresExceeded"]


def test_the_worst_nodes_are_avoided_and_no_more_than_the_spec_says() -> None:
    strikes = (*elsewhere("n7", 1, 2), *elsewhere("n8", 0, 1, 2), *elsewhere("n9", 0, 1))
    for most, nodes in ((0, ()), (1, ("n8",)), (2, ("n8", "n9")), (4, ("n7", "n8", "n9"))):
        scene = replace(a_run(replicas=1, max_avoided_nodes=most), strikes=strikes)
        assert disfavor(scene) == {"run-0-1": nodes}


def test_of_the_nodes_that_a_rule_asks_for_the_newest_are_avoided_first() -> None:
    """The node that had just struck was used again, for its name came last in the alphabet."""
    asked = tuple(
        an_incident(
            attempt=number,
            node=node,
            action="RestartAvoidingNode",
            time=BEGIN + number * HOUR,
        )
        for number, node in enumerate(("node-b", "node-z", "node-a"), start=1)
    )
    for most, nodes in ((1, ("node-a",)), (2, ("node-a", "node-z"))):
        scene = replace(a_run(max_avoided_nodes=most), now=BEGIN + 4 * HOUR)
        assert disfavored(scene.with_status(incidents=asked).view) == nodes


def test_many_nodes_are_told_in_short() -> None:
    strikes = tuple(s for n in range(6) for s in elsewhere(f"n{n}", 1, 2))
    scene = replace(a_run(replicas=1, max_avoided_nodes=5), strikes=strikes)
    mark = scene.plan.status.condition("NodesAvoided")
    assert mark is not None
    assert mark.message.count("incidents of") == 3
    assert mark.message.endswith(" and 2 more; have them checked")


def test_nodes_that_only_others_have_met_are_not_told_while_the_run_trains() -> None:
    scene = replace(a_run(replicas=1).running(), strikes=elsewhere("n7", 1, 2))
    assert scene.plan.status.condition("NodesAvoided") is None
    met = scene.with_status(incidents=(an_incident(node="n7", time=BEGIN + HOUR),))
    mark = met.plan.status.condition("NodesAvoided")
    assert mark is not None
    assert "3 incidents of 3 runs" in mark.message


def test_what_the_index_tells_of_the_run_itself_is_not_counted_twice() -> None:
    own = NodeStrike(node="node-1", run="run", cause="AppError", time=BEGIN)
    scene = replace(after_a_loss(Cause.APP_ERROR), strikes=(own,))
    assert disfavor(scene) == {"run-1-2": ()}


def always_there(times: int = 3, node: str = "node-1", **config: Any) -> WorkerObservation:
    """The process of slot 1 has died of SIGSEGV so many times in a row."""
    told = tuple(
        an_incident(attempt=number, node=node, rank=1, exit_code=139, step=7)
        for number in range(1, times + 1)
    )
    scene = a_run(max_failures=-1, **config).running(times).ended(told[-1])
    return scene.with_status(incidents=told[:-1])


def dismissed(scene: WorkerObservation) -> list[tuple[str, str]]:
    for _ in range(3):
        scene = scene.after(scene.plan) if scene.plan.transition else scene
    return [(a.name, a.reason) for a in scene.plan.actions if isinstance(a, DeleteWorker)]


@pytest.mark.case(
    "decisions", "The same failure ends attempts at the same step", counted="its cause"
)
def test_a_worker_leaves_a_node_on_which_alone_the_same_failure_strikes_three_times() -> None:
    why = "the same failure has occurred 3 times, always on its node node-1"
    assert dismissed(always_there()) == [("run-1-1", why)]


def test_it_stays_where_the_failure_is_not_the_nodes_or_nodes_are_not_avoided() -> None:
    elsewhere_too = always_there()
    first = replace(elsewhere_too.status.incidents[0], node="node-0")
    others = elsewhere_too.status.incidents[1:]
    assert dismissed(elsewhere_too.with_status(incidents=(first, *others))) == []
    assert dismissed(always_there(2)) == []
    assert dismissed(always_there(max_avoided_nodes=0)) == []


def test_one_that_came_back_to_the_node_for_want_of_room_is_left_there() -> None:
    scene = always_there(4)
    record = scene.status.start_record
    assert record is not None
    made = a_worker(1, 3, agent=an_agent(1, 3, attempt=4, held=scene.held))
    roster = replace(record, roster=(1, 3), agents=record.agents[:4] + "0103")
    scene = scene.without(1).plus(made).with_status(start_record=roster)
    assert dismissed(scene) == []


MADE_ANEW = 17
"""The number of a worker whose predecessors the store had refused."""


def with_keys_that_came_late(scene: WorkerObservation, slot: int) -> WorkerObservation:
    """Its worker was made anew many times before its first attempt."""
    record = scene.status.start_record
    assert record is not None
    told = tuple(replace(i, worker=f"run-{slot}-{MADE_ANEW}") for i in scene.status.incidents)
    agent = an_agent(slot, MADE_ANEW, attempt=scene.status.attempt, held=scene.held)
    roster = [1] * len(record.roster)
    roster[slot] = MADE_ANEW
    agents = "".join(f"{n:02d}{number:02d}" for n, number in enumerate(roster))
    scene = scene.with_status(
        incidents=told, start_record=replace(record, roster=tuple(roster), agents=agents)
    )
    return scene.without(slot).plus(a_worker(slot, MADE_ANEW, agent=agent))


def test_a_worker_that_was_made_anew_again_and_again_leaves_a_node_that_strikes_as_well() -> None:
    """It stayed there for the next fifteen attempts."""
    scene = with_keys_that_came_late(always_there(), 1)
    assert [name for name, _ in dismissed(scene)] == [f"run-1-{MADE_ANEW}"]
    asked = an_incident(attempt=1, node="node-1", action="RestartAvoidingNode")
    avoiding = a_run(max_failures=-1).running().ended().with_status(incidents=(asked,))
    why = "a rule of failurePolicy keeps the run away from its node node-1"
    assert dismissed(avoiding) == [("run-1-1", why)]
    assert dismissed(with_keys_that_came_late(avoiding, 1)) == [(f"run-1-{MADE_ANEW}", why)]
