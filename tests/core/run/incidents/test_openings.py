"""Attempts that die while they open the same checkpoint: the one before is tried, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, an_agent, an_incident
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents import repeats

NEWEST, BEFORE = CheckpointId(attempt=1, step=10), CheckpointId(attempt=1, step=5)
LOAD_ERROR: dict[str, Any] = {
    "code": 1,
    "exception": "UnpicklingError: invalid load key",
    "kinds": ("_pickle.UnpicklingError",),
    "raised_at": "train.py:12",
}
TWO = "2 attempts died while opening the same checkpoint (step 10)"


def a_life(**config: Any) -> WorkerObservation:
    return a_run(**{"max_failures": 9, **config})


def opens(
    scene: WorkerObservation, point: CheckpointId | None = NEWEST, **fields: Any
) -> WorkerObservation:
    """The next attempt runs, has asked for this checkpoint, and has reported no step."""
    attempt = scene.status.attempt + 1
    at = (point.attempt, point.step) if point is not None else None
    scene = scene.running(attempt, resume=at)
    for slot in range(2):  # each time elsewhere, so that no node is avoided
        scene = scene.with_worker(slot, node=f"node-{attempt}-{slot}")
    return scene.with_all(**{"asked_for_checkpoint": True, "steps": (None,), **fields})


def settled(scene: WorkerObservation) -> WorkerObservation:
    """What is to be written is written, until the store is asked for the attempt after it."""
    for _ in range(6):
        if not scene.plan.transition:
            break
        scene = scene.after(scene.plan)
    scene = scene.without_backoff().with_all(phase="Idle")
    return scene.after(scene.plan) if scene.plan.transition else scene


def dies(
    scene: WorkerObservation, point: CheckpointId = NEWEST, **fields: Any
) -> WorkerObservation:
    """An attempt that opens this checkpoint dies of an error."""
    return settled(opens(scene, point).with_exit(1, **(LOAD_ERROR | fields)))


def asked(scene: WorkerObservation) -> CheckpointId | None:
    """What the agent of slot 0 is asked to try to do without."""
    request = scene.hold(0).resolve
    assert request is not None, scene.plan
    return request.trial_of


def starts(
    scene: WorkerObservation, point: CheckpointId, trial_of: CheckpointId | None = None
) -> WorkerObservation:
    """The store has answered, and the start record is written: the incident is settled."""
    scene = scene.resolved((point.attempt, point.step), trial_of=trial_of)
    assert scene.plan.reason == "Started"
    record = scene.plan.status.start_record
    assert record is not None
    assert record.trial_of == trial_of
    return scene.after(scene.plan)


def again(
    scene: WorkerObservation, point: CheckpointId = NEWEST, **fields: Any
) -> WorkerObservation:
    """What was started with this checkpoint opens it, and dies."""
    return settled(opens_again(scene, point).with_exit(1, **(LOAD_ERROR | fields)))


def opens_again(scene: WorkerObservation, point: CheckpointId) -> WorkerObservation:
    """What was started with this checkpoint opens it."""
    record = scene.status.start_record
    assert record is not None
    running = opens(scene.with_status(attempt=scene.status.attempt - 1), point)
    started = running.status.start_record
    assert started is not None
    return running.with_status(start_record=replace(record, agents=started.agents))


def twice(**config: Any) -> WorkerObservation:
    """Two attempts in a row have died while opening the newest checkpoint."""
    return again(starts(dies(a_life(**config).with_status(attempt=1)), NEWEST))


def on_trial() -> WorkerObservation:
    """The third one tries the checkpoint before."""
    return starts(twice(), BEFORE, trial_of=NEWEST)


def failing(scene: WorkerObservation) -> str:
    shown = scene.plan.status.condition("FailsAgain")
    return f"{shown.reason}: {shown.message}" if shown is not None else ""


@pytest.mark.case(
    "storage",
    "Two attempts in a row die while they open the same good checkpoint",
    counted="its cause",
)
def test_the_second_death_while_opening_a_checkpoint_has_the_one_before_tried() -> None:
    once = dies(a_life().with_status(attempt=1))
    assert once.status.incident is not None
    assert once.status.incident.opened == NEWEST
    assert once.status.incident.message.endswith("invalid load key (while opening step 10)")
    assert asked(once) is None
    assert failing(once) == ""
    scene = again(starts(once, NEWEST))
    assert asked(scene) == NEWEST
    assert failing(scene) == (
        f"SameCheckpoint: {TWO}: `trainrun checkpoints set-aside` makes the run use the one before "
        "it"
    )


def test_a_user_is_told_what_is_tried_and_what_is_kept() -> None:
    scene = opens_again(on_trial(), BEFORE)
    [event] = [e for e in scene.plan.events if e.reason == "CheckpointSkipped"]
    assert (event.type, event.message) == (
        "Warning",
        "attempts died while opening step 10 of attempt 1, so attempt 4 tries step 5 of attempt 1, "
        "once. Step 10 is kept until attempt 4 has saved a checkpoint",
    )
    scene = scene.after(scene.plan)
    assert scene.plan.status.is_true("CheckpointSkipped")
    assert not scene.committed(0, 7).plan.status.is_true("CheckpointSkipped")


def test_a_trial_that_dies_in_the_same_way_is_the_last_one() -> None:
    scene = again(on_trial(), BEFORE)
    assert scene.status.incident is not None
    assert (scene.status.incident.opened, scene.status.incident.trial_of) == (BEFORE, NEWEST)
    assert asked(scene) is None
    text = f"{TWO}, and one died the same way at the one before: the script is at fault"
    assert failing(scene) == f"SameCheckpoint: {text}"
    scene = starts(scene, NEWEST)
    assert scene.status.tried == NEWEST
    for _ in range(3):
        scene = again(scene)
        assert asked(scene) is None
        scene = starts(scene, NEWEST)


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.NODE_LOST])
def test_a_trial_that_was_taken_away_decides_nothing_and_is_tried_again(cause: Cause) -> None:
    scene = opens_again(on_trial(), BEFORE).with_config(max_preemptions=5).lost(1, cause)
    for _ in range(4):
        scene = scene.after(scene.plan) if scene.plan.transition else scene
    assert scene.status.incident is not None
    assert scene.status.incident.cause == cause
    assert repeats.to_try(scene.view) == NEWEST


def test_a_trial_that_ends_of_another_error_decides_nothing() -> None:
    scene = again(on_trial(), BEFORE, exception="KeyError: 'ema'", raised_at="train.py:99")
    assert asked(scene) is None
    scene = starts(scene, NEWEST)
    assert scene.status.tried is None
    scene = starts(again(scene), NEWEST)
    assert asked(again(scene)) == NEWEST


@pytest.mark.parametrize(
    "fields",
    [
        {"raised_at": "train.py:99"},
        {"kinds": ("builtins.ValueError",)},
        {"raised_at": "", "exception": "", "kinds": ()},
    ],
    ids=["another line", "another error", "an exit code alone"],
)
def test_two_roots_are_no_reason_to_try_another_checkpoint(fields: dict[str, Any]) -> None:
    scene = again(starts(dies(a_life().with_status(attempt=1)), NEWEST), **fields)
    assert asked(scene) is None


def test_deaths_of_which_nobody_knows_the_root_are_none_either() -> None:
    unknown: dict[str, Any] = {"raised_at": "", "exception": "", "kinds": ()}
    once = dies(a_life().with_status(attempt=1), **unknown)
    assert asked(again(starts(once, NEWEST), **unknown)) is None


def test_a_template_that_was_edited_is_tried_with_the_newest_first() -> None:
    assert repeats.to_try(twice().with_config(template_hash="t2").view) is None


def test_an_attempt_in_between_that_had_no_incident_ends_the_row() -> None:
    assert repeats.to_try(twice().with_status(attempt=4).view) is None


def test_an_attempt_in_between_that_has_done_a_step_ends_the_row() -> None:
    scene = twice()
    taken_away = an_incident(Cause.PREEMPTED, attempt=3, step=12)
    assert scene.status.incident is not None
    last = replace(scene.status.incident, attempt=4)
    told = (*scene.status.incidents, taken_away)
    between = scene.with_status(attempt=4, incidents=told, incident=last)
    assert repeats.to_try(between.view) is None
    before_a_step = replace(taken_away, step=None)
    between = scene.with_status(
        attempt=4, incidents=(*scene.status.incidents, before_a_step), incident=last
    )
    assert repeats.to_try(between.view) == NEWEST


@pytest.mark.parametrize(
    "fields",
    [{"asked_for_checkpoint": False}, {"steps": (11,)}, {"spawned": 700.0}],
    ids=["before it asks", "after a step", "long after it had it"],
)
def test_who_does_not_die_of_opening_it_is_not_taken_for_that(fields: dict[str, Any]) -> None:
    scene = opens(a_life().with_status(attempt=1), **fields).with_exit(1, **LOAD_ERROR)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.opened is None


def test_a_long_download_is_no_training() -> None:
    late = {"spawned": 7000.0, "rendezvous": 100.0, "load": 6500.0}
    scene = opens(a_life().with_status(attempt=1), **late).with_exit(1, **LOAD_ERROR)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.opened == NEWEST


def test_an_attempt_that_starts_from_nothing_opens_nothing() -> None:
    scene = opens(a_life(), None).with_exit(1, **LOAD_ERROR)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.opened is None


def test_a_worker_that_has_vanished_is_asked_by_its_last_words() -> None:
    scene = opens(a_life().with_status(attempt=1)).without(1)
    words = an_agent(1, attempt=2, asked_for_checkpoint=True, steps=(None,))
    incident = replace(scene, last_words=(words,)).plan.status.incident
    assert incident is not None
    assert incident.opened == NEWEST


def test_a_run_that_fails_of_it_says_so_and_what_to_do() -> None:
    plan = opens_again(starts(dies(a_life(max_failures=1).with_status(attempt=1)), NEWEST), NEWEST)
    scene = plan.with_exit(1, **LOAD_ERROR)
    scene = scene.after(scene.plan).with_all(phase="Idle")
    failed = scene.plan.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "MaxFailuresExceeded"
    assert failed.message.endswith(
        f". {TWO}: `trainrun checkpoints set-aside` makes the run use the one before it"
    )
