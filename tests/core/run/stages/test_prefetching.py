"""What is read ahead of the claim, and by whom."""

from __future__ import annotations

from tests.support.builders import WorkerObservation, a_run, a_worker, an_agent, an_incident
from trainrun.contract.agent_state import Committed
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_parts import Cause

STEP_10 = CheckpointId(attempt=1, step=10)


def gathering(*, replicas: int = 3, flush: tuple[int, ...] = ()) -> WorkerObservation:
    """Worker 1 is lost, and attempt 1 has given up: it has committed step 10."""
    scene = a_run(max_failures=3, replicas=replicas).running().committed(0, 10)
    scene = scene.ended(an_incident(cause=Cause.NODE_LOST, slot=1), flush=flush)
    return scene.lost(1, Cause.NODE_LOST)


def read_ahead(scene: WorkerObservation) -> dict[str, CheckpointId | None]:
    """By name of the worker."""
    return {
        name: getattr(answer.order, "prefetch", None) for name, answer in scene.plan.answers.items()
    }


def test_the_newest_commit_is_read_by_every_worker_that_is_there_while_others_are_not() -> None:
    scene = gathering()
    assert scene.plan.reason == "Gathering"
    assert read_ahead(scene) == {"run-0-1": STEP_10, "run-1-1": None, "run-2-1": STEP_10}
    assert read_ahead(scene.plus(a_worker(1, 2)))["run-1-2"] == STEP_10


def test_one_worker_of_each_node_reads_it_that_of_the_lowest_slot() -> None:
    scene = gathering().with_worker(2, node="node-0")
    assert read_ahead(scene.plus(a_worker(1, 2))) == {
        "run-0-1": STEP_10,
        "run-1-1": None,
        "run-1-2": STEP_10,
        "run-2-1": None,
    }


def test_workers_whose_node_nobody_knows_read_for_themselves() -> None:
    scene = gathering()
    for slot in (0, 2):
        scene = scene.with_worker(slot, node="").with_agent(slot, node="")
    assert read_ahead(scene) == {"run-0-1": STEP_10, "run-1-1": None, "run-2-1": STEP_10}


def test_nothing_is_read_while_something_newer_is_on_its_way_to_the_store() -> None:
    scene = gathering(flush=(12,))
    assert set(read_ahead(scene).values()) == {None}
    stored = scene.with_agent(0, committed=Committed(id=CheckpointId(attempt=1, step=12)))
    assert read_ahead(stored)["run-2-1"] == CheckpointId(attempt=1, step=12)


def test_an_older_attempts_checkpoint_is_not_taken_for_what_is_on_its_way() -> None:
    scene = a_run(max_failures=3).running(attempt=2, resume=(1, 40))
    scene = scene.ended(an_incident(attempt=2), flush=(12,))
    assert set(read_ahead(scene).values()) == {None}


def test_without_a_commit_the_resume_point_of_before_is_read_and_without_any_nothing() -> None:
    scene = a_run(max_failures=3).running(attempt=2, resume=(1, 40))
    again = scene.ended(an_incident(attempt=2))
    assert read_ahead(again)["run-0-1"] == CheckpointId(attempt=1, step=40)
    assert set(read_ahead(a_run().plus(a_worker(0), a_worker(1))).values()) == {None}


def test_a_worker_that_has_not_called_is_told_nothing() -> None:
    scene = gathering().plus(a_worker(1, 2, agent=None, phase="Pending"))
    assert read_ahead(scene)["run-1-2"] is None


def test_whoever_takes_slot_0_offers_its_port_and_resolves_as_well() -> None:
    scene = gathering().plus(a_worker(1, 2))
    scene = scene.with_worker(1, agent=an_agent(1, 2, held=scene.held))
    hold = scene.hold(0)
    assert hold.offer
    assert hold.prefetch == STEP_10
