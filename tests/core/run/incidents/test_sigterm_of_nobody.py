"""SIGTERM that nothing has announced: the end of the pod tells who sent it."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, an_agent, seconds
from trainrun.contract.agent_state import Notice
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import DeleteWorker, WorkerLoss

UNKNOWN = "worker run-1-1 got SIGTERM from an unknown sender"
OWN = "worker run-1-1 was evicted by node n1: Container worker exceeded its limit"


def told(**fields: object) -> WorkerObservation:
    """Worker 1 got SIGTERM, and the attempt is given up at once."""
    scene = a_run(on_notice="Stop", **({"max_failures": 0, "max_preemptions": -1} | fields))
    scene = scene.running().got_sigterm(1)
    return scene.after(scene.plan)


def ended(scene: WorkerObservation, cause: Cause, message: str) -> WorkerObservation:
    """The end of its pod says why."""
    loss = WorkerLoss(cause=cause, message=message)
    return scene.with_worker(1, phase="Ended", exit_code=143, loss=loss)


def test_a_sigterm_that_nobody_announced_is_no_preemption() -> None:
    scene = a_run(max_failures=0, max_preemptions=-1).running().got_sigterm(1)
    assert scene.plan.message == (
        "asking the training for a checkpoint: worker of slot 1 got SIGTERM"
    )
    plan = scene.after(scene.plan).plan
    assert plan.reason == "Terminated"
    assert plan.message.startswith(f"attempt 1 ended: Terminated: {UNKNOWN}; the script never")
    incident = plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.budget) == ("Terminated", "failures")
    assert incident.known_by == "the signal that its agent received"


def test_no_verdict_before_the_end_of_the_pod_tells_who_sent_it() -> None:
    scene = told()
    assert scene.plan.reason == "Attributing"
    assert scene.plan.message.endswith("waiting for its pod to end, which shows who sent it")
    own = ended(scene, Cause.TERMINATED, OWN)
    assert own.plan.reason == "MaxFailuresExceeded"
    assert own.plan.message.startswith(f"{OWN} (Terminated); spec.failurePolicy.maxFailures is 0")
    (incident,) = own.plan.status.incidents
    assert (incident.message, incident.budget, incident.counted) == (OWN, "failures", True)


@pytest.mark.case(
    "nodes",
    "A node shuts down in order or evicts softly: the reason follows SIGTERM",
    counted="maxPreemptions",
)
@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (Cause.PREEMPTED, "node n1 shuts down"),
        (Cause.EVICTED, "worker run-1-1 was evicted by node n1: low on memory"),
        (Cause.NODE_LOST, "node n1 is gone"),
    ],
)
def test_a_node_that_shuts_down_says_so_at_the_end_of_the_pod(cause: Cause, message: str) -> None:
    scene = told()
    scene = ended(scene.after(passed=20), cause, message)
    assert scene.plan.reason == cause
    scene = scene.after(scene.plan)
    assert scene.plan.reason == "Gathering"
    incident = scene.status.incident
    assert incident is not None
    assert (incident.message, incident.budget) == (message, "preemptions")
    assert incident.slot == 1


def test_a_silent_worker_is_not_deleted_before_its_pod_could_tell_who_sent_it() -> None:
    scene = told(max_failures=3).silent(1, 40)
    assert [a for a in scene.plan.actions if isinstance(a, DeleteWorker)] == []
    late = scene.after(passed=120).silent(1, 160)
    while late.plan.transition:
        late = late.after(late.plan)
    (deletion,) = [a for a in late.plan.actions if isinstance(a, DeleteWorker)]
    assert (deletion.name, deletion.reason) == ("run-1-1", "its agent does not answer")


def test_a_worker_that_is_deleted_after_all_was_preempted() -> None:
    """The news of the deletion came after that of the signal; or its object is gone."""
    scene = told()
    late = scene.with_worker(1, phase="Ended", notice=Notice(reason="pod was deleted", age=3.0))
    assert late.plan.reason == "Preempted"
    assert scene.without(1).plan.reason == "Preempted"


def test_a_deletion_explains_a_sigterm_although_a_rank_died_of_its_peers_meanwhile() -> None:
    """It was charged as Terminated: the rank's exception hid who had taken its worker away."""
    scene = told().with_exit(1, code=1, exception="RuntimeError: Connection reset by peer")
    late = scene.with_worker(1, phase="Ended", notice=Notice(reason="deleted", age=3.0))
    assert late.plan.message == (
        "attempt 1 ended for another reason: Preempted: worker run-1-1 was taken away after a "
        "notice (deleted)"
    )


def test_the_gang_starts_again_once_the_end_of_the_pod_is_known() -> None:
    scene = told(max_failures=3)
    for slot in (0, 1):
        scene = scene.with_agent(slot, phase="Idle", held=scene.held)
    scene, new = scene.without_backoff(), a_worker(1, 2, agent=an_agent(1, 2, held=scene.held))
    waits = scene.plus(new)
    assert waits.plan.reason == "Attributing"
    assert waits.plan.message.endswith("is not certain yet; waiting for slot 1")
    assert not [a for a in waits.plan.actions if isinstance(a, DeleteWorker)]
    known = ended(scene, Cause.TERMINATED, OWN).plus(new)
    assert known.after(known.plan).plan.reason == "Resolving"


def test_an_end_that_is_never_known_is_counted_once_as_what_was_seen() -> None:
    """Its agent answers for its grace at most, then its node may explain it, and then nobody."""
    scene = told(grace=seconds(40)).after(passed=75)
    assert scene.plan.reason == "Attributing"
    silent = scene.silent(1, 75)
    assert silent.plan.reason == "MaxFailuresExceeded"
    assert silent.plan.message.startswith(f"{UNKNOWN}; checkpoint.onNotice is Stop")
    assert silent.plan.status.failures.counted == 1
    dark = silent.with_worker(1, suspect_node="NotReady")
    assert dark.plan.reason == "NodeLost"
    assert scene.after(passed=24.9).plan.reason == "Attributing"
    assert scene.after(passed=25).plan.reason == "MaxFailuresExceeded"


def test_the_next_operator_learns_from_the_end_of_the_pod_what_the_one_before_could_not() -> None:
    scene = ended(told(max_failures=1).listening(1).unheard(1), Cause.TERMINATED, OWN)
    assert scene.plan.message == f"attempt 1 ended for another reason: Terminated: {OWN}"
    scene = scene.after(scene.plan)
    assert not scene.after(scene.plan).plan.transition


def test_of_two_that_leave_the_one_that_is_known_to_be_taken_away_explains_it() -> None:
    scene = a_run(max_preemptions=-1, on_notice="Stop").running().got_sigterm(0).noticed(1)
    assert scene.plan.message.startswith(
        "attempt 1 ended: Preempted: worker run-1-1 is being taken away (spot)"
    )


def test_a_process_that_was_killed_after_the_signal_waits_for_the_end_of_the_pod_too() -> None:
    scene = a_run().running().got_sigterm(1).with_exit(1, signal=9, age=1.0)
    assert scene.plan.message.startswith("attempt 1 ended: Terminated: rank 1 was killed by")
    assert scene.after(scene.plan).plan.reason == "Attributing"


def test_a_worker_that_ends_where_no_cluster_tells_why_was_told_to_end() -> None:
    scene = a_run().running().got_sigterm(1).with_worker(1, phase="Ended", exit_code=143)
    assert scene.plan.message == f"attempt 1 ended: Terminated: {UNKNOWN}"
    assert scene.after(scene.plan).plan.reason == "MaxFailuresExceeded"


def test_a_worker_that_left_at_a_sigterm_of_which_nobody_heard_was_told_to_end() -> None:
    """It was Unknown, which noProgressLimit does not count, and stayed so when it was deleted."""
    scene = a_run(max_failures=3).running().with_worker(1, phase="Ended", exit_code=143)
    assert scene.plan.message == f"attempt 1 ended: Terminated: {UNKNOWN}"
    scene = scene.after(scene.plan)
    assert scene.status.incident is not None
    assert scene.status.incident.budget == "failures"
    late = scene.with_worker(1, notice=Notice(reason="pod was deleted", age=3.0))
    assert late.plan.reason == "Preempted"


def test_a_sigterm_that_is_heard_of_after_the_end_of_its_worker_explains_that_end() -> None:
    """Its last heartbeat was on its way when it was killed, and tells the age of that moment."""
    scene = a_run(max_failures=3).running().with_worker(1, phase="Ended", exit_code=137)
    assert scene.plan.reason == "Unknown"
    scene = scene.after(scene.plan).after(passed=1)
    scene = scene.silent(1, 0).with_agent(1, notice=Notice(reason="SIGTERM"))
    assert scene.plan.message.startswith(
        f"attempt 1 ended for another reason: Terminated: {UNKNOWN}"
    )


def test_a_sigterm_after_a_failure_or_long_after_a_silence_does_not_explain_them() -> None:
    failed = a_run(max_failures=3).running().with_exit(1)
    failed = failed.after(failed.plan, passed=5).listening(1).unheard(1)
    assert not failed.with_worker(1, phase="Ended", exit_code=143).plan.transition
    silent = a_run(replicas=3, max_failures=3).running().silent(1, 31)
    silent = silent.after(silent.plan, passed=61).silent(1, 0)
    silent = silent.with_agent(1, notice=Notice(reason="SIGTERM"))
    assert not silent.with_worker(1, phase="Ended").plan.transition


def test_who_deletes_a_worker_after_its_end_has_not_ended_it() -> None:
    scene = a_run(max_failures=3).running().with_worker(1, phase="Ended", exit_code=137)
    scene = scene.after(scene.plan).after(passed=1)
    assert not scene.without(1).plan.transition
    known = ended(told(max_failures=3), Cause.TERMINATED, OWN)
    known = known.after(known.plan)
    assert not known.without(1).plan.transition


@pytest.mark.case(
    "nodes",
    "A pod ends itself: a probe, a deadline, a limit, SIGTERM from inside",
    counted="maxFailures",
)
def test_a_pod_that_ends_itself_again_and_again_does_not_go_on_for_ever() -> None:
    """A liveness probe that fails was a preemption each time: with maxPreemptions -1 for ever."""
    scene = a_run(max_failures=-1, max_preemptions=-1, no_progress_limit=2, on_notice="Stop")
    for _ in range(3):
        scene = scene.running(max(scene.status.attempt, 1)).with_all(steps=(10,)).got_sigterm(1)
        scene = ended(scene.after(scene.plan), Cause.TERMINATED, OWN)
        scene = scene.after(scene.plan)
        if not scene.plan.transition:
            scene = scene.waiting().resolved().without_backoff()
        scene = scene.after(scene.plan)
    assert scene.plan.reason == "NoProgress"


def test_a_suspension_waits_until_it_is_known_who_sent_it() -> None:
    scene = told(max_failures=3).with_config(suspend=True)
    for slot in (0, 1):
        scene = scene.with_agent(slot, phase="Idle", held=scene.held)
    assert (scene.plan.reason, scene.plan.transition) == ("Suspending", False)
    assert scene.plan.message.endswith("worker that got SIGTERM to end, which shows who sent it")
    known = ended(scene, Cause.PREEMPTED, "node n1 shuts down")
    known = known.after(known.plan)
    assert known.plan.reason == "Suspended"
    assert known.plan.status.failures.preemptions == 1


def test_neither_do_failed_starts_hide_who_sent_it() -> None:
    """They were an incident of the next attempt, and what ended this one stayed `Terminated`."""
    scene = told(max_failures=3)
    for slot in (0, 1):
        scene = scene.with_agent(slot, phase="Idle", held=scene.held)
    ends = {"phase": "Ended", "exit_code": 1, "age": seconds(0)}
    dead = [a_worker(1, number, **ends) for number in (2, 3, 4)]
    waits = scene.plus(*dead)
    assert (waits.plan.reason, waits.plan.transition) == ("Attributing", False)
    assert waits.plan.message.endswith("worker that got SIGTERM to end, which shows who sent it")
    known = ended(scene, Cause.PREEMPTED, "node n1 shuts down").plus(*dead)
    known = known.after(known.plan)
    assert known.plan.reason == "StartFailed"
    (incident,) = known.plan.status.incidents
    assert (incident.cause, incident.budget) == ("Preempted", "preemptions")


def test_neither_does_an_attempt_of_which_only_an_agent_knows() -> None:
    scene = told(max_failures=3).with_agent(0, attempt=4)
    assert scene.plan.reason == "Attributing"
    known = ended(scene, Cause.PREEMPTED, "node n1 shuts down")
    known = known.after(known.plan)
    assert known.plan.reason == "AttemptSkipped"
    assert known.plan.status.incident is not None
    assert known.plan.status.incident.cause == "Preempted"


def test_once_the_numbering_has_gone_on_nothing_explains_the_attempt_any_more() -> None:
    scene = told(max_failures=3).with_agent(0, attempt=4).after(passed=101)
    assert scene.plan.reason == "AttemptSkipped"
    scene = scene.after(scene.plan)
    for later in (scene.with_worker(1, notice=Notice(reason="deleted")), scene.without(1)):
        incident = later.plan.status.incident
        assert incident is not None
        assert incident.cause == "Terminated"
    assert scene.without(1).with_config(suspend=True).plan.reason == "Suspended"
