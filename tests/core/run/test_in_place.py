"""A restart from the workers' disks: when it may be, what agents are told, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, an_agent, seconds
from trainrun.contract.agent_state import Committed, Notice
from trainrun.contract.answer import Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_parts import Cause, EndingKind
from trainrun_operator.core.run.steps import newest_known

POINT = CheckpointId(attempt=1, step=20)
KEEPS = {"upload_every": seconds(600), "max_failures": 9}


def crashed(scene: WorkerObservation) -> WorkerObservation:
    """Rank 1 has died; the status says so."""
    return told(scene.with_exit(1)).without_backoff()


def told(scene: WorkerObservation) -> WorkerObservation:
    """All that is to be written is written: agents are answered."""
    while scene.plan.transition:
        scene = scene.after(scene.plan)
    return scene


def on_disks(**config: object) -> WorkerObservation:
    """All have staged steps 10 and 20, and rank 1 has died."""
    return crashed(a_run(**KEEPS | config).running().staged_by_all(10).staged_by_all(20))


def described(scene: WorkerObservation) -> WorkerObservation:
    """Every worker holds the newest step."""
    return scene.with_all(phase="Idle", holds=(POINT,))


def started(scene: WorkerObservation) -> WorkerObservation:
    """The next attempt runs from the disks."""
    scene = described(scene).resolved((1, 20), staged=True)
    assert scene.plan.reason == "Started", scene.plan.message
    record = scene.plan.status.start_record
    assert record is not None
    scene = scene.after(scene.plan)
    agents = [
        an_agent(slot, phase="Running", attempt=2, holds=(POINT,), serves=f"10.0.0.{slot}:1")
        for slot in (0, 1)
    ]
    workers = tuple(a_worker(slot, agent=agent) for slot, agent in enumerate(agents))
    return replace(scene, workers=workers)


def test_after_a_crash_the_newest_step_is_described_and_not_uploaded() -> None:
    hold = on_disks().hold(0)
    assert (hold.flush, hold.in_place) == ((20,), True)
    scene = on_disks().with_all(phase="Idle")
    held = replace(scene.held, in_place=False)
    scene = scene.with_agent(1, held=held)  # it told so before it heard of this
    assert (scene.plan.reason, scene.plan.message) == (
        "Flushing",
        "waiting for the descriptions of staged files of slot 1",
    )


def test_a_worker_that_has_described_a_step_has_not_uploaded_it() -> None:
    scene = described(on_disks())
    assert scene.plan.reason == "Resolving"
    ending = scene.status.ending
    assert ending is not None
    uploads = scene.with_status(ending=replace(ending, in_place=False))
    assert uploads.plan.message == "waiting for the uploads of slots 0, 1"


def test_slot_0_claims_what_every_worker_holds() -> None:
    scene = described(on_disks())
    request = scene.hold(0).resolve
    assert request is not None
    assert (request.staged, request.workers) == (POINT, 2)
    one = scene.with_agent(1, holds=()).hold(0).resolve
    assert one is not None
    assert (one.staged, one.workers) == (None, 0)


def test_the_start_says_that_it_is_from_the_disks_and_who_holds_what_on_this_node() -> None:
    scene = started(on_disks())
    assert scene.status.start_record is not None
    assert scene.status.start_record.staged
    assert scene.status.chapter is not None
    assert scene.status.chapter.resumed_via == "Disks"
    event = scene.status.history[-1]
    assert event.message == (
        "attempt 2 starts from step 20 of attempt 1, on the workers' disks, with 2 workers"
    )
    scene = scene.with_worker(0, node="a").with_worker(1, node="b")
    orders = [scene.answer(slot).order for slot in (0, 1)]
    assert all(isinstance(order, Start) and order.staged for order in orders)
    assert [[h.slot for h in order.holders] for order in orders] == [[0], [1]]  # type: ignore[union-attr]
    shared = scene.with_worker(1, node="a").answer(1).order
    assert isinstance(shared, Start)
    assert [(h.slot, h.source.address) for h in shared.holders] == [
        (0, "10.0.0.0:1"),
        (1, "10.0.0.1:1"),
    ]


def test_what_it_started_from_is_not_taken_for_stored_before_its_commit() -> None:
    scene = started(on_disks())
    assert newest_known(scene.view) is None
    scene = scene.with_all(steps=(21,))
    assert scene.plan.status.progress.staged == 20
    stored = scene.with_agent(0, committed=Committed(id=POINT))
    assert newest_known(stored.view) == POINT
    assert stored.plan.status.progress.staged is None


@pytest.mark.parametrize(
    "scene",
    [
        crashed(a_run(max_failures=9).running().staged_by_all(20)),
        crashed(a_run(**KEEPS).running().staged_by_all(20).with_agent(0, notice=Notice(reason=""))),
        crashed(a_run(**KEEPS).running().staged_by_all(10).staged(1, 20, whole=True)),
    ],
    ids=["no uploadEvery", "a notice", "whole"],
)
def test_uploads_come_first_where_the_disks_do_not_do(scene: WorkerObservation) -> None:
    assert scene.status.ending is not None
    assert not scene.status.ending.in_place


def test_a_lost_worker_has_the_others_upload_what_survives() -> None:
    scene = on_disks().lost(1, Cause.NODE_LOST)
    scene = scene.after(scene.plan)
    assert (scene.plan.reason, scene.plan.transition) == ("Flushing", True)
    assert scene.plan.message == "the staged checkpoint is uploaded first"
    ending = scene.plan.status.ending
    assert ending is not None
    assert (ending.in_place, ending.flush_until) == (
        False,
        scene.now + scene.config.flush_timeout,
    )


def test_a_suspension_has_them_uploaded() -> None:
    scene = described(on_disks()).edited(suspend=True)
    assert scene.plan.message == "the staged checkpoint is uploaded first"
    scene = scene.after(scene.plan)
    assert scene.plan.message == "waiting for 2 workers to stop and to finish their uploads"


def test_a_claim_of_which_a_holder_is_lost_is_given_up() -> None:
    scene = described(on_disks()).resolved((1, 20), staged=True)
    scene = scene.with_agent(1, holds=())
    assert (scene.plan.reason, scene.plan.transition) == ("AttemptSkipped", True)
    assert scene.plan.message == (
        "a worker that had a part of its resume point is lost; numbering continues from there"
    )


def test_a_second_crash_before_the_upload_starts_from_the_same_files() -> None:
    scene = crashed(started(on_disks())).with_all(phase="Idle")
    request = scene.hold(0).resolve
    assert request is not None
    assert (request.attempt, request.staged) == (3, POINT)


def test_a_newer_step_is_uploaded_if_the_one_before_is_not_stored_yet() -> None:
    hold = crashed(started(on_disks()).staged_by_all(30)).hold(0)
    assert (hold.flush, hold.in_place) == ((30,), False)
    stored = started(on_disks()).staged_by_all(30).with_agent(0, committed=Committed(id=POINT))
    assert crashed(stored).hold(0).in_place


@pytest.mark.parametrize("kind", ["Suspend", "Incident"])
def test_a_suspension_waits_for_the_upload_of_the_resume_point(kind: EndingKind) -> None:
    scene = started(on_disks()).ended(kind=kind).edited(suspend=True)
    assert scene.plan.message == "waiting for 2 workers to stop and to finish their uploads"
    stored = scene.with_agent(0, committed=Committed(id=POINT))
    assert stored.plan.reason == "Suspended"


def test_a_run_that_ends_waits_for_the_upload_of_its_resume_point() -> None:
    scene = started(on_disks()).all_done()
    assert scene.plan.status.phase == "Finishing"
    stored = scene.with_agent(0, committed=Committed(id=POINT))
    assert stored.plan.reason == "Succeeded"


def test_a_commit_that_does_not_come_ends_the_run() -> None:
    scene = started(on_disks()).all_done(age=601.0)
    assert scene.plan.message.startswith("the last checkpoint (step 20) could not be committed")


def test_what_was_lost_with_a_holder_is_told_once() -> None:
    scene = crashed(started(on_disks())).with_all(phase="Idle", holds=()).resolved((1, 5))
    [event] = [e for e in scene.plan.events if e.reason == "FlushGivenUp"]
    assert event.message == (
        "step 20 of attempt 1 was only on the workers' disks, from which the last attempt "
        "started, and is lost: its upload did not end in time (checkpoint.flushTimeout)"
    )


def test_a_trial_waits_for_the_upload_of_what_attempts_died_of() -> None:
    scene = started(on_disks())
    for attempt in (3, 4):
        scene = scene.with_all(asked_for_checkpoint=True)
        end = {"exception": "ValueError: x", "kinds": ("ValueError",), "raised_at": "a.py:1"}
        scene = told(scene.with_exit(0, **end))
        scene = scene.without_backoff().with_all(phase="Idle")
        if attempt == 3:
            scene = told(scene.resolved((1, 20), staged=True))
            scene = scene.with_all(phase="Running", attempt=3, exits=())
    assert scene.plan.message == "waiting for the upload of step 20, which attempts died of"
    stored = scene.with_agent(0, committed=Committed(id=POINT))
    request = stored.hold(0).resolve
    assert request is not None
    assert (request.trial_of, request.staged) == (POINT, None)


def test_if_the_newest_step_turns_out_to_be_torn_the_one_before_is_described() -> None:
    scene = on_disks()
    for slot in (0, 1):
        [first, _] = scene.worker(slot).agent.staged  # type: ignore[union-attr]
        scene = scene.with_agent(slot, staged=(first,), dropped=(20,))
    assert (scene.hold(0).flush, scene.hold(0).in_place) == ((10,), True)


def test_a_restart_that_waits_anyway_uploads_meanwhile() -> None:
    scene = a_run(**KEEPS).running().staged_by_all(20)
    scene = scene.with_all(steps=(None,)).with_status(fruitless=5).with_exit(1)
    ending = scene.plan.status.ending
    assert ending is not None
    assert ending.not_before is not None
    assert (ending.flush, ending.in_place) == ((20,), False)


def test_steps_below_the_resume_point_are_stored_although_it_was_committed_since() -> None:
    scene = started(on_disks()).with_agent(0, committed=Committed(id=POINT))
    scene = scene.staged_by_all(7, due=True)
    assert [step.step for step in scene.answer(0).steps] == [7]
    assert scene.answer(0).upload == (7,)


def test_a_lost_resume_point_is_told_beside_lost_newer_steps() -> None:
    scene = crashed(started(on_disks()).staged_by_all(30)).with_all(phase="Idle", holds=())
    scene = scene.after(scene.plan, passed=700.0).resolved((1, 5))
    told_of = [e.message[:30] for e in scene.plan.events if e.reason == "FlushGivenUp"]
    assert told_of == ["step 30 was staged on all rank", "step 20 of attempt 1 was only "]
