"""What is said at the end of a local run.

Layer: cli; pure. A failed run begins with the culprit: its message and its last lines, not those
of the ranks that only fell with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from trainrun_operator.api.run.incident import Incident
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli import wording
from trainrun_operator.core.run.warnings import NEVER_MET

COLUMNS = (
    "attempt",
    "cause",
    "who",
    "charged",
    "detect",
    "restart",
    "first step",
    "resumed",
    "lost",
)
"""Heads of the table of incidents. Seconds: from the loss until we knew, from then until the next
attempt was started, and until it reported its first step. Lost: steps done again."""

STAGE_WORDS = {"firstStep": "first step"}
SHOWN = 0.01
"""Part of a recovery from which a stage of it is shown."""


def summary(name: str, status: TrainRunStatus, *, continue_with: str = "") -> Iterator[str]:
    """The lines; `continue_with` is the command that goes on with an unfinished run."""
    if status.is_true("Failed"):
        yield from _failure(name, status)
    else:
        yield _headline(name, status)
    yield from facts(status)
    yield from _advice(status)
    if continue_with and not status.is_true("Complete"):
        yield f"  continue with: {continue_with}"


def facts(status: TrainRunStatus) -> Iterator[str]:
    """How far it is, what it has used of its budgets, where its checkpoint is, its incidents."""
    over = status.completion_time is not None
    step = wording.step_of(status)
    if over and wording.reports_nothing(status):
        step = "none reported" if status.posted is None else f"none reported, {step}"
    yield f"  steps        {step}  {wording.metrics_of(status)}".rstrip()
    yield f"  attempts     {status.attempt}, {wording.budget_of(status)}"
    yield f"  checkpoint   {wording.checkpoint_of(status)}"
    if status.checkpoint is not None:
        yield f"               {status.checkpoint.uri}"
    if status.progress.stall_seconds:
        yield f"               training waited {status.progress.stall_seconds} s for uploads"
    if status.incidents:
        yield "  incidents"
        yield from (f"    {line}" for line in incident_table(status.incidents))
        yield from (f"    {line}" for line in recovery_of(status.incidents[-1]))
    if status.advice:
        yield f"    {status.advice}"
    if status.workers.standby_memory:
        yield f"  standbys     {status.workers.standby_memory} per rank at most"


def _headline(name: str, status: TrainRunStatus) -> str:
    done = status.condition("Complete")
    if done is not None and done.status == "True":
        if never_met(status):
            text = f"Run {name} ended{_after(status)}, which may be no success: {done.message}"
            return _bold(text, "yellow")
        return _bold(f"Run {name} succeeded{_after(status)}: {done.message}", "green")
    if status.is_true("Suspended"):
        return _bold(f"Run {name} is suspended.", "yellow")
    return _bold(f"Run {name} was stopped in phase {status.phase}.", "yellow")


def never_met(status: TrainRunStatus) -> bool:
    """It has succeeded, and its processes may each have trained alone."""
    done = status.condition("Complete")
    return done is not None and done.reason == NEVER_MET


def _advice(status: TrainRunStatus) -> Iterator[str]:
    if status.attempt == 0 or wording.has_checkpoint(status) or status.runs_tasks:
        return
    if wording.reports_nothing(status):
        yield (
            "  no step was ever reported: a script that resumes from a folder of its own need not; "
            "any other calls trainrun.report(step=..., checkpoint=...) in the training loop, or a "
            "restart begins from nothing"
        )
    else:
        yield (
            "  no checkpoint was ever committed: pass checkpoint=<directory> to trainrun.report, "
            "or a restart begins from nothing"
        )


def _after(status: TrainRunStatus) -> str:
    if status.completion_time is None or status.start_time is None:
        return ""
    took = (status.completion_time - status.start_time).total_seconds()
    return f" after {wording.seconds(took)}"


def _failure(name: str, status: TrainRunStatus) -> Iterator[str]:
    failed = status.condition("Failed")
    assert failed is not None
    last = status.incidents[-1] if status.incidents else None
    if last is not None:
        yield _bold(f"In attempt {last.attempt}, {last.message}", "red")
        for line in last.last_lines:
            yield f"  | {line}"
    yield _bold(f"Run {name} failed{_after(status)} ({failed.reason}): {failed.message}", "red")


def incident_table(incidents: tuple[Incident, ...]) -> Iterator[str]:
    """Heads and one row per incident, in columns, each followed by its message."""
    rows = [COLUMNS, *(_row(incident) for incident in incidents)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
        if number:
            yield f"  {incidents[number - 1].message}"


def recovery_of(incident: Incident) -> Iterator[str]:
    """The parts of a recovery that is over."""
    if incident.recovery_seconds is None or not incident.stages:
        return
    whole = sum(incident.stages.values())
    parts = ", ".join(
        f"{STAGE_WORDS.get(name, name)} {wording.seconds(seconds)}"
        for name, seconds in incident.stages.items()
        if seconds >= SHOWN * whole
    )
    warm = f", {incident.warm} warm" if incident.warm else ""
    yield f"last recovery {wording.seconds(whole)}{warm}: {parts}"
    if incident.cold:
        yield f"a cold start: {incident.cold}"


def _row(incident: Incident) -> tuple[str, ...]:
    resumed = incident.resumed_from
    return (
        str(incident.attempt),
        incident.cause,
        wording.culprit(incident),
        wording.charged(incident),
        wording.seconds(incident.detect_seconds),
        wording.seconds(incident.restart_seconds),
        wording.seconds(incident.recovery_seconds),
        "-" if resumed is None else f"step {resumed.step}",
        "-" if incident.lost_steps is None else str(incident.lost_steps),
    )


def _bold(text: str, color: str) -> str:
    return click.style(text, fg=color, bold=True)
