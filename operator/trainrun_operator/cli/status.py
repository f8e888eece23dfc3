"""`trainrun status`: the state of a run, also printed when a run ends, as a report.

Layer: cli. For a failed run, the culprit's message and last lines come first, not those of ranks
that only failed with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.cli import formatting
from trainrun_operator.cli.finding import find_runs
from trainrun_operator.cli.report.model import (
    Document,
    Preformatted,
    Section,
    Table,
    TableRow,
    TextLine,
    Tone,
)
from trainrun_operator.cli.report.output import show
from trainrun_operator.cli.sources import ClusterSource, RunState, Source
from trainrun_operator.core.run.attempts import unsaved
from trainrun_operator.core.run.display import LASTING
from trainrun_operator.core.run.incidents.attempt_progress import has_steps
from trainrun_operator.core.run.warnings import NEVER_MET

NOT_OBSERVED = (
    "no operator has looked at it yet: check that one runs, and that it watches this namespace "
    "(the chart's value watchNamespaces)"
)


def show_status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> None:
    """Print the status of each run that `where` names."""
    runs = find_runs(where, storage=storage, namespace=namespace)
    for run, state in [(run, run.state()) for run in runs]:
        led_by = "" if state.leader is None else f"process {state.leader}"
        led_by = "the operator" if isinstance(run, ClusterSource) else led_by
        report = report_of(run.name, state.status, led_by=led_by)
        show(replace(report, data=_as_json(run, state)), as_json=as_json)


def _as_json(run: Source, state: RunState) -> dict[str, object]:
    return {
        "run": run.name,
        "storage": run.storage,
        "uid": state.uid,
        "ledBy": state.leader,
        "status": json_object(state.status),
    }


HEADS = ("attempt", "cause", "who", "charged", "detect", "restart", "first step", "resumed", "lost")
"""Heads of the table of incidents. Seconds: from the loss until the operator knew, from then until
the next attempt was started, and until it reported its first step. Lost: steps done again."""

LEAST_SHARE = 0.01
"""Stages below this part of a recovery are left out."""


def report_of(
    name: str, status: TrainRunStatus, *, led_by: str = "", continue_with: str = ""
) -> Document:
    """The state of a run, or how it ended. `led_by` names its leader, `continue_with` the command
    that continues it if it is unfinished."""
    led = bool(led_by) and not status.finished
    headline, tone = _headline(name, status)
    if led:
        headline, tone = f"Run {name}: {status.phase}, led by {led_by}", "plain"
    if status.observed_generation < 0:
        headline, tone = f"Run {name}: {NOT_OBSERVED}", "note"
    further = f"continue with: {continue_with}" if continue_with else ""
    lines = (
        formatting.restarting(status, now=datetime.now(UTC)),
        status.advice,
        "" if led else _unsaved(status),
        "" if status.is_true("Complete") else further,
    )
    return Document(
        name=f"Run {name}",
        headline=headline,
        tone=tone,
        lead=tuple(_last_lines(status)),
        facts=tuple(_facts(status)),
        remarks=tuple(
            f"{condition.type}: {condition.message}"
            for condition in status.conditions
            if condition.type not in LASTING and condition.status == "True"
        ),
        sections=(_incidents(status),) if status.incidents else (),
        ending=tuple(filter(None, lines)),
    )


def _facts(status: TrainRunStatus) -> Iterator[tuple[str, str]]:
    """Its steps, attempts, budgets and checkpoint."""
    over = status.completion_time is not None
    step = formatting.step_of(status)
    if over and not has_steps(status):
        has_other = status.posted is not None or status.output is not None
        step = f"none reported, {step}" if has_other else "none reported"
    yield "steps", f"{step}  {formatting.metrics_of(status)}"
    if status.output is not None:
        yield "", f"read from output, {status.output.source}"
    yield "attempts", f"{status.attempt}, {formatting.budget_of(status)}"
    yield "checkpoint", formatting.checkpoint_of(status)
    if status.checkpoint is not None:
        yield "", status.checkpoint.uri
    if status.progress.stall_seconds:
        yield "", f"training waited {status.progress.stall_seconds} s for uploads"
    if status.workers.standby_memory:
        yield "standbys", f"{status.workers.standby_memory} per rank at most"


def _headline(name: str, status: TrainRunStatus) -> tuple[str, Tone]:
    done, failed = status.condition("Complete"), status.condition("Failed")
    if failed is not None and failed.status == "True":
        return f"Run {name} failed{_after(status)} ({failed.reason}): {failed.message}", "bad"
    if done is not None and done.status == "True":
        if never_met(status):
            doubt = f"but may not have succeeded: {done.message}"
            return f"Run {name} ended{_after(status)}, {doubt}", "note"
        return f"Run {name} succeeded{_after(status)}: {done.message}", "good"
    if status.is_true("Suspended"):
        return f"Run {name} is suspended.", "note"
    return f"Run {name} was stopped in phase {status.phase}.", "note"


def never_met(status: TrainRunStatus) -> bool:
    """It has succeeded, but its processes may each have trained alone."""
    done = status.condition("Complete")
    return done is not None and done.reason == NEVER_MET


def _unsaved(status: TrainRunStatus) -> str:
    """What to add to a script that saves nothing."""
    if status.attempt == 0 or formatting.has_checkpoint(status) or status.runs_tasks:
        return ""
    return unsaved(reports=has_steps(status))


def _after(status: TrainRunStatus) -> str:
    if status.completion_time is None or status.start_time is None:
        return ""
    took = (status.completion_time - status.start_time).total_seconds()
    return f" after {formatting.seconds(took)}"


def _last_lines(status: TrainRunStatus) -> Iterator[Preformatted]:
    """The last lines of a rank, if the run failed because of its last incident."""
    last = status.incidents[-1] if status.incidents else None
    if last is not None and last.last_lines and last.message in _verdict(status):
        title = f"Last lines of {formatting.culprit(last)} in attempt {last.attempt}"
        yield Preformatted(tuple(f"| {line}" for line in last.last_lines), title=title)


def _verdict(status: TrainRunStatus) -> str:
    """Why a run failed, mostly in the words of its last incident, which is then not repeated."""
    failed = status.condition("Failed")
    return failed.message if failed is not None and failed.status == "True" else ""


def _incidents(status: TrainRunStatus) -> Section:
    rows = tuple(_row(incident, verdict=_verdict(status)) for incident in status.incidents)
    recovery = map(TextLine, _recovery(status.incidents[-1]))
    return Section(title="Incidents", blocks=(Table(heads=HEADS, rows=rows), *recovery))


def _recovery(incident: Incident) -> Iterator[str]:
    """The stages of a finished recovery."""
    if incident.recovery_seconds is None or not incident.stages:
        return
    whole = sum(incident.stages.values())
    notable = {name: part for name, part in incident.stages.items() if part >= LEAST_SHARE * whole}
    warm = f", {incident.warm} warm" if incident.warm else ""
    yield f"last recovery {formatting.seconds(whole)}{warm}: {formatting.stages(notable)}"
    if incident.cold:
        yield f"a cold start: {incident.cold}"


def _row(incident: Incident, *, verdict: str) -> TableRow:
    resumed = incident.resumed_from
    cells = (
        str(incident.attempt),
        incident.cause,
        formatting.culprit(incident),
        formatting.charged(incident),
        formatting.seconds(incident.detect_seconds),
        formatting.seconds(incident.restart_seconds),
        formatting.seconds(incident.recovery_seconds),
        "-" if resumed is None else f"step {resumed.step}",
        "-" if incident.lost_steps is None else str(incident.lost_steps),
    )
    return TableRow(cells=cells, below=() if incident.message in verdict else (incident.message,))
