"""New workers are kept away from nodes that took workers with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.builders import Scene, a_run, a_worker, an_incident, seconds
from trainrun_operator.core.run.causes import Cause
from trainrun_operator.core.run.observation import Pending, WorkerLoss
from trainrun_operator.core.run.plan import CreateWorker, DeleteWorker


def avoid(scene: Scene) -> dict[str, tuple[str, ...]]:
    """Of every worker that is created: the nodes that it keeps away from."""
    return {a.name: a.avoid for a in scene.plan.actions if isinstance(a, CreateWorker)}


def disfavor(scene: Scene) -> dict[str, tuple[str, ...]]:
    """Of every worker that is created: the nodes that it is better not put on."""
    return {a.name: a.disfavor for a in scene.plan.actions if isinstance(a, CreateWorker)}


def after_a_loss(cause: Cause = Cause.NODE_LOST) -> Scene:
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


def waiting_for_room(kind: Any = "Unschedulable") -> Scene:
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
    why = "it finds no room, and a node that it keeps away from may be used again"
    assert DeleteWorker(name="run-1-2", reason=why) in later.plan.actions


def test_a_worker_that_has_found_room_elsewhere_is_left_alone() -> None:
    scene = waiting_for_room("Starting")
    begin = scene.status.incident
    assert begin is not None
    assert avoid(replace(scene, now=begin.time + seconds(61))) == {}


def failed_before(*causes: Cause, collateral: bool = False) -> Scene:
    """Slot 1's worker is gone, and the run has had such incidents on its node before."""
    told = tuple(an_incident(c, node="node-1", collateral=collateral) for c in causes)
    return after_a_loss(Cause.APP_ERROR).with_status(incidents=told)


def test_a_new_worker_is_better_not_put_on_a_node_with_repeated_incidents() -> None:
    scene = failed_before(Cause.OUT_OF_MEMORY)
    assert disfavor(scene) == {"run-1-2": ("node-1",)}
    assert avoid(scene) == {"run-1-2": ()}


def test_a_single_incident_does_not_speak_against_a_node() -> None:
    assert disfavor(after_a_loss(Cause.APP_ERROR)) == {"run-1-2": ()}


def test_incidents_that_are_not_a_nodes_fault_do_not_speak_against_it() -> None:
    for cause in (Cause.PREEMPTED, Cause.STORAGE_ERROR, Cause.RENDEZVOUS_FAILED):
        assert disfavor(failed_before(cause)) == {"run-1-2": ()}
    assert disfavor(failed_before(Cause.APP_ERROR, collateral=True)) == {"run-1-2": ()}


def test_repeated_incidents_are_forgotten_after_a_day() -> None:
    scene = failed_before(Cause.UNKNOWN)
    begin = scene.status.incidents[0]
    assert disfavor(replace(scene, now=begin.time + seconds(86_399))) == {"run-1-2": ("node-1",)}
    assert disfavor(replace(scene, now=begin.time + seconds(86_401))) == {"run-1-2": ()}
