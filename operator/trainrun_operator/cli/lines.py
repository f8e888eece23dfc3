"""The run as plain lines, for logs and pipes.

Layer: cli. One line per event, the workers' output as it comes, and how far the training is at most
every few seconds.
"""

from __future__ import annotations

import time
from typing import assert_never

import click

from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli import wording
from trainrun_operator.runtime.news import Happened, Output, Passed, RunNews
from trainrun_operator.runtime.written_lines import Lines, source_of

PROGRESS_EVERY = 5.0
"""Seconds between two lines about the progress."""

TRAINS = ("Running", "Preempting", "Finishing")
"""Phases in which steps are made."""


class PlainLines:
    """Writes news."""

    def __init__(self, lines: Lines, *, color: bool, verbose: bool) -> None:
        self._lines = lines
        self._color = color
        self._verbose = verbose
        self._began = time.monotonic()
        self._progress_at = self._began
        self._step = wording.NO_STEP
        self._waited_for = ""

    def emit(self, news: RunNews) -> None:
        """Write the lines that this news deserves."""
        match news:
            case Happened(event=event):
                warning = event.type == "Warning"
                self._waited_for = event.message
                self._say(event.reason, event.message, color="yellow" if warning else "green")
            case Output(worker=worker, line=line):
                self._output(worker, line)
            case Passed():
                self._passed(news)
            case _:
                assert_never(news)

    def _output(self, worker: str, line: str) -> None:
        source = source_of(worker, line)
        if not line.startswith(wording.AGENT_CHATTER):
            self._lines.line(line, source=source)
        elif self._verbose:
            chatter = line.removeprefix(wording.AGENT_CHATTER)
            self._lines.line(f"[{worker}] {chatter}", source=source)

    def _passed(self, news: Passed) -> None:
        status = news.plan.status
        if self._verbose and news.plan.message != self._waited_for:
            self._waited_for = news.plan.message
            self._say(news.plan.reason, news.plan.message, color="blue")
        # While the next attempt is prepared the status still shows how far the last one was.
        if status.phase in TRAINS and wording.step_of(status) not in (wording.NO_STEP, self._step):
            self._progress(status)

    def _progress(self, status: TrainRunStatus) -> None:
        if time.monotonic() - self._progress_at < PROGRESS_EVERY:
            return
        self._progress_at, self._step = time.monotonic(), wording.step_of(status)
        shown = f"step {self._step} {wording.metrics_of(status)}".rstrip()
        saved = wording.checkpoint_of(status)
        self._say("Progress", f"{shown}; checkpoint: {saved}", color="cyan")

    def _say(self, reason: str, message: str, *, color: str) -> None:
        ago = f"{time.monotonic() - self._began:7.1f}s"
        head = click.style(reason, fg=color) if self._color else reason
        self._lines.line(f"{ago}  {head}: {message}")
