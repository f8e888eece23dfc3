from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prometheus_client import generate_latest

from tests.support.builders import a_config
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Ending, Incident
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.core.run.config import RunConfig

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def an_incident(**fields: Any) -> Incident:
    made = Incident(attempt=1, cause="AppError", counted=True, time=NOW)
    return replace(made, **fields)


def text_of(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def metrics_of(*runs: tuple[TrainRunStatus, RunConfig]) -> Metrics:
    metrics = Metrics()
    metrics.follow(lambda: runs)
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
    runs = [(TrainRunStatus(phase="Running"), a_config())]
    metrics = Metrics()
    metrics.follow(lambda: runs)
    assert 'trainrun_runs{phase="Running"} 1.0' in text_of(metrics)
    runs.clear()
    assert 'phase="Running"' not in text_of(metrics)


def test_the_budget_left_is_that_of_the_run_with_the_fewest_failures_left() -> None:
    metrics = metrics_of(
        (TrainRunStatus(), a_config(max_failures=3)),
        (TrainRunStatus(), a_config(max_failures=1)),
        (TrainRunStatus(), a_config(max_failures=-1)),
    )
    assert "trainrun_failures_remaining 1.0" in text_of(metrics)


def test_no_metric_names_a_run() -> None:
    metrics = metrics_of((TrainRunStatus(), a_config(name="secret-project")))
    assert "secret-project" not in text_of(metrics)
