"""What an attempt that has ended still brings into the store, and who is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import (
    WorkerObservation,
    a_run,
    a_worker,
    an_agent,
    an_incident,
    seconds,
)
from trainrun.contract.agent_state import Held, Notice, Problem, ProcessExit
from trainrun.contract.staged_parts import StagedStep
from trainrun_operator.api.run.status_parts import Cause


def crashed(**config: object) -> WorkerObservation:
    """Rank 1 has died; nobody has told what it has staged, nor has the Hold."""
    scene = a_run(max_failures=3, **config).running().with_exit(1)
    return scene.after(scene.plan, passed=1)


def told(scene: WorkerObservation) -> WorkerObservation:
    """All that is to be written is written: agents are answered."""
    while scene.plan.transition:
        scene = scene.after(scene.plan)
    return scene


def a_part(step: int, *, uploaded: bool = False) -> StagedStep:
    return StagedStep(step=step, ranks=(1,), complete=True, uploaded=uploaded)


def test_a_worker_is_ready_once_it_has_acknowledged_this_hold() -> None:
    scene = crashed().with_all(phase="Idle", held=Held())
    assert (scene.plan.reason, scene.plan.message) == (
        "Gathering",
        "waiting for the workers of slots 0, 1",
    )
    assert scene.with_all(phase="Idle").plan.reason == "Resolving"


@pytest.mark.parametrize("held", [Held(attempt=1), Held(attempt=3), Held(attempt=2, number=7)])
def test_a_worker_that_acknowledged_another_hold_is_not_ready(held: Held) -> None:
    assert crashed().with_all(phase="Idle", held=held).plan.reason == "Gathering"


def test_a_new_worker_has_to_acknowledge_as_well() -> None:
    scene = told(crashed().with_all(phase="Idle").lost(1, Cause.NODE_LOST))
    new = a_worker(1, 2, agent=an_agent(1, 2, held=Held()))
    assert scene.plus(new).plan.reason == "Gathering"
    new = a_worker(1, 2, agent=an_agent(1, 2, held=scene.held))
    assert scene.plus(new).plan.reason == "Resolving"


def test_a_step_of_which_slot_0_told_late_is_flushed_all_the_same() -> None:
    scene = crashed().staged(1, 12)
    assert scene.hold(0).flush == ()
    scene = scene.staged(0, 12)
    assert scene.hold(0).flush == (12,)
    assert scene.hold(1).flush == (12,)


def test_who_has_acknowledged_a_shorter_list_is_waited_for() -> None:
    scene = crashed().with_all(phase="Idle").staged_by_all(10)
    assert (scene.plan.reason, scene.plan.message) == (
        "Flushing",
        "waiting for the uploads of slots 0, 1",
    )
    assert scene.with_agent(1, phase="Idle").plan.message == "waiting for the uploads of slot 0"
    assert scene.with_all(phase="Idle").plan.reason == "Resolving"


def test_a_step_that_died_with_its_worker_is_not_flushed() -> None:
    scene = crashed().staged(0, 10).staged(1, 10)
    assert told(scene.lost(1, Cause.NODE_LOST)).hold(0).flush == ()
    uploaded = crashed().staged(0, 10).staged(1, 10, uploaded=True)
    assert told(uploaded.lost(1, Cause.NODE_LOST)).hold(0).flush == (10,)


def test_a_step_whose_part_was_stored_by_a_worker_that_has_vanished_is_flushed() -> None:
    scene = crashed().staged(0, 10)
    agent = an_agent(1, attempt=1, staged=(a_part(10, uploaded=True), a_part(12)))
    vanished = replace(scene.staged(0, 12).without(1), last_words=(agent,))
    assert told(vanished).hold(0).flush == (10,)


@pytest.mark.parametrize("fields", [{"slot": 7}, {"attempt": 3}, {"agent": "another"}])
def test_what_vanished_workers_of_other_attempts_had_stored_is_not_flushed(
    fields: dict[str, object],
) -> None:
    agent = replace(an_agent(1, attempt=1, staged=(a_part(10, uploaded=True),)), **fields)  # type: ignore[arg-type]
    vanished = replace(crashed().staged(0, 10).without(1), last_words=(agent,))
    assert told(vanished).hold(0).flush == ()


def test_a_worker_that_was_told_to_leave_is_not_ready_for_the_run_that_goes_on() -> None:
    scene = a_run(suspend=True).running().ended(kind="Suspend")
    scene = scene.after(scene.plan).with_all(phase="Idle").with_config(suspend=False)
    scene = scene.after(scene.plan)
    assert scene.status.resumptions == 1
    assert (scene.plan.reason, scene.hold(0).number) == ("Gathering", 1)


def test_a_flush_may_use_the_grace_that_is_left() -> None:
    scene = a_run(max_failures=3).running().noticed(1, remaining=89.0).with_exit(1)
    ending = scene.plan.status.ending
    assert ending is not None
    assert ending.flush_until == scene.now + seconds(89)
    scene = told(scene.after(scene.plan, passed=60))
    assert scene.hold(1).flush_seconds == 29.0


def test_a_grace_shorter_than_the_flush_timeout_changes_nothing() -> None:
    scene = a_run(max_failures=3).running().noticed(1, remaining=20.0).with_exit(1)
    ending = scene.plan.status.ending
    assert ending is not None
    assert ending.flush_until is None
    assert told(scene).hold(1).flush_seconds == 30.0


@pytest.mark.case(
    "storage", "A start fails while the attempt before still uploads", counted="maxStartFailures"
)
def test_a_failed_start_carries_the_flush_on() -> None:
    scene = crashed(flush_timeout=seconds(100)).with_all(phase="Idle").staged(0, 10).staged(1, 10)
    tries = tuple(
        replace(a_worker(1, number, phase="Ended", exit_code=1), age=seconds(0.5))
        for number in (2, 3, 4)
    )
    failed = scene.plus(*tries).plan
    ending = failed.status.ending
    assert failed.reason == "StartFailed"
    assert ending is not None
    assert ending.flush == (10,)
    assert ending.flush_until == scene.now + seconds(99)
    after = scene.after(failed).without_backoff().with_all(phase="Idle", held=Held(attempt=2))
    after = after.after(after.plan)  # that its node is avoided stands in the status first
    assert after.hold(0).flush == (10,)
    assert after.plan.reason == "Gathering"


def test_attempts_that_are_skipped_carry_the_flush_on() -> None:
    scene = crashed().staged_by_all(10).with_all(phase="Idle")
    scene = scene.resolved(outcome="Behind", highest_attempt=6)
    skipped = scene.plan
    assert skipped.reason == "AttemptSkipped"
    assert skipped.status.ending is not None
    assert skipped.status.ending.flush == (10,)


def test_a_worker_of_which_nobody_knows_whether_it_took_part_is_listened_to() -> None:
    scene = a_run(max_failures=3).running().ended(an_incident()).noticed(1, reason="spot")
    new = a_worker(1, 2, agent=an_agent(1, 2, held=scene.held))
    unheard = replace(scene.worker(1), agent=None)
    rest = (scene.worker(0), unheard, new)
    assert replace(scene, workers=rest).plan.reason == "Flushing"


def test_a_worker_that_was_made_anew_again_and_again_is_listened_to_as_well() -> None:
    """An operator that had just begun did not wait for what it had to upload."""
    scene = a_run(replicas=1).running().ended().noticed(0)
    record = scene.status.start_record
    assert record is not None
    scene = scene.with_status(start_record=replace(record, roster=(17,)))
    took_part = a_worker(0, 17, agent=None, notice=Notice(reason="spot"))
    new = a_worker(0, 18, agent=an_agent(0, 18, held=scene.held))
    assert scene.without(0).plus(took_part, new).plan.reason == "Flushing"


def test_processes_that_ended_well_are_no_reason_to_wait() -> None:
    scene = a_run(max_failures=3).running().with_exit(1)
    scene = scene.with_agent(0, exits=(ProcessExit(rank=0, code=0, age=1.0),))
    scene = scene.after(scene.plan).with_all(phase="Idle")
    assert scene.plan.reason == "Resolving"


def given_up(scene: WorkerObservation) -> list[tuple[str, str]]:
    """What the start of the next attempt tells of it."""
    plan = scene.without_backoff().plan
    assert plan.reason == "Started", plan
    return [(e.type, e.message) for e in plan.events if e.reason == "FlushGivenUp"]


def flushing(step: int = 12) -> WorkerObservation:
    """The crash came right after all ranks had reported this step; the time for uploads is over."""
    scene = a_run(max_failures=3).running().staged_by_all(step).with_exit(1)
    scene = told(scene.after(scene.plan)).with_all(phase="Idle")
    return scene.after(scene.plan, passed=40).with_all(phase="Idle")


LOST_STEP = (
    "step 12 was staged on all ranks when the last attempt ended, but not stored before this one "
    "started: "
)


@pytest.mark.case(
    "storage", "A process dies right after every rank reported a checkpoint", counted="its cause"
)
def test_a_user_is_told_which_step_was_not_stored_in_time_and_why() -> None:
    scene = flushing()
    slow = "its upload did not end in time (checkpoint.flushTimeout)"
    assert given_up(scene.resolved((1, 10))) == [("Warning", LOST_STEP + slow)]
    away = Problem(type="StorageUnavailable", reason="StoreUnavailable", message="no route to s3")
    troubled = scene.with_agent(1, problems=(away,)).resolved((1, 10))
    assert given_up(troubled) == [("Warning", f"{LOST_STEP}no route to s3")]


def test_a_user_is_told_that_a_step_went_with_a_worker_that_was_lost_meanwhile() -> None:
    scene = told(flushing().lost(1, Cause.NODE_LOST))
    scene = scene.plus(a_worker(1, 2, agent=an_agent(1, 2, held=scene.held)))
    ((_, said),) = given_up(scene.with_agent(0, phase="Idle").resolved((1, 10)))
    assert said == f"{LOST_STEP}the worker of slot 1, which may have had a part of it, is lost"


def test_several_steps_that_were_not_stored_are_told_at_once() -> None:
    scene = a_run(max_failures=3).running().staged_by_all(12).staged_by_all(14).with_exit(1)
    scene = told(scene.after(scene.plan)).with_all(phase="Idle")
    scene = scene.after(scene.plan, passed=40).with_all(phase="Idle")
    ((_, said),) = given_up(scene.resolved())
    assert said.startswith("steps 12, 14 were staged on all ranks")


def test_nobody_is_told_of_a_step_that_was_stored() -> None:
    assert given_up(flushing().resolved((1, 12))) == []


def test_a_step_that_was_stored_and_found_damaged_is_not_called_unstored() -> None:
    scene = flushing().committed(0, 12)
    scene = scene.after(scene.plan).with_all(phase="Idle")
    assert given_up(scene.resolved((1, 10))) == []


STORE_AWAY = Problem(type="StorageUnavailable", reason="StoreUnavailable", message="no route to s3")


def outage(problem: Problem = STORE_AWAY) -> WorkerObservation:
    """Rank 1 has died; both workers try to store step 12, and cannot."""
    scene = a_run(max_failures=3).running().staged_by_all(12).with_exit(1)
    scene = told(scene.after(scene.plan))
    return told(scene.with_all(phase="Flushing", held=scene.held, problems=(problem,)))


def lasting(scene: WorkerObservation, *, lasts: int, every: int = 5) -> WorkerObservation:
    """So many seconds of it, with a pass every few of them."""
    for _ in range(0, lasts, every):
        scene = told(scene).after(scene.plan, passed=every)
    return told(scene)


@pytest.mark.case(
    "storage", "A process dies after such a report while the store is away", counted="its cause"
)
def test_a_staged_step_outlasts_a_store_that_is_away() -> None:
    scene = outage()
    begun = scene.hold(0)
    scene = lasting(scene, lasts=120)
    assert scene.plan.message == "waiting for the workers of slots 0, 1: no route to s3"
    ready = scene.status.condition("StorageReady")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "StorageUnavailable")
    assert ready.message.endswith(": no route to s3")
    assert scene.hold(0).flush_seconds > 20
    assert scene.answer(0).digest != replace(scene.answer(0), order=begun).digest  # it is heard
    back = scene.with_all(phase="Idle", problems=()).committed(0, 12)
    assert back.plan.reason == "Resolving"


@pytest.mark.parametrize("timeout", [2, 6, 7])
def test_a_staged_step_outlasts_a_store_that_is_away_for_longer_than_a_short_timeout(
    timeout: int,
) -> None:
    """It lapsed between two passes, five seconds apart."""
    scene = lasting(told(outage().with_config(flush_timeout=seconds(timeout))), lasts=60)
    assert scene.hold(0).flush_seconds > 0


def test_who_is_slow_once_the_store_is_back_has_flush_timeout_and_no_more() -> None:
    scene = lasting(outage(), lasts=120).with_all(problems=())
    scene = lasting(scene, lasts=30)
    assert scene.hold(0).flush_seconds == 0.0
    assert scene.with_all(phase="Idle").plan.reason == "Resolving"


@pytest.mark.slow
def test_a_store_that_is_away_is_waited_for_an_hour() -> None:
    scene = lasting(outage(), lasts=3560, every=20)
    assert scene.plan.status.phase == "Restarting"
    scene = lasting(scene, lasts=100, every=20)
    assert scene.plan.status.phase == "Restarting"
    scene = scene.with_all(phase="Idle").without_backoff()
    scene = scene.resolved(outcome="Unavailable", message="s3: no route")
    failed = scene.plan.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "StorageUnavailable"


@pytest.mark.slow
def test_a_run_goes_on_where_one_worker_alone_finds_no_store_for_an_hour() -> None:
    """Its node had no route there, and the run failed as if the store were away."""
    scene = outage().with_config(flush_timeout=seconds(300))
    scene = lasting(scene.with_agent(0, phase="Idle", problems=()), lasts=4200, every=150)
    assert scene.plan.status.phase == "Restarting"
    scene = scene.with_all(phase="Idle").without_backoff().resolved((1, 10))
    assert scene.plan.reason == "Started"
    assert scene.plan.status.store_wait is None


@pytest.mark.parametrize("reason", ["StoreFull", "StoreDenied", "StoreMisconfigured"])
def test_uploads_that_the_store_refuses_are_given_up_in_time(reason: str) -> None:
    scene = lasting(outage(replace(STORE_AWAY, reason=reason)), lasts=40)
    assert scene.hold(0).flush_seconds == 0.0


def test_a_worker_that_hangs_is_not_waited_for() -> None:
    assert lasting(outage().with_all(problems=()), lasts=40).hold(0).flush_seconds == 0.0


def test_nobody_waits_for_a_store_with_nothing_to_bring() -> None:
    scene = crashed().with_all(phase="Idle", problems=(STORE_AWAY,))
    assert lasting(scene, lasts=20).hold(0).flush_seconds == 9.0
