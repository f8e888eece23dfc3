"""A sweep as plain lines, for logs and pipes.

Layer: cli. One line when a trial starts, ends or meets a failure; with `verbose` also what trials
print.
"""

from __future__ import annotations

import time
from typing import assert_never

import click

from trainrun.sweep.search import Objective
from trainrun.sweep.view import TrialView
from trainrun_operator.cli.sweeping.news import (
    OfTrial,
    SweepLooked,
    SweepNews,
    TrialEnded,
    TrialStarted,
)
from trainrun_operator.cli.sweeping.texts import outcome, parameters
from trainrun_operator.runtime.news import Happened, Output, RunNews
from trainrun_operator.runtime.written_lines import Lines, source_of

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
                self._ended(trial, leads=leads)
            case OfTrial(trial=number, news=of_run):
                self._of_run(number, of_run)
            case SweepLooked():
                pass
            case _:
                assert_never(news)

    def say(self, text: str) -> None:
        """A line of its own."""
        self._lines.line(f"trainrun: {text}")

    def _ended(self, trial: TrialView, *, leads: bool) -> None:
        best = "; the best so far" if leads else ""
        self._say(trial.number, trial.state, f"{outcome(trial, self._objective)}{best}")

    def _of_run(self, trial: int, news: RunNews) -> None:
        match news:
            case Happened(event=event) if event.type == "Warning" or self._verbose:
                self._say(trial, event.reason, event.message, color="yellow")
            case Output(line=line) if self._verbose:
                self._lines.line(f"[{trial}] {line}", source=source_of(str(trial), line))
            case _:
                pass

    def _say(self, trial: int, word: str, message: str, *, color: str = "") -> None:
        ago = f"{time.monotonic() - self._began:7.1f}s"
        shown = color or COLORS.get(word, "cyan" if word == "Running" else "red")
        head = click.style(word, fg=shown) if self._color else word
        self._lines.line(f"{ago}  trial {trial} {head}: {message}")
