from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.builders import a_config, a_run
from trainrun_operator.api.run.output import OutputSteps
from trainrun_operator.api.run.status import PhaseName, TrainRunStatus
from trainrun_operator.api.run.status_parts import (
    CheckpointStatus,
    Ending,
    Failures,
    Incident,
    Learned,
    PostedProgress,
    Progress,
)
from trainrun_operator.cluster.metrics import WORST, Metrics
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.incidents.hangs import OwedStep

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def an_incident(**fields: Any) -> Incident:
    made = Incident(attempt=1, cause="AppError", counted=True, time=NOW)
    return replace(made, **fields)


def text_of(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def values_of(metrics: Metrics, name: str) -> dict[str, float]:
    """By run."""
    return {
        sample.labels["run"]: sample.value
        for family in text_string_to_metric_families(text_of(metrics))
        for sample in family.samples
        if sample.name == name
    }


def metrics_of(
    *runs: tuple[str, TrainRunStatus, RunConfig], owed: float | None = None, usual: float = 0.0
) -> Metrics:
    metrics = Metrics()
    told = None if owed is None else OwedStep(owed, usual)
    metrics.follow(lambda: [(*run, lambda: told) for run in runs])
    return metrics


def test_an_incident_is_counted_once_by_cause_however_often_the_status_is_written() -> None:
    metrics = metrics_of()
    before, after = TrainRunStatus(), TrainRunStatus(incidents=(an_incident(),))
    metrics.wrote(before, after)
    metrics.wrote(after, after)
    assert 'trainrun_incidents_total{cause="AppError",counted="true"} 1.0' in text_of(metrics)


def test_the_stages_of_a_recovery_are_observed_when_they_become_known() -> None:
    metrics = metrics_of()
    settled = TrainRunStatus(
        incidents=(an_incident(detect_seconds=0.01, restart_seconds=0.4, lost_steps=7),)
    )
    recovered = replace(
        settled.incidents[0], recovery_seconds=2.0, stages={"detect": 0.01, "import": 1.5}
    )
    stepped = TrainRunStatus(incidents=(recovered,))
    metrics.wrote(TrainRunStatus(), settled)
    metrics.wrote(settled, stepped)
    metrics.wrote(stepped, stepped)
    text = text_of(metrics)
    assert 'trainrun_recovery_seconds_sum{stage="detect"} 0.01' in text
    assert 'trainrun_recovery_seconds_sum{stage="restart"} 0.4' in text
    assert 'trainrun_recovery_seconds_sum{stage="first_step"} 2.0' in text
    assert 'trainrun_recovery_stage_seconds_sum{stage="import"} 1.5' in text
    assert 'trainrun_recovery_stage_seconds_count{stage="detect"} 1.0' in text
    assert "trainrun_lost_steps_total 7.0" in text


def test_a_restart_is_counted_under_what_it_was_for() -> None:
    metrics = metrics_of()
    ending = Ending(attempt=1, kind="Incident", time=NOW)
    before = TrainRunStatus(ending=ending)
    metrics.wrote(before, TrainRunStatus(restarts=1, incidents=(an_incident(cause="NodeLost"),)))
    change = TrainRunStatus(restarts=1, ending=Ending(attempt=2, kind="Suspend", time=NOW))
    metrics.wrote(change, TrainRunStatus(restarts=2))
    text = text_of(metrics)
    assert 'trainrun_restarts_total{cause="NodeLost"} 1.0' in text
    assert 'trainrun_restarts_total{cause="Suspend"} 1.0' in text


def test_runs_are_told_by_phase_and_vanish_when_they_are_deleted() -> None:
    runs = [("team/a", TrainRunStatus(phase="Running"), a_config(), lambda: None)]
    metrics = Metrics()
    metrics.follow(lambda: runs)
    assert 'trainrun_runs{phase="Running"} 1.0' in text_of(metrics)
    runs.clear()
    assert 'phase="Running"' not in text_of(metrics)


def test_the_budget_of_a_run_stands_beside_what_is_left_of_it() -> None:
    metrics = metrics_of(
        ("team/a", TrainRunStatus(failures=Failures(counted=1)), a_config(max_failures=3)),
        ("team/endless", TrainRunStatus(), a_config(max_failures=-1)),
        ("team/none", TrainRunStatus(), a_config(max_failures=0)),
    )
    assert values_of(metrics, "trainrun_failures_remaining") == {"team/a": 2}
    assert values_of(metrics, "trainrun_failures_limit") == {"team/a": 3}


def test_a_step_is_as_old_as_the_newest_sign_of_one_and_its_limit_is_that_of_the_spec() -> None:
    record = a_run().running(1).status.start_record
    assert record is not None
    begun = replace(record, time=NOW - timedelta(hours=1))
    stepped = TrainRunStatus(
        phase="Running", start_record=begun, progress=Progress(step=7, time=NOW)
    )
    again = replace(stepped, start_record=replace(record, time=NOW + timedelta(hours=1)))
    slow = replace(stepped, learned=Learned(slowest=600))
    given = replace(
        a_config(),
        progress_timeout=timedelta(minutes=2),
        first_step_timeout=timedelta(minutes=40),
    )
    metrics = metrics_of(
        ("team/given", stepped, given),
        ("team/usual", stepped, a_config()),
        ("team/slow", slow, a_config()),
        ("team/again", again, given),
        ("team/first", replace(stepped, progress=None), a_config()),
    )
    since = NOW.timestamp()
    assert values_of(metrics, "trainrun_step_time_seconds") == {
        "team/given": since,
        "team/usual": since,
        "team/slow": since,
        "team/again": since + 3600,
    }
    assert values_of(metrics, "trainrun_step_timeout_seconds") == {
        "team/given": 120,
        "team/usual": 900,
        "team/slow": 1800,
        "team/again": 2400,
    }


def test_a_run_in_a_long_section_owes_no_step_but_stays_among_those_that_are_named() -> None:
    begun = datetime.now(UTC) - timedelta(hours=2)
    record = a_run().running(1).status.start_record
    assert record is not None
    record = replace(record, time=begun)
    stepped = TrainRunStatus(phase="Running", start_record=record, progress=Progress(time=begun))
    for owed, ago in ((None, 7200.0), (0.0, 0.0), (30.0, 30.0), (9000.0, 7200.0)):
        metrics = metrics_of(("team/a", stepped, a_config()), owed=owed)
        (since,) = values_of(metrics, "trainrun_step_time_seconds").values()
        assert datetime.now(UTC).timestamp() - since == pytest.approx(ago, abs=10)
    fresh = replace(stepped, progress=Progress(time=datetime.now(UTC)))
    others = [(f"team/{number}", fresh, a_config()) for number in range(WORST)]
    metrics = metrics_of(("team/a", stepped, a_config()), *others, owed=0.0)
    assert "team/a" in values_of(metrics, "trainrun_step_time_seconds")


def test_steps_of_half_an_hour_fire_no_alert_in_the_first_attempt_unless_the_spec_says_so() -> None:
    begun = datetime.now(UTC) - timedelta(hours=2)
    record = a_run().running(1).status.start_record
    assert record is not None
    record = replace(record, time=begun - timedelta(hours=1))
    stepped = TrainRunStatus(phase="Running", start_record=record, progress=Progress(time=begun))
    given = replace(a_config(), progress_timeout=timedelta(minutes=2))
    metrics = metrics_of(
        ("team/slow", stepped, a_config()), ("team/given", stepped, given), owed=1700, usual=5400
    )
    assert values_of(metrics, "trainrun_step_timeout_seconds") == {
        "team/slow": 5400,
        "team/given": 120,
    }


def test_a_run_whose_output_moves_without_steps_is_as_young_as_its_newest_line() -> None:
    begun = datetime.now(UTC) - timedelta(hours=2)
    record = a_run().running(1).status.start_record
    assert record is not None
    bar = OutputSteps(form="tqdm", line="1/9", time=begun)
    status = TrainRunStatus(phase="Running", start_record=replace(record, time=begun), output=bar)
    metrics = metrics_of(("team/bars", status, a_config()), owed=5.0)
    (since,) = values_of(metrics, "trainrun_step_time_seconds").values()
    assert datetime.now(UTC).timestamp() - since == pytest.approx(5, abs=10)


def test_a_run_that_only_posts_or_whose_processes_have_ended_owes_no_step() -> None:
    running = replace(a_run().running(1).status, phase="Running")
    posts = replace(running, progress=Progress(), posted=PostedProgress(step=7, time=NOW))
    done = replace(running, phase="Finishing", progress=Progress(step=7, time=NOW))
    metrics = metrics_of(("team/posts", posts, a_config()), ("team/done", done, a_config()))
    assert values_of(metrics, "trainrun_step_time_seconds") == {}


def test_a_suspended_run_cannot_fail_and_shows_no_budget() -> None:
    suspended = TrainRunStatus(phase="Suspended", failures=Failures(counted=2))
    metrics = metrics_of(("team/a", suspended, a_config(max_failures=3)))
    assert values_of(metrics, "trainrun_failures_remaining") == {}


def test_a_run_that_waits_for_its_next_attempt_owes_no_step_and_no_checkpoint() -> None:
    running = replace(
        a_run().running(1).status,
        phase="Running",
        progress=Progress(step=7, time=NOW),
        checkpoint=CheckpointStatus(uri="file:///c", step=1, attempt=1, time=NOW),
    )
    phases: tuple[PhaseName, ...] = ("Pending", "Restarting", "Starting", "Suspended", "Failed")
    metrics = metrics_of(
        ("team/runs", running, a_config()),
        *((f"team/{phase}", replace(running, phase=phase), a_config()) for phase in phases),
    )
    assert [*values_of(metrics, "trainrun_step_time_seconds")] == ["team/runs"]
    assert [*values_of(metrics, "trainrun_checkpoint_time_seconds")] == ["team/runs"]


def test_a_checkpoint_is_no_older_than_the_attempt_that_runs() -> None:
    started = NOW + timedelta(minutes=5)
    running = a_run().running(1).status
    assert running.start_record is not None
    status = replace(
        running,
        phase="Running",
        start_record=replace(running.start_record, time=started),
        checkpoint=CheckpointStatus(uri="file:///c", step=1, attempt=1, time=NOW),
    )
    waiting = replace(status, phase="Pending")
    often = replace(a_config(), upload_every=timedelta(minutes=10))
    metrics = metrics_of(
        ("team/often", status, often),
        ("team/usual", status, a_config()),
        ("team/waits", waiting, a_config()),
    )
    since = started.timestamp()
    assert values_of(metrics, "trainrun_checkpoint_time_seconds") == {
        "team/often": since,
        "team/usual": since,
    }
    assert values_of(metrics, "trainrun_checkpoint_interval_seconds") == {
        "team/often": 600,
        "team/usual": 3600,
    }


def test_of_many_runs_only_those_nearest_to_their_limit_are_named() -> None:
    metrics = metrics_of(
        *(
            (
                f"team/{used}",
                TrainRunStatus(failures=Failures(counted=used)),
                a_config(max_failures=50),
            )
            for used in range(30)
        )
    )
    named = {f"team/{used}" for used in range(30 - WORST, 30)}
    assert values_of(metrics, "trainrun_failures_limit").keys() == named
