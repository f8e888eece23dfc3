"""Events of a local sweep, and their output as plain lines and as JSON; the table is in `table`.

Layer: cli. Emitting never blocks. Plain: one line when a trial starts, ends or fails; with
`verbose` also the trials' output. JSON, one object per line; the last one is the final status:
`{"event": "trial", "trial", "state", "params", "value", "step", "restarts", "remark"}` when one of
these changes, `{"event": "history", "trial", "time", "type", "reason", "message"}` for events of a
trial's run, `{"event": "status", "exitCode", "status"}`. Values that JSON lacks are text: `"nan"`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import click

from trainrun.sweep.search import Objective, Scalar
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.status import TrainSweepStatus, json_object
from trainrun_operator.cli.sweeping.trial_text import Row, outcome, parameters
from trainrun_operator.runtime.line_writers import Lines, source_of
from trainrun_operator.runtime.run_events import Output, RunEvent, RunNews


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial has started, or continues (`again`)."""

    trial: int
    params: Mapping[str, Scalar]
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEvent:
    """News of a trial's run."""

    trial: int
    news: RunNews


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A trial has ended, according to the log."""

    trial: TrialView
    leads: bool
    """Whether it is the best one so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepObserved:
    """The sweep's current state."""

    status: TrainSweepStatus
    rows: tuple[Row, ...]
    """By number."""


SweepNews = TrialStarted | TrialEvent | TrialEnded | SweepObserved


class SweepEventSink(Protocol):
    """Shows a sweep's events to the user."""

    def emit(self, news: SweepNews) -> None:
        """Handle the news; returns at once."""

    def say(self, text: str) -> None:
        """Show a message that is not an event of the sweep."""


COLORS = {"Succeeded": "green", "Stopped": "yellow", "Skipped": "yellow"}


class SweepLines:
    """Writes news as plain lines."""

    def __init__(self, lines: Lines, *, objective: Objective, color: bool, verbose: bool) -> None:
        self._lines = lines
        self._objective = objective
        self._color = color
        self._verbose = verbose
        self._began = time.monotonic()

    def emit(self, news: SweepNews) -> None:
        """Write the lines for this news, if any."""
        match news:
            case TrialStarted(trial=trial, params=params, again=again):
                how = "continues" if again else "starts"
                self._say(trial, "Running", f"{how} with {parameters(params, exact=True)}")
            case TrialEnded(trial=trial, leads=leads):
                best = "; the best so far" if leads else ""
                self._say(trial.number, trial.state, f"{outcome(trial, self._objective)}{best}")
            case TrialEvent(trial=number, news=RunEvent(event=event)) if (
                event.type == "Warning" or self._verbose
            ):
                self._say(number, event.reason, event.message, color="yellow")
            case TrialEvent(trial=number, news=Output(line=line)) if self._verbose:
                self._lines.line(f"[{number}] {line}", source=source_of(str(number), line))
            case TrialEvent() | SweepObserved():
                pass

    def say(self, text: str) -> None:
        """Write a line."""
        self._lines.line(f"trainrun: {text}")

    def _say(self, trial: int, word: str, message: str, *, color: str = "") -> None:
        ago = f"{time.monotonic() - self._began:7.1f}s"
        shown = color or COLORS.get(word, "cyan" if word == "Running" else "red")
        head = click.style(word, fg=shown) if self._color else word
        self._lines.line(f"{ago}  trial {trial} {head}: {message}")


class SweepJson:
    """Writes news as JSON, one object per line."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._rows: dict[int, Row] = {}

    def emit(self, news: SweepNews) -> None:
        """Write the objects for what has changed, if anything."""
        match news:
            case SweepObserved(rows=rows):
                for row in rows:
                    if self._rows.get(row.trial) != row:
                        self._rows[row.trial] = row
                        self._write({"event": "trial", **row.data})
            case TrialEvent(trial=trial, news=RunEvent(time=moment, event=event)):
                fields = {"type": event.type, "reason": event.reason, "message": event.message}
                head = {"event": "history", "trial": trial, "time": moment.isoformat()}
                self._write({**head, **fields})
            case _:
                pass

    def say(self, text: str) -> None:
        """Write a line to stderr; stdout holds only JSON."""
        click.echo(f"trainrun: {text}", err=True)

    def finish(self, status: TrainSweepStatus, *, exit_code: int) -> None:
        """Write the last line: exit code and final status."""
        self._write({"event": "status", "exitCode": exit_code, "status": json_object(status)})

    def _write(self, fields: dict[str, Any]) -> None:
        self._lines.line(json.dumps(fields, allow_nan=False))
