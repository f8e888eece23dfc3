"""From no attempt to a start record: waits for the store, backoff, the barrier, the numbering."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from tests.support.builders import (
    BEGIN,
    WorkerObservation,
    a_new_run,
    a_run,
    an_agent,
    an_incident,
    seconds,
)
from trainrun.contract.agent_state import Committed, Outcome
from trainrun.contract.answer import FolderRule
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import StartRecord
from trainrun_operator.api.run.status_parts import Cause, CheckpointStatus, Progress
from trainrun_operator.core.run.answers import start_order


def message_of(scene: WorkerObservation, condition: str) -> str:
    found = scene.plan.status.condition(condition)
    assert found is not None
    return found.message


def record_of(scene: WorkerObservation) -> StartRecord:
    record = scene.plan.status.start_record
    assert record is not None
    return record


# ---------------------------------------------------------------------------- the way to a start


def test_the_first_pass_accepts_the_run_and_starts_its_clock() -> None:
    scene = a_new_run(replicas=3)
    plan = scene.plan
    assert (plan.reason, plan.message) == ("Accepted", "gathering 3 workers")
    assert plan.transition
    assert (plan.status.start_time, plan.status.phase) == (scene.now, "Pending")


def test_slot_0_is_asked_to_resolve_and_to_offer_a_port_once_everybody_waits() -> None:
    scene = a_run().waiting()
    assert scene.plan.reason == "Resolving"
    assert scene.plan.message == "asking the store for the newest good checkpoint"
    request = scene.hold(0).resolve
    assert request is not None
    assert (request.attempt, request.on_existing, request.ended) == (1, "Resume", "")
    assert (scene.hold(0).offer, scene.hold(1).offer) == (True, False)
    assert scene.hold(1).resolve is None


def test_the_store_is_told_what_ended_the_attempt_before() -> None:
    incident = an_incident(message="x" * 700)
    scene = a_run(max_failures=1, on_existing="Fail").running().ended(incident)
    request = scene.hold(0).resolve
    assert request is not None
    assert (request.attempt, request.on_existing) == (2, "Fail")
    assert request.ended == f"AppError: {'x' * 490}"


def test_nothing_is_asked_of_the_store_before_everybody_waits() -> None:
    scene = a_run().waiting().silent(1, 31)
    assert scene.plan.reason == "Gathering"
    assert scene.plan.message == "waiting for the worker of slot 1"
    assert message_of(scene, "Running") == scene.plan.message
    assert scene.hold(0).resolve is None


def test_without_a_port_there_is_no_start() -> None:
    scene = a_run().waiting().resolved(offer=False)
    assert (scene.plan.reason, scene.plan.message) == (
        "Barrier",
        "slot 0 is looking for a free master port",
    )


def test_a_port_that_was_offered_for_an_older_attempt_is_not_used() -> None:
    scene = a_run().waiting().resolved()
    agent = scene.worker(0).agent
    assert agent is not None
    scene = scene.with_status(attempt=1).resolved(offer=False)
    assert scene.with_agent(0, offer=agent.offer).plan.reason == "Barrier"


def test_a_resolution_of_an_older_attempt_is_not_used() -> None:
    scene = a_run().waiting().resolved().with_status(attempt=1)
    assert scene.with_agent(0, phase="Idle").plan.reason == "Resolving"


def test_the_start_record_holds_everything_that_orders_are_copies_of() -> None:
    scene = a_run(processes_per_worker=4).running(1).ended(kind="Yielded").resolved((1, 30))
    plan = scene.plan
    assert (plan.reason, plan.message) == (
        "Started",
        "attempt 2 starts from step 30 of attempt 1 with 2 workers",
    )
    record = record_of(scene)
    assert (record.attempt, record.roster, record.agents) == (2, (1, 1), "00010101")
    assert (record.world_size, record.template_hash, record.time) == (8, "t1", scene.now)
    assert (record.master_addr, record.master_port) == ("10.0.0.1", 20002)
    assert record.resume_point is not None
    assert (record.resume_point.attempt, record.resume_point.step) == (1, 30)
    status = plan.status
    assert (status.attempt, status.ending, status.restarts, status.phase) == (
        2,
        None,
        1,
        "Starting",
    )


def test_all_workers_are_told_the_id_that_slot_0_has_from_the_store() -> None:
    scene = a_run().waiting().resolved(run_id="qds44i3a6xuei7e7")
    assert scene.plan.status.run_id == record_of(scene).run_id == "qds44i3a6xuei7e7"
    assert start_order(record_of(scene)).run_id == "qds44i3a6xuei7e7"


def test_what_a_worker_calls_an_id_and_is_none_is_left_out() -> None:
    scene = a_run().waiting().resolved(run_id="../" * 30)
    assert scene.plan.status.run_id == record_of(scene).run_id == ""


def test_an_agent_of_the_version_before_does_not_make_the_run_forget_its_id() -> None:
    scene = a_run().waiting().with_status(run_id="qds44i3a6xuei7e7").resolved(run_id="")
    assert scene.plan.status.run_id == record_of(scene).run_id == "qds44i3a6xuei7e7"


def test_a_first_attempt_without_a_checkpoint_starts_from_nothing() -> None:
    plan = a_run().waiting().resolved().plan
    assert plan.message == "attempt 1 starts from scratch with 2 workers"
    assert plan.status.restarts == 0


def test_a_training_that_begins_from_scratch_says_so_when_it_happens() -> None:
    scene = a_run(max_failures=1).running().with_agent(1, steps=(25,)).with_exit(0)
    events = scene.after(scene.plan).waiting().resolved().without_backoff().plan.events
    assert [(e.type, e.reason, e.message) for e in events] == [
        ("Normal", "Started", "attempt 2 starts from scratch with 2 workers"),
        (
            "Warning",
            "StartsFromScratch",
            "no checkpoint was ever committed: unless the script resumes from its own folder, a "
            "restart begins from scratch. Call trainrun.report(step=..., checkpoint=...) in the "
            "training loop, or let TrainRun store that folder (checkpoint.folder)",
        ),
    ]


def test_where_no_save_of_a_folder_is_stored_it_is_told_that_the_script_starts_anew() -> None:
    folder = FolderRule(path="out")
    scene = a_run(max_failures=1, folder=folder).running().with_all(steps=(None,)).with_exit(0)
    _, warned = scene.after(scene.plan).waiting().resolved().without_backoff().plan.events
    assert (warned.type, warned.reason) == ("Warning", "StartsFromScratch")
    assert warned.message == (
        "no save in out has been stored yet: unless a complete one is left there, the script "
        "begins from scratch. If it did save, check checkpoint.folder, and FolderNotTaken in "
        "status.conditions"
    )


def test_of_a_folder_that_stays_nobody_says_that_its_script_starts_anew() -> None:
    folder = FolderRule(path="out", carry=False)
    scene = a_run(max_failures=1, folder=folder).running().with_all(steps=(None,)).with_exit(0)
    events = scene.after(scene.plan).waiting().resolved().without_backoff().plan.events
    assert [event.reason for event in events] == ["Started"]


def test_of_a_script_that_reports_nothing_nobody_says_that_it_starts_from_nothing() -> None:
    scene = a_run(max_failures=1).running().with_all(steps=(None,)).with_exit(0)
    ended = scene.after(scene.plan).waiting().resolved().without_backoff()
    started, warned = ended.plan.events
    assert started.message == (
        "attempt 2 starts without a checkpoint, since none was reported, with 2 workers"
    )
    assert warned.message.startswith("no step was ever reported: unless the script resumes from")
    assert len(ended.with_status(restarts=1).plan.events) == 1, "told once"


def test_the_costs_of_an_incident_are_noted_when_the_next_attempt_starts() -> None:
    scene = a_run(max_failures=1).running(2, resume=(1, 10)).with_agent(1, steps=(25,)).with_exit(0)
    scene = scene.after(scene.plan, passed=4.0016).resolved((2, 20))
    scene = scene.with_agent(1, phase="Idle")
    (incident,) = scene.plan.status.incidents
    assert (incident.lost_steps, incident.restart_seconds) == (5, 4.002)
    assert incident.resumed_from is not None
    assert incident.resumed_from.step == 20


def test_a_restart_from_nothing_loses_all_steps() -> None:
    scene = a_run(max_failures=1).running().with_exit(0)
    scene = scene.after(scene.plan).with_agent(1, phase="Idle").resolved()
    assert scene.plan.status.incidents[-1].lost_steps == 10


def test_a_program_of_tasks_loses_no_step_without_checkpoints() -> None:
    scene = a_run(max_failures=1).running().with_all(metrics={"tasks_rebuilt": 12}).with_exit(0)
    scene = scene.after(scene.plan).with_agent(1, phase="Idle").resolved()
    assert scene.plan.status.incidents[-1].lost_steps == 0


def test_a_checkpoint_ahead_of_the_steps_seen_loses_nothing() -> None:
    scene = a_run(max_failures=1).running().with_exit(0)
    scene = scene.after(scene.plan).with_agent(1, phase="Idle").resolved((1, 12))
    assert scene.plan.status.incidents[-1].lost_steps == 0


def test_without_any_step_nobody_knows_what_was_lost() -> None:
    scene = a_run(max_failures=1).running().with_all(steps=(None,)).with_exit(0)
    scene = scene.after(scene.plan).with_agent(1, phase="Idle").resolved()
    assert scene.plan.status.incidents[-1].lost_steps is None


def test_nobody_knows_what_a_gang_did_after_its_driver_was_killed() -> None:
    """It computes on for seconds, and nobody hears of these steps."""
    scene = a_run().running().lost(0, Cause.INTERRUPTED, "the driver ended")
    scene = scene.after(scene.plan).waiting().resolved((1, 10))
    assert scene.plan.status.incidents[-1].lost_steps is None
    heard = scene.with_status(progress=Progress(step=14, time=scene.now))
    assert heard.plan.status.incidents[-1].lost_steps == 4


# ---------------------------------------------------------------------------- backoff


def test_a_fruitless_run_backs_off_before_it_asks_the_store() -> None:
    scene = a_run(max_failures=-1).running().with_all(steps=(None,)).with_exit(0)
    scene = scene.with_status(fruitless=3)
    scene = scene.after(scene.plan).with_all(phase="Idle")
    plan = scene.plan
    assert plan.reason == "BackingOff"
    until = scene.status.ending.not_before if scene.status.ending else None
    assert until is not None
    assert plan.message == f"restarting at {until:%H:%M:%S} UTC (backoff)"
    assert plan.requeue_after == until - scene.now
    assert scene.after(plan, passed=5).plan.reason == "Resolving"


def test_workers_are_replaced_while_the_run_backs_off() -> None:
    scene = a_run(max_failures=-1).running().with_all(steps=(None,)).with_exit(0)
    scene = scene.with_status(fruitless=9)
    scene = scene.after(scene.plan).with_agent(1, phase="Idle").without(0)
    assert scene.plan.reason == "Gathering"
    assert len(scene.plan.actions) == 1


# ---------------------------------------------------------------------------- answers of the store


def test_the_store_is_asked_with_the_newest_checkpoint_that_the_status_knows() -> None:
    saved = CheckpointStatus(uri="s3://bucket/run", step=40, attempt=1, time=BEGIN)
    scene = a_run().running(2, resume=(1, 20)).ended(kind="Yielded").with_status(checkpoint=saved)
    request = scene.hold(0).resolve
    assert request is not None
    assert request.committed == CheckpointId(attempt=1, step=40)


def test_the_store_is_asked_with_a_checkpoint_that_the_status_does_not_show_yet() -> None:
    """Where listings lag it was passed over, and the run went on from the one before it."""
    scene = a_run().running(2, resume=(1, 20)).committed(1, 30).ended(kind="Yielded")
    request = scene.hold(0).resolve
    assert request is not None
    assert request.committed == CheckpointId(attempt=2, step=30)


def test_the_store_is_asked_with_what_the_attempt_before_was_handed() -> None:
    """Nothing newer is known, and a listing that lags might show none at all."""
    scene = a_run().running(2, resume=(1, 20)).ended(kind="Yielded")
    assert scene.status.checkpoint is None
    request = scene.hold(0).resolve
    assert request is not None
    assert request.committed == CheckpointId(attempt=1, step=20)


def test_a_run_that_has_finished_before_succeeds_at_once() -> None:
    plan = a_run().waiting().resolved(outcome="Finished").plan
    assert (plan.reason, plan.status.phase) == ("AlreadyFinished", "Succeeded")
    assert plan.message == "the store says that this run has succeeded before"
    assert plan.status.is_true("Complete")


def test_storage_that_is_not_empty_fails_the_run_where_it_must_be() -> None:
    scene = a_run().waiting().resolved(outcome="NotEmpty", message="s3://b/run is not empty")
    assert (scene.plan.reason, scene.plan.message) == (
        "StorageNotEmpty",
        "s3://b/run is not empty",
    )
    assert scene.plan.status.is_true("Failed")


def test_attempts_that_only_the_store_knows_are_skipped() -> None:
    scene = a_run().waiting().resolved(outcome="Behind", highest_attempt=7)
    plan = scene.plan
    assert plan.reason == "AttemptSkipped"
    assert plan.message == "attempt 7 exists already; numbering continues from there"
    assert (plan.status.attempt, plan.status.phase) == (7, "Pending")
    later = scene.after(plan).resolved((7, 40)).plan
    assert later.message == "attempt 8 starts from step 40 of attempt 7 with 2 workers"
    assert later.status.restarts == 0  # this run has restarted nothing


def test_the_attempt_never_goes_down_whatever_the_store_says() -> None:
    scene = a_run().with_status(attempt=5).waiting().resolved(outcome="Behind", highest_attempt=2)
    assert scene.plan.status.attempt == 6


def test_attempts_that_only_agents_know_are_skipped() -> None:
    scene = a_run().waiting().with_agent(1, attempt=4)
    assert (scene.plan.reason, scene.plan.status.attempt) == ("AttemptSkipped", 4)


@pytest.mark.case("operator", "The status is lost or restored from a backup")
@pytest.mark.parametrize("scene", [a_run().waiting(), a_run().running(3)])
def test_an_attempt_that_was_ordered_is_not_given_out_again_by_an_old_status(
    scene: WorkerObservation,
) -> None:
    """Its agents may have begun it, and tell of it any moment."""
    plan = replace(scene, ordered=4).plan
    assert (plan.reason, plan.status.attempt) == ("AttemptSkipped", 4)
    assert plan.message == "attempt 4 exists already; numbering continues from there"


def test_a_status_that_was_set_back_does_not_wait_for_ever() -> None:
    scene = a_run().running(2).asked_to_save().with_agent(1, attempt=3)
    status = scene.plan.status
    assert (scene.plan.reason, status.attempt, status.start_record) == ("AttemptSkipped", 3, None)
    assert status.save_asked is None
    assert scene.after(scene.plan).plan.reason == "Gathering"


@pytest.mark.case("storage", "The store is unreachable at a restart")
@pytest.mark.parametrize(
    ("outcome", "reason", "attempt", "grace"),
    [
        ("InUse", "StorageInUse", 0, None),
        ("NoGoodCheckpoint", "NoGoodCheckpoint", 1, 60),
        ("Unavailable", "StorageUnavailable", 0, 300),
        ("Unavailable", "StorageUnavailable", 1, 3600),
        ("Misconfigured", "StorageMisconfigured", 1, 30),
    ],
)
def test_a_store_that_does_not_help_is_waited_for_so_long(
    outcome: Outcome, reason: str, attempt: int, grace: float | None
) -> None:
    scene = a_run().with_status(attempt=attempt).waiting()
    scene = scene.resolved(outcome=outcome, message="s3://b: what is wrong")
    first = scene.plan
    assert first.transition
    assert (first.reason, first.message) == (reason, "s3://b: what is wrong")
    assert [(e.type, e.reason, e.message) for e in first.events] == [
        ("Warning", reason, "s3://b: what is wrong")
    ]
    assert message_of(scene, "StorageReady") == "s3://b: what is wrong"
    waiting = scene.after(first, passed=grace or 1e6)
    assert waiting.plan.reason == reason
    assert not waiting.plan.transition
    assert waiting.hold(0).resolve is not None
    if grace is not None:
        failed = scene.after(first, passed=grace + 1).plan
        later = "; give the annotation trainrun.dev/restart a new value to continue the run"
        words = "s3://b: what is wrong" + (later if outcome != "NoGoodCheckpoint" else "")
        assert (failed.reason, failed.message) == (reason, words)
        assert failed.status.is_true("Failed")


def test_every_outcome_is_answered() -> None:
    for outcome in get_args(Outcome):
        assert a_run().waiting().resolved(outcome=outcome).plan.reason


def test_a_store_that_has_come_back_is_told_once() -> None:
    scene = a_run().waiting().with_condition("StorageReady", "False", "StorageUnavailable", ago=9)
    plan = scene.resolved().plan
    assert [(e.type, e.reason) for e in plan.events] == [
        ("Normal", "Started"),
        ("Normal", "Resolved"),
    ]
    ready = plan.status.condition("StorageReady")
    assert ready is not None
    assert (ready.status, ready.message) == ("True", "the store answers")


def test_that_a_store_answers_at_first_is_no_news() -> None:
    assert [e.reason for e in a_run().waiting().resolved().plan.events] == ["Started"]


# ---------------------------------------------------------------------------- holding


def test_what_survives_is_uploaded_before_the_next_attempt() -> None:
    scene = a_run(replicas=3, max_failures=1, flush_timeout=seconds(30)).running()
    scene = scene.staged_by_all(10).staged_by_all(20).with_exit(1)
    scene = scene.after(scene.plan, passed=12)
    hold = scene.hold(0)
    assert (hold.attempt, hold.flush, hold.flush_seconds) == (2, (10, 20), 18.0)
    assert [step.step for step in scene.answer(2).steps] == [10, 20]
    assert scene.after(scene.plan, passed=40).hold(0).flush_seconds == 0.0


def test_an_attempt_that_ended_without_staged_steps_has_nothing_to_flush() -> None:
    scene = a_run(max_failures=1).running().with_exit(1)
    scene = scene.after(scene.plan)
    assert (scene.hold(0).flush, scene.answer(0).steps) == ((), ())


def test_the_list_of_steps_to_flush_is_bounded() -> None:
    scene = a_run(replicas=1, max_failures=1).running()
    for step in range(100):
        scene = scene.staged(0, step, uploaded=True)
    ending = scene.with_exit(0).plan.status.ending
    assert ending is not None
    assert ending.flush == tuple(range(36, 100))


def test_agents_ask_again_within_a_third_of_the_heartbeat_timeout() -> None:
    assert a_run(heartbeat_timeout=seconds(6)).waiting().answer(0).poll == 2.0
    assert a_run(heartbeat_timeout=seconds(600)).waiting().answer(0).poll == 10.0


# ---------------------------------------------------------------------------- deadline


def test_the_deadline_ends_a_run_that_is_being_gathered() -> None:
    scene = a_run(active_deadline=seconds(3599)).waiting()
    assert (scene.plan.reason, scene.plan.status.phase) == ("DeadlineExceeded", "Failed")
    longer = "apply the run with a longer deadline to continue"
    assert scene.plan.message == f"spec.activeDeadline (3599 s) is over: {longer}"
    assert scene.running().committed(0, 30).plan.message == (
        f"spec.activeDeadline (3599 s) is over; committed checkpoints are kept: {longer}"
    )


def test_the_deadline_ends_a_run_that_is_running() -> None:
    assert a_run(active_deadline=seconds(3599)).running().plan.reason == "DeadlineExceeded"


def test_until_the_deadline_the_run_goes_on() -> None:
    assert a_run(active_deadline=seconds(3600)).running().plan.reason == "Running"


def test_an_incident_that_is_open_at_the_deadline_is_charged() -> None:
    scene = a_run(active_deadline=seconds(10), max_failures=3).running().ended(an_incident())
    status = scene.plan.status
    assert scene.plan.reason == "DeadlineExceeded"
    assert (status.failures.counted, status.incident) == (1, None)


def test_a_start_after_an_incident_without_a_record_still_counts_as_a_restart() -> None:
    scene = a_run(max_failures=3).with_status(attempt=1).waiting()
    scene = scene.ended(an_incident(Cause.START_FAILED)).resolved()
    assert scene.plan.status.restarts == 1


def test_an_agent_that_was_recreated_gets_the_current_hold() -> None:
    scene = a_run(replicas=1, max_failures=1).running().ended()
    scene = scene.with_worker(0, agent=an_agent(agent="new"))
    assert scene.hold(0).attempt == 2
    assert scene.plan.reason == "Resolving"


def test_the_resume_point_travels_in_the_start_order() -> None:
    scene = a_run().waiting().resolved((1, 30))
    scene = scene.after(scene.plan).with_all(attempt=1, phase="Running")
    order = scene.answer(1).order
    assert order.kind == "Start"
    assert order.resume == CheckpointId(attempt=1, step=30)


def test_agents_are_told_which_ranks_were_lost_and_not_preempted() -> None:
    incidents = (
        an_incident(attempt=1, slot=1, rank=1),
        an_incident(Cause.NODE_LOST, attempt=2, slot=0),
        an_incident(Cause.PREEMPTED, attempt=2, slot=1),
        an_incident(attempt=3, slot=1, collateral=True),
        an_incident(Cause.STORAGE_ERROR, attempt=3, slot=None),
    )
    scene = a_run().running(attempt=4).with_status(incidents=incidents)
    assert [(it.attempt, it.rank) for it in scene.answer(0).lost] == [(1, 1), (2, 0)]


# ---------------------------------------------------------------------------- what was there before


def test_a_run_that_resumes_what_another_one_left_says_so() -> None:
    scene = a_run().waiting().resolved(outcome="Behind", highest_attempt=7)
    scene = scene.after().resolved((7, 40))
    assert [(e.type, e.reason, e.message) for e in scene.plan.events] == [
        ("Normal", "Started", "attempt 8 starts from step 40 of attempt 7 with 2 workers"),
        (
            "Normal",
            "ResumedExisting",
            "resumes from step 40 of attempt 7, which an earlier TrainRun of this name left in "
            "s3://bucket/run. To train from scratch, set storage.onExisting: StartFresh",
        ),
    ]


def test_a_run_that_starts_fresh_says_where_and_what_stays() -> None:
    scene = a_run(on_existing="StartFresh").waiting().with_all(phase="Idle")
    assert scene.answer(0).generation == 0
    scene = scene.resolved(generation=3)
    assert [(e.type, e.reason, e.message) for e in scene.plan.events] == [
        ("Normal", "Started", "attempt 1 starts from scratch with 2 workers"),
        (
            "Normal",
            "StartedFresh",
            "generation 3 begins from scratch in s3://bucket/run/generation-000003; what was saved "
            "before stays in s3://bucket/run/generation-000002",
        ),
    ]
    assert scene.plan.status.storage_generation == 3


def test_a_run_that_finds_nothing_in_the_newest_generation_says_that_older_ones_stay() -> None:
    """Whoever began it was abandoned before its first checkpoint."""
    scene = a_run(on_existing="Resume").waiting().with_all(phase="Idle").resolved(generation=2)
    assert [(e.type, e.reason, e.message) for e in scene.plan.events] == [
        ("Normal", "Started", "attempt 1 starts from scratch with 2 workers"),
        (
            "Warning",
            "NothingToResume",
            "generation 2, the newest, has no checkpoint in s3://bucket/run/generation-000002, so "
            "the run begins from scratch there. What was saved before stays in s3://bucket/run and "
            "is not resumed; checkpoint.initialFrom takes weights from there",
        ),
    ]


def test_all_workers_are_told_the_generation_from_the_start_on() -> None:
    scene = a_run(max_failures=1, on_existing="StartFresh").waiting()
    scene = scene.with_all(phase="Idle").resolved(generation=2)
    running = scene.after(scene.plan).with_all(attempt=1, phase="Running")
    assert {running.answer(slot).generation for slot in (0, 1)} == {2}
    ended = running.ended(an_incident())
    assert {ended.answer(slot).generation for slot in (0, 1)} == {2}
    over = ended.with_config(suspend=True)
    over = over.after(over.plan)
    assert {answer.generation for answer in over.plan.answers.values()} == {2}


def test_the_address_of_a_checkpoint_names_its_generation() -> None:
    scene = a_run().running().with_status(storage_generation=2)
    commit = Committed(id=CheckpointId(attempt=1, step=10))
    shown = scene.with_all(committed=commit).plan.status.checkpoint
    assert shown is not None
    assert shown.uri == ("s3://bucket/run/generation-000002/checkpoints/step-000000010-attempt-1")


def test_a_run_that_starts_fresh_in_an_empty_folder_has_nothing_to_tell() -> None:
    scene = a_run(on_existing="StartFresh").waiting().resolved()
    assert [e.reason for e in scene.plan.events] == ["Started"]


def test_a_run_that_goes_on_in_its_generation_does_not_tell_of_it_again() -> None:
    scene = a_run(on_existing="StartFresh").with_status(attempt=1, storage_generation=2).waiting()
    scene = scene.with_all(phase="Idle").resolved(generation=2)
    assert [e.reason for e in scene.plan.events] == ["Started"]


def test_no_checkpoint_of_another_generation_is_resumed_from() -> None:
    scene = a_run().with_status(attempt=1, storage_generation=2).waiting().resolved((1, 30))
    assert scene.plan.reason == "StorageMisconfigured"
    ready = scene.plan.status.condition("StorageReady")
    assert ready is not None
    assert "has read generation 1 of the run's folder, but the run is in generation 2" in (
        ready.message
    )
    assert scene.plan.status.start_record is None


def test_an_edit_to_start_fresh_begins_nothing_in_a_run_that_has_begun() -> None:
    scene = a_run(on_existing="StartFresh").with_status(attempt=1, storage_generation=1).waiting()
    request = scene.plan.answers["run-0-1"].order.resolve
    assert request is not None
    assert request.on_existing == "Resume"


def test_a_run_that_resumes_its_own_work_does_not_wonder() -> None:
    own = a_run(max_failures=3).running().ended(an_incident()).resolved((1, 30))
    assert [e.reason for e in own.plan.events] == ["Started"]
    nothing_there = a_run().waiting().resolved(outcome="Behind", highest_attempt=7)
    assert [e.reason for e in nothing_there.after().resolved().plan.events] == ["Started"]


def test_one_worker_is_one_worker() -> None:
    assert a_new_run(replicas=1).plan.message == "gathering 1 worker"
    assert a_run(replicas=1).waiting().resolved().plan.message.endswith("with 1 worker")


def test_an_agent_with_a_short_name_is_known_again() -> None:
    scene = a_run(replicas=1).waiting().with_agent(0, agent="ab").resolved()
    running = scene.after().with_all(attempt=1, phase="Running")
    assert running.plan.reason == "Running"
