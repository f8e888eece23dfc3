"""Budgets: what is charged where, when a run fails, and how long it waits before a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_config, a_run, an_incident, seconds
from trainrun_operator.api.run.status import TrainRunStatus, json_size
from trainrun_operator.api.run.status_parts import Cause, Failures
from trainrun_operator.core.run.causes import CAUSES
from trainrun_operator.core.run.incidents import ledger


def with_incidents(scene: WorkerObservation, causes: list[Cause]) -> WorkerObservation:
    """Live through these incidents, one attempt without a step each, until a verdict."""
    for attempt, cause in enumerate(causes, start=1):
        if scene.status.finished:
            break
        scene = scene.running(attempt).with_all(steps=(None,)).lost(0, cause, f"loss {attempt}")
        scene = scene.after(scene.plan)
        scene = scene.waiting().resolved().without_backoff()
        scene = scene.after(scene.plan)
    return scene


FAILURE, PREEMPTION = Cause.APP_ERROR, Cause.PREEMPTED


@pytest.mark.parametrize(
    ("max_failures", "max_preemptions", "causes", "verdict", "counted", "preemptions"),
    [
        (0, None, [FAILURE], "MaxFailuresExceeded", 1, 0),
        (0, None, [PREEMPTION], "MaxFailuresExceeded", 1, 0),
        (1, None, [FAILURE], None, 1, 0),
        (1, None, [FAILURE, PREEMPTION], "MaxFailuresExceeded", 2, 0),
        (3, None, [FAILURE, PREEMPTION, FAILURE], None, 3, 0),
        (3, None, [FAILURE] * 4, "MaxFailuresExceeded", 4, 0),
        (-1, None, [FAILURE, PREEMPTION] * 6, None, 12, 0),
        (0, 0, [PREEMPTION], "MaxPreemptionsExceeded", 0, 1),
        (0, 0, [FAILURE], "MaxFailuresExceeded", 1, 0),
        (0, 2, [PREEMPTION] * 2, None, 0, 2),
        (0, 2, [PREEMPTION] * 3, "MaxPreemptionsExceeded", 0, 3),
        (0, 2, [PREEMPTION, FAILURE], "MaxFailuresExceeded", 1, 1),
        (2, 0, [FAILURE, FAILURE, PREEMPTION], "MaxPreemptionsExceeded", 2, 1),
        (2, 2, [FAILURE, PREEMPTION] * 2, None, 2, 2),
        (0, -1, [PREEMPTION] * 12, None, 0, 12),
        (0, -1, [Cause.NODE_LOST] * 12, None, 0, 12),
        (-1, -1, [FAILURE, PREEMPTION] * 6, None, 6, 6),
        (-1, 0, [FAILURE, PREEMPTION], "MaxPreemptionsExceeded", 1, 1),
        (0, None, [Cause.INTERRUPTED] * 12, None, 0, 0),
    ],
)
def test_the_budgets(
    *,
    max_failures: int,
    max_preemptions: int | None,
    causes: list[Cause],
    verdict: str | None,
    counted: int,
    preemptions: int,
) -> None:
    config = a_run(max_failures=max_failures, max_preemptions=max_preemptions)
    status = with_incidents(config, causes).status
    failed = status.condition("Failed")
    assert (failed.reason if failed else None) == verdict
    assert (status.failures.counted, status.failures.preemptions) == (counted, preemptions)
    assert status.incident is None


def test_the_message_of_an_exceeded_budget_says_what_happened_and_what_to_do() -> None:
    failed = with_incidents(a_run(max_failures=1), [FAILURE] * 2).status.condition("Failed")
    assert failed is not None
    assert failed.message == (
        "loss 2 (AppError); spec.failurePolicy.maxFailures is 1 and 1 was used before: read the "
        "last lines of the rank named; the run resumes once the limit is raised"
    )


def test_committed_checkpoints_are_promised_only_to_a_run_that_has_one() -> None:
    scene = with_incidents(a_run(max_failures=1), [FAILURE]).running(2)
    for saved in (scene.committed(0, 30), scene.running(2, resume=(30, 1))):
        ended = saved.ended(an_incident(attempt=2))
        failed = ended.plan.status.condition("Failed")
        assert failed is not None
        assert failed.message.endswith(
            "read the last lines of the rank named. Committed checkpoints are kept: the run "
            "resumes from them once the limit is raised"
        )


def test_the_message_of_exceeded_preemptions_names_their_own_budget() -> None:
    failed = with_incidents(a_run(max_preemptions=0), [PREEMPTION]).status.condition("Failed")
    assert failed is not None
    assert failed.message.startswith(
        "loss 1 (Preempted); spec.failurePolicy.maxPreemptions is 0 and 0 were used before: set "
        "failurePolicy.maxPreemptions: -1"
    )


@pytest.mark.parametrize("limit", [-1, 2])
def test_an_incident_that_fits_into_its_budget_makes_no_verdict(limit: int) -> None:
    assert ledger.judge(TrainRunStatus(), an_incident(), a_config(max_failures=limit)) is None


@pytest.mark.parametrize("cause", [Cause.RENDEZVOUS_FAILED, Cause.CHECKPOINT_DAMAGED])
def test_what_another_try_cures_is_free_three_times_in_a_row(cause: Cause) -> None:
    config, incident = a_config(), an_incident(cause)
    third = TrainRunStatus(fruitless=3, free_ends={cause: 2})
    assert ledger.judge(third, incident, config) is None
    assert ledger.settle(third, incident, config)[1][-1].counted is False
    fourth = TrainRunStatus(fruitless=4, free_ends={cause: 3})
    verdict = ledger.judge(fourth, incident, config)
    assert verdict is not None
    assert verdict.reason == "MaxFailuresExceeded"
    assert ledger.settle(fourth, incident, config)[0].counted == 1
    trained = replace(fourth, fruitless=0)
    assert ledger.judge(trained, incident, config) is None


def test_the_verdict_over_a_cause_that_is_no_longer_free_does_not_advise_to_do_nothing() -> None:
    cause = Cause.RENDEZVOUS_FAILED
    status = TrainRunStatus(fruitless=4, free_ends={cause: 3})
    verdict = ledger.judge(status, an_incident(cause, message="x"), a_config())
    assert verdict is not None
    assert verdict.message == (
        "x (RendezvousFailed); spec.failurePolicy.maxFailures is 0 and 0 were used before: "
        "check what else listens on slot 0's node, and whether the other workers reach it "
        "(NetworkPolicies must allow all ports between workers); each attempt uses another port"
    )


def test_the_verdict_over_a_worker_that_reads_wrongly_says_what_to_do() -> None:
    status = TrainRunStatus(fruitless=4, free_ends={Cause.MISREAD: 3})
    verdict = ledger.judge(status, an_incident(Cause.MISREAD, message="x"), a_config())
    assert verdict is not None
    assert verdict.message == (
        "x (Misread); spec.failurePolicy.maxFailures is 0 and 0 were used before: have memory and "
        "network of the node checked; a worker on another node replaces this one"
    )


def test_no_cause_that_may_end_a_run_advises_to_do_nothing() -> None:
    idle = {cause for cause, row in CAUSES.items() if row.advice.startswith("nothing")}
    assert idle == {Cause.INTERRUPTED}
    assert CAUSES[Cause.INTERRUPTED].charge == "none"


CLASH, DAMAGE = Cause.RENDEZVOUS_FAILED, Cause.CHECKPOINT_DAMAGED


@pytest.mark.parametrize(
    ("causes", "counted"),
    [
        ([CLASH] * 3, 0),
        ([CLASH] * 4, 1),
        ([CLASH] * 5, 2),
        ([PREEMPTION] * 3 + [CLASH] * 3, 0),
        ([CLASH, CLASH, PREEMPTION, CLASH, CLASH], 0),
        ([DAMAGE] * 3 + [CLASH] * 3, 0),
        ([CLASH, DAMAGE] * 3, 0),
        ([CLASH, DAMAGE] * 4, 2),
        ([CLASH, Cause.INTERRUPTED] * 4, 1),
        ([CLASH] * 3 + [FAILURE] + [CLASH] * 3, 1),
    ],
    ids=str,
)
def test_free_tries_count_ends_for_their_own_cause_in_a_row(
    causes: list[Cause], counted: int
) -> None:
    status = with_incidents(a_run(max_failures=-1, max_preemptions=-1), causes).status
    assert status.failures.counted == counted


def test_a_new_step_begins_the_row_of_free_tries_anew() -> None:
    scene = with_incidents(a_run(), [CLASH] * 3).running(4).with_all(steps=(50,))
    scene = scene.after(scene.lost(0, CLASH).plan)
    assert (scene.status.fruitless, scene.status.free_ends) == (0, {})


@pytest.mark.parametrize(
    ("cause", "fruitless", "left"),
    [
        (Cause.RENDEZVOUS_FAILED, 3, {"RendezvousFailed": 3, "Misread": 1}),
        (Cause.RENDEZVOUS_FAILED, 0, {}),
        (Cause.APP_ERROR, 3, {}),
        (Cause.INTERRUPTED, 3, {"RendezvousFailed": 2, "Misread": 1}),
    ],
)
def test_an_end_that_is_charged_begins_all_rows_of_free_ends_anew(
    cause: Cause, fruitless: int, left: dict[str, int]
) -> None:
    known = {"RendezvousFailed": 2, "Misread": 1}
    status = TrainRunStatus(fruitless=fruitless, free_ends=known)
    assert ledger.free_ends_after(status, an_incident(cause), a_config()) == left


def test_a_run_without_an_incident_does_not_go_on_because_a_limit_was_raised() -> None:
    assert not ledger.admits(TrainRunStatus(), "failures", a_config(max_failures=3))
    assert ledger.admits(TrainRunStatus(), "failures", a_config(max_failures=-1))


def test_the_budget_follows_an_edit_of_the_failure_policy_until_it_is_settled() -> None:
    incident = replace(an_incident(Cause.PREEMPTED), budget="preemptions")
    failures, settled = ledger.settle(TrainRunStatus(), incident, a_config(max_failures=1))
    assert (failures.counted, failures.preemptions) == (1, 0)
    assert settled[-1].budget == "failures"


def test_a_cause_of_a_newer_version_is_charged_like_an_unknown_one() -> None:
    incident = replace(an_incident(cause=Cause.APP_ERROR), cause="Melted")
    verdict = ledger.judge(TrainRunStatus(), incident, a_config())
    assert verdict is not None
    assert verdict.reason == "MaxFailuresExceeded"
    assert "look at the worker's output and its node" in verdict.message


def test_an_incident_is_counted_when_it_is_settled_and_shown_before() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    opened = scene.after(scene.plan)
    assert (opened.status.failures.counted, opened.status.failures.text) == (0, "1/3")
    assert opened.plan.status.failures.text == "1/3"
    started = opened.waiting().resolved().plan.status
    assert (started.failures.counted, started.failures.text) == (1, "1/3")
    assert started.incidents[-1].counted


def test_without_a_limit_the_text_says_so() -> None:
    scene = a_run(max_failures=-1).running().with_exit(0)
    assert scene.plan.status.failures == Failures(counted=0, limit=-1, text="1/no limit")


def test_the_incidents_kept_are_the_last_ten() -> None:
    status = with_incidents(a_run(max_failures=-1), [FAILURE] * 12).status
    assert [incident.attempt for incident in status.incidents] == list(range(3, 13))
    assert status.failures.counted == 12


def test_only_the_newest_two_incidents_keep_their_lines_and_long_messages() -> None:
    status = TrainRunStatus()
    for attempt in range(1, 5):
        incident = an_incident(attempt=attempt, message="m" * 900, last_lines=("line",) * 20)
        failures, incidents = ledger.settle(status, incident, a_config(max_failures=-1))
        status = replace(status, failures=failures, incidents=incidents)
    assert [len(i.last_lines) for i in status.incidents] == [0, 0, 20, 20]
    assert [len(i.message) for i in status.incidents] == [200, 200, 900, 900]
    assert status.incidents[0].message.endswith("m…")


def test_an_older_incident_keeps_the_class_of_its_exception_and_its_first_words() -> None:
    told = an_incident(message="x" * 500, exception=("ValueError", "Exception"), known_by="a text")
    status = TrainRunStatus(incidents=(told, an_incident(), an_incident()))
    _, (old, *_) = ledger.settle(status, an_incident(), a_config())
    assert (old.exception, old.known_by, old.last_lines) == (("ValueError",), "", ())
    assert old.message.endswith("x…")
    short = replace(told, message=old.message)
    status = TrainRunStatus(incidents=(short, an_incident(), an_incident()))
    assert ledger.settle(status, an_incident(), a_config())[1][0].message == old.message


def test_a_status_after_many_ugly_incidents_stays_small() -> None:
    scene = a_run(replicas=8, max_failures=-1)
    for attempt in range(1, 15):
        scene = scene.running(attempt)
        lines = tuple("x" * 400 for _ in range(20))
        scene = scene.with_exit(3, exception="ValueError: " + "y" * 5000, last_lines=lines)
        scene = scene.after(scene.plan)
        scene = scene.waiting().resolved()
        scene = scene.after(scene.plan)
    scene = scene.running(15).with_exit(0, exception="E" * 5000, last_lines=("x" * 400,) * 20)
    size = json_size(scene.plan.status)
    assert size < 20 * 1024


@pytest.mark.parametrize(
    ("length", "kept"), [(200, "y" * 200), (201, "y" * 199 + "…")], ids=["as long", "longer"]
)
def test_older_incidents_keep_two_hundred_characters_of_their_message(
    length: int, kept: str
) -> None:
    old = an_incident(message="y" * length)
    status = TrainRunStatus(incidents=(old, an_incident(attempt=2)))
    _, incidents = ledger.settle(status, an_incident(attempt=3, budget="failures"), a_config())
    assert incidents[0].message == kept


@pytest.mark.parametrize(
    ("fruitless", "wait"),
    [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (7, 32), (8, 60), (99, 60)],
)
def test_the_backoff_is_nothing_at_first_then_doubles_up_to_its_maximum(
    fruitless: int, wait: float
) -> None:
    found = ledger.backoff(a_config(), fruitless=fruitless, attempt=1).total_seconds()
    assert wait <= found <= wait * 1.2


def test_no_backoff_takes_longer_than_the_longest_and_some_take_nearly_as_long() -> None:
    found = [ledger.backoff(a_config(), fruitless=99, attempt=n) for n in range(100)]
    longest = ledger.longest_backoff(a_config())
    assert 0.95 * longest < max(found) <= longest


def test_a_backoff_of_nothing_stays_nothing() -> None:
    config = a_config(backoff_initial=seconds(0))
    assert ledger.backoff(config, fruitless=9, attempt=1) == seconds(0)


def test_every_operator_waits_equally_long_and_different_runs_do_not() -> None:
    first = ledger.backoff(a_config(), fruitless=4, attempt=1)
    assert ledger.backoff(a_config(), fruitless=4, attempt=1) == first
    assert ledger.backoff(a_config(uid="other"), fruitless=4, attempt=1) != first
    assert ledger.backoff(a_config(), fruitless=4, attempt=2) != first


def test_attempts_without_a_new_step_are_fruitless_and_one_with_a_step_ends_the_row() -> None:
    scene = a_run(max_failures=-1).running(2, resume=(1, 10))
    scene = scene.with_status(fruitless=2).with_exit(0)
    assert scene.plan.status.fruitless == 3
    assert scene.with_agent(1, steps=(11,)).plan.status.fruitless == 0


def test_a_first_attempt_that_reports_step_0_has_made_progress() -> None:
    scene = a_run(max_failures=-1).running().with_all(steps=(None,)).with_exit(0)
    assert scene.plan.status.fruitless == 1
    assert scene.with_agent(1, steps=(0,)).plan.status.fruitless == 0


def test_progress_of_workers_that_are_gone_counts() -> None:
    scene = a_run(replicas=1, max_failures=-1).running(2, resume=(1, 10)).with_agent(0, steps=(30,))
    scene = scene.after(scene.plan, passed=5).without(0)
    status = scene.plan.status
    assert status.fruitless == 0
    scene = scene.after(scene.plan).waiting().resolved((1, 12))
    assert scene.plan.status.incidents[-1].lost_steps == 18


START_FAILURE = Cause.START_FAILED


@pytest.mark.parametrize(
    ("max_start_failures", "causes", "verdict", "counted", "start_failures"),
    [
        (None, [START_FAILURE] * 2, "MaxFailuresExceeded", 2, 0),
        (0, [START_FAILURE], "MaxStartFailuresExceeded", 0, 1),
        (2, [START_FAILURE] * 2, None, 0, 2),
        (2, [START_FAILURE] * 3, "MaxStartFailuresExceeded", 0, 3),
        (2, [START_FAILURE, FAILURE, START_FAILURE], None, 1, 2),
        (2, [FAILURE, FAILURE], "MaxFailuresExceeded", 2, 0),
        (-1, [START_FAILURE] * 9 + [FAILURE], None, 1, 9),
        (0, [PREEMPTION, FAILURE], "MaxFailuresExceeded", 2, 0),
    ],
)
def test_failed_starts_have_a_budget_of_their_own_where_the_spec_says_so(
    *,
    max_start_failures: int | None,
    causes: list[Cause],
    verdict: str | None,
    counted: int,
    start_failures: int,
) -> None:
    scene = with_incidents(a_run(max_failures=1, max_start_failures=max_start_failures), causes)
    failed, failures = scene.status.condition("Failed"), scene.status.failures
    assert (failed.reason if failed else None) == verdict
    assert (failures.counted, failures.start_failures) == (counted, start_failures)


def test_the_message_of_exceeded_start_failures_names_their_own_budget() -> None:
    scene = with_incidents(a_run(max_start_failures=1), [START_FAILURE] * 2)
    failed = scene.status.condition("Failed")
    assert failed is not None
    assert failed.message == (
        "loss 2 (StartFailed); spec.failurePolicy.maxStartFailures is 1 and 1 was used before: "
        "do what the message says, or check command, image and mounts in workers.template; "
        "the run resumes once the limit is raised"
    )
