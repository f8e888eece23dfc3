"""A gang that nobody hears trains on, as far as anybody knows: the storage is looked at first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.builders import BEGIN, WorkerObservation, a_run, a_worker, seconds
from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import Hold, ResolveRequest
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker
from trainrun_operator.core.run.gang.roster import choose

if TYPE_CHECKING:
    from trainrun.contract.agent_state import OwnerLife


def cut_off(replicas: int = 2, silent: float = 91) -> WorkerObservation:
    """Its node is cut off from the operators alone."""
    scene = a_run(replicas=replicas, start_timeout=seconds(300), max_failures=3).running()
    record = scene.status.start_record
    assert record is not None
    scene = scene.with_status(start_record=replace(record, time=BEGIN))
    for slot in range(replicas):
        scene = scene.silent(slot, silent)
    return scene.after(scene.plan)


def looking(
    scene: WorkerObservation, owner: OwnerLife = "Unknown", **fields: object
) -> WorkerObservation:
    """The new worker of slot 0 is there, and has looked."""
    new = a_worker(0, 2, node="node-9", age=seconds(5), **fields)
    if new.agent is not None:
        seen = Resolution(attempt=2, outcome="Looked", owner=owner)
        new = replace(new, agent=replace(new.agent, resolution=seen))
    return scene.plus(new)


def unreachable(scene: WorkerObservation) -> tuple[str, str]:
    found = scene.plan.status.condition("Unreachable")
    return (found.reason, found.message) if found is not None else ("", "")


def test_both_gangs_of_a_node_that_is_cut_off_from_the_operators_are_kept() -> None:
    scene = cut_off()
    assert scene.plan.status.incident is None
    assert scene.plan.actions == (
        CreateWorker(
            name="run-0-2",
            slot=0,
            created_for=2,
            template_hash="t1",
            avoid=("node-0", "node-1"),
        ),
    )
    assert unreachable(scene)[0] == "NotHeard"


def test_the_new_worker_claims_nothing_before_it_has_looked() -> None:
    scene = looking(cut_off())
    assert scene.plan.actions == ()
    order = scene.hold(0, 2)
    assert order == Hold(attempt=2, resolve=ResolveRequest(attempt=2, look=True))
    assert scene.answer(0).order.kind == "Start"


@pytest.mark.case("operator", "A node with a whole gang is cut off from the operators alone")
def test_a_gang_whose_beat_moves_is_not_counted_and_the_new_worker_goes() -> None:
    scene = looking(cut_off(), "Moves")
    assert scene.plan.status.incident is None
    assert [event.reason for event in scene.plan.events] == ["Unreachable"]
    reason, message = unreachable(scene)
    assert reason == "TrainsOn"
    assert "shows that slot 0's agent is alive, and its ranks may still be training, and" in message
    told = scene.after(scene.plan)
    assert told.plan.actions == (DeleteWorker(name="run-0-2", reason="not part of attempt 1"),)
    gone = replace(told, workers=tuple(w for w in told.workers if w.created_for == 1))
    assert gone.plan.actions == ()
    assert gone.plan.status.incident is None
    heard = gone.silent(0, 1).silent(1, 1)
    assert heard.plan.reason == "Running"
    assert unreachable(heard) == ("", "")


def test_a_gang_that_stays_unheard_is_looked_at_again_after_ten_minutes() -> None:
    scene = looking(cut_off(), "Moves")
    scene = scene.after(scene.plan)
    scene = replace(scene, workers=tuple(w for w in scene.workers if w.created_for == 1))
    assert scene.after(scene.plan, passed=599).plan.actions == ()
    late = scene.after(scene.plan, passed=600)
    assert unreachable(late)[0] == "NotHeard"
    (action,) = late.after(late.plan).plan.actions
    assert action.name == "run-0-2"


def test_what_a_new_worker_that_cannot_be_deleted_has_seen_is_forgotten_after_ten_minutes() -> None:
    """It kept a gang that had died since, for ever."""
    scene = looking(cut_off(), "Moves")
    scene = scene.after(scene.plan, passed=599)
    assert unreachable(scene)[0] == "TrainsOn"
    new = scene.workers[-1]
    assert new.agent is not None
    assert new.agent.resolution is not None
    seen = replace(new.agent, resolution=replace(new.agent.resolution, age=599.0))
    late = replace(scene, workers=(*scene.workers[:-1], replace(new, agent=seen))).after(passed=1)
    assert unreachable(late)[0] == "NotHeard"
    assert [action.name for action in late.after(late.plan).plan.actions] == ["run-0-2", "run-0-3"]


def test_a_gang_whose_beat_stands_still_is_lost_and_the_new_worker_takes_part() -> None:
    scene = looking(cut_off(), "Still")
    assert scene.plan.reason == "Silent"
    ended = scene.after(scene.plan)
    first = choose(ended.view)[0]
    assert first is not None
    assert first.name == "run-0-2"
    ended = ended.after(ended.plan)  # who is to be deleted is written first
    assert ("run-0-1", "its agent does not answer") in [
        (a.name, getattr(a, "reason", "create")) for a in ended.plan.actions
    ]


def test_what_was_seen_while_the_attempt_ran_is_no_resume_point() -> None:
    scene = a_run(replicas=1).running().ended().without_backoff()
    new = looking(scene.without(0), "Still")
    state = new.workers[-1].agent
    assert state is not None
    held = replace(state, held=new.held)
    plan = replace(new, workers=(replace(new.workers[-1], agent=held),)).plan
    assert plan.reason == "Resolving"


@pytest.mark.parametrize(
    "new",
    [{"phase": "Pending", "agent": None}, {"phase": "Ended", "agent": None}, {}],
    ids=["no room", "ended", "no answer from the store"],
)
def test_where_nobody_can_look_the_gang_is_lost_after_the_start_timeout(
    new: dict[str, object],
) -> None:
    scene = looking(cut_off(), **new)
    assert scene.after(scene.plan, passed=300).plan.reason == "Running"
    assert scene.after(scene.plan, passed=301).plan.reason == "Silent"


def test_a_new_worker_that_is_not_heard_either_says_that_the_gang_is_not_at_fault() -> None:
    scene = looking(cut_off(), agent=None, phase="Running")
    assert scene.after(scene.plan, passed=3000).plan.status.incident is None


def test_what_else_is_known_of_a_silent_gang_is_not_doubted() -> None:
    scene = cut_off()
    assert scene.with_worker(1, suspect_node="NotReady").plan.reason == "NodeLost"
    assert scene.lost(1, Cause.EVICTED).plan.reason == "Evicted"
    assert scene.with_worker(1, phase="Ended").plan.reason != "Running"
    assert scene.with_exit(1, code=1).silent(1, 91).plan.reason == "AppError"


def test_a_gang_of_which_one_is_heard_is_judged_by_what_that_one_says() -> None:
    scene = a_run(replicas=3).running().silent(0, 91).silent(1, 91)
    assert scene.plan.reason == "Silent"
