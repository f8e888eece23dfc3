"""`trainrun run` for logs, pipes and programs: plain lines, JSON, and a timeline of the ranks.

Layer: cli. Plain: one line per event, the workers' output, and the training's progress at most
every PROGRESS_EVERY seconds. JSON, one object per line; the last one is the final status:
`{"event": "history", "time", "type", "reason", "message"}`,
`{"event": "state", "time", "reason", "message", "phase", "step", ...}` when one of them changes,
`{"event": "recovery", "time", "attempt", "seconds", "stages", "warm"}` at the first step after
an incident of `attempt`, `{"event": "output", "worker", "line"}`, `{"event": "missing", "lines"}`
in place of that many output lines that were skipped because the reader was too slow,
`{"event": "status", "exitCode", "status"}`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import click

from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.cli import formatting
from trainrun_operator.cli.formatting import RankState, rank_states
from trainrun_operator.runtime.line_writers import Lines, source_of
from trainrun_operator.runtime.run_events import Output, PassEnded, RunEvent, RunNews

PROGRESS_EVERY = 5.0
"""Seconds between two progress lines."""

TRAINS = ("Running", "Preempting", "Finishing")
"""Phases in which steps are made."""


class PlainLines:
    """Writes news as plain lines."""

    def __init__(self, lines: Lines, *, color: bool, verbose: bool) -> None:
        self._lines = lines
        self._color = color
        self._verbose = verbose
        self._began = time.monotonic()
        self._progress_at = self._began
        self._step = formatting.NO_STEP
        self._last_message = ""

    def emit(self, news: RunNews) -> None:
        """Write the lines for this news, if any."""
        match news:
            case RunEvent(event=event):
                warning = event.type == "Warning"
                self._last_message = event.message
                self._say(event.reason, event.message, color="yellow" if warning else "green")
            case Output(worker=worker, line=line):
                self._output(worker, line)
            case PassEnded():
                self._passed(news)

    def _output(self, worker: str, line: str) -> None:
        source = source_of(worker, line)
        if not line.startswith(formatting.AGENT_CHATTER):
            self._lines.line(line, source=source)
        elif self._verbose:
            chatter = line.removeprefix(formatting.AGENT_CHATTER)
            self._lines.line(f"[{worker}] {chatter}", source=source)

    def _passed(self, news: PassEnded) -> None:
        status = news.plan.status
        if self._verbose and news.plan.message != self._last_message:
            self._last_message = news.plan.message
            self._say(news.plan.reason, news.plan.message, color="blue")
        # While the next attempt is prepared, the status still shows the step of the last one.
        if status.phase in TRAINS and formatting.step_of(status) not in (
            formatting.NO_STEP,
            self._step,
        ):
            self._progress(status)

    def _progress(self, status: TrainRunStatus) -> None:
        if time.monotonic() - self._progress_at < PROGRESS_EVERY:
            return
        self._progress_at, self._step = time.monotonic(), formatting.step_of(status)
        shown = f"step {self._step} {formatting.metrics_of(status)}".rstrip()
        saved = formatting.checkpoint_of(status)
        self._say("Progress", f"{shown}; checkpoint: {saved}", color="cyan")

    def _say(self, reason: str, message: str, *, color: str) -> None:
        ago = f"{time.monotonic() - self._began:7.1f}s"
        head = click.style(reason, fg=color) if self._color else reason
        self._lines.line(f"{ago}  {head}: {message}")


class JsonLines:
    """Writes news as JSON, one object per line."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._state: dict[str, Any] = {}
        self._recovered: int | None = None
        """The newest attempt whose recovery was written, or had happened before we started."""

    def emit(self, news: RunNews) -> None:
        """Write the objects for this news, if any."""
        match news:
            case RunEvent(time=moment, event=event):
                fields = {"type": event.type, "reason": event.reason, "message": event.message}
                self._write({"event": "history", "time": moment.isoformat(), **fields})
            case Output(worker=worker, line=line):
                output = {"event": "output", "worker": worker, "line": line}
                self._lines.line(json.dumps(output), source=source_of(worker, line))
            case PassEnded():
                self._report_recovery(news)
                state = _state_of(news)
                if state != self._state:
                    self._state = state
                    self._write({"event": "state", "time": news.time.isoformat(), **state})

    def finish(self, status: TrainRunStatus, *, exit_code: int) -> None:
        """Write the last line: exit code and final status."""
        data = json_object(status)
        self._write({"event": "status", "exitCode": exit_code, "status": data})

    def _report_recovery(self, news: PassEnded) -> None:
        incidents = news.plan.status.incidents
        last = incidents[-1] if incidents else None
        over = last is not None and last.recovery_seconds is not None
        newest = last.attempt if last is not None and over else 0
        if self._recovered is not None and newest > self._recovered and last is not None:
            total = {"attempt": last.attempt, "seconds": sum(last.stages.values())}
            parts = {"stages": last.stages, "warm": last.warm}
            self._write({"event": "recovery", "time": news.time.isoformat(), **total, **parts})
        self._recovered = max(newest, self._recovered or 0)

    def _write(self, fields: dict[str, Any]) -> None:
        self._lines.line(json.dumps(fields))


def _state_of(news: PassEnded) -> dict[str, Any]:
    status = news.plan.status
    posted = status.posted and {
        "step": status.posted.step,
        "totalSteps": status.posted.total_steps,
        "percent": status.posted.percent,
        "metrics": status.posted.metrics,
        "remainingSeconds": status.posted.remaining_seconds,
    }
    output = status.output and {
        "step": status.output.step,
        "totalSteps": status.output.total_steps,
        "metrics": status.output.metrics,
        "source": status.output.source,
    }
    return {
        "reason": news.plan.reason,
        "message": news.plan.message,
        "phase": status.phase,
        "attempt": status.attempt,
        "step": status.progress.step,
        "metrics": status.progress.metrics,
        "posted": posted,
        "output": output,
        "checkpoint": status.checkpoint.step if status.checkpoint else None,
        "failures": status.failures.text,
        "ready": status.workers.text,
    }


SIGNS: dict[RankState, str] = {
    "absent": " ",
    "waiting": "·",
    "done": "✓",
    "training": "=",
    "starting": "s",
    "leaving": "!",
    "dead": "x",
}
"""In ascending urgency: if several states fall into one column, the most urgent one is drawn."""
URGENCY = {state: place for place, state in enumerate(SIGNS)}

LEGEND = "s starting   = training   ! leaving   x lost   · waiting   ✓ done"


def ranks_of(seen: PassEnded, *, per_worker: int) -> Iterator[tuple[int, RankState, int | None]]:
    """(rank, state, step) of each rank that has a worker; step is None if it reported none."""
    by_creation = sorted(seen.workers, key=lambda worker: worker.created_for)
    newest = {worker.slot: worker for worker in by_creation}
    for slot, worker in sorted(newest.items()):
        states = rank_states(worker, status=seen.plan.status, per_worker=per_worker)
        steps = worker.agent.steps if worker.agent is not None else ()
        pairs = zip(states, chain(steps, repeat(None)), strict=False)
        for rank, (state, step) in enumerate(pairs, start=slot * per_worker):
            yield rank, state, step


@dataclass(frozen=True, slots=True)
class _Change:
    at: float
    state: RankState


class Timeline:
    """Records the states of all ranks."""

    def __init__(
        self, *, replicas: int, per_worker: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_worker = per_worker
        self._clock = clock
        self._began = clock()
        self._ranks: list[list[_Change]] = [[] for _ in range(replicas * per_worker)]

    def emit(self, news: RunNews) -> None:
        """Record changes of ranks' states."""
        if not isinstance(news, PassEnded):
            return
        now = self._clock() - self._began
        for rank, state, _ in ranks_of(news, per_worker=self._per_worker):
            if rank >= len(self._ranks):
                continue
            changes = self._ranks[rank]
            if not changes or changes[-1].state != state:
                changes.append(_Change(now, state))

    def rows(self, *, width: int) -> Iterator[str]:
        """One row per rank: its states over the whole time, in `width` characters."""
        end = max(self._clock() - self._began, 0.001)
        for changes in self._ranks:
            yield _row(changes, end, width)

    def draw(self, *, width: int = 64) -> Iterator[str]:
        """One line per rank, a ruler and the legend."""
        for rank, row in enumerate(self.rows(width=width)):
            yield f"rank {rank:<3} |{row}|"
        last = f"{self._clock() - self._began:.0f} s"
        yield f"         0{' ' * (width - len(last))}{last}"
        yield f"         {LEGEND}"


def _row(changes: list[_Change], end: float, width: int) -> str:
    column = end / width
    cells: list[RankState] = ["absent"] * width
    for i, change in enumerate(changes):
        until = changes[i + 1].at if i + 1 < len(changes) else end
        first = min(int(change.at / column), width - 1)
        last = max(first, min(int(until / column), width - 1))
        for cell in range(first, last + 1):
            # A state that only begins to fill its last column leaves that column to the next one.
            touched = cell == last and last > first and i + 1 < len(changes)
            if not touched and URGENCY[change.state] >= URGENCY[cells[cell]]:
                cells[cell] = change.state
    return "".join(SIGNS[cell] for cell in cells)
