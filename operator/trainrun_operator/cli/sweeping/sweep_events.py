"""What happens during a local sweep, told to whoever shows it: plain lines, JSON; a table is in
`table`.

Layer: cli. Emitting never blocks. Plain: one line when a trial starts, ends or meets a failure;
with `verbose` also what trials print. JSON, one object per line; the last one is the final status:
`{"event": "trial", "trial", "state", "params", "value", "step", "restarts", "remark"}` whenever one
of these changes, `{"event": "history", "trial", "time", "type", "reason", "message"}` of the run of
a trial, `{"event": "status", "exitCode", "status"}`. A value that JSON does not have is text:
`"nan"`.
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
    """A trial works from now on, for the first time or again."""

    trial: int
    params: Mapping[str, Scalar]
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEvent:
    """Something happened to the run of a trial."""

    trial: int
    news: RunNews


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """The log says how a trial has ended."""

    trial: TrialView
    leads: bool
    """It is the best one so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepObserved:
    """A look at the sweep: this is the state of affairs."""

    status: TrainSweepStatus
    rows: tuple[Row, ...]
    """By number."""


SweepNews = TrialStarted | TrialEvent | TrialEnded | SweepObserved


class SweepEventSink(Protocol):
    """Somebody who wants to know."""

    def emit(self, news: SweepNews) -> None:
        """Take note; returns at once."""

    def say(self, text: str) -> None:
        """Tell the user something that is no event of the sweep."""


COLORS = {"Succeeded": "green", "Stopped": "yellow", "Skipped": "yellow"}


class SweepLines:
    """Writes news."""

    def __init__(self, lines: Lines, *, objective: Objective, color: bool, verbose: bool) -> None:
        self._lines = lines
        self._objective = objective
        self._color = color
        self._verbose = verbose
        self._began = time.monotonic()

    def emit(self, news: SweepNews) -> None:
        """Write the lines that this news deserves."""
        match news:
            case TrialStarted(trial=trial, params=params, again=again):
                how = "goes on" if again else "starts"
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
        """A line of its own."""
        self._lines.line(f"trainrun: {text}")

    def _say(self, trial: int, word: str, message: str, *, color: str = "") -> None:
        ago = f"{time.monotonic() - self._began:7.1f}s"
        shown = color or COLORS.get(word, "cyan" if word == "Running" else "red")
        head = click.style(word, fg=shown) if self._color else word
        self._lines.line(f"{ago}  trial {trial} {head}: {message}")


class SweepJson:
    """Writes news."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._rows: dict[int, Row] = {}

    def emit(self, news: SweepNews) -> None:
        """Write what has changed."""
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
        """Not on stdout, which holds JSON and nothing else."""
        click.echo(f"trainrun: {text}", err=True)

    def finish(self, status: TrainSweepStatus, *, exit_code: int) -> None:
        """The last line."""
        self._write({"event": "status", "exitCode": exit_code, "status": json_object(status)})

    def _write(self, fields: dict[str, Any]) -> None:
        self._lines.line(json.dumps(fields, allow_nan=False))
