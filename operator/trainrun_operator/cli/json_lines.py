"""The run as JSON, one object per line; the last one is the final status.

Layer: cli. Objects: `{"event": "history", "time", "type", "reason", "message"}`,
`{"event": "state", "time", "reason", "message", "phase", "step", ...}` whenever one changes,
`{"event": "recovery", "time", "attempt", "seconds", "stages", "warm"}` with the first step after
an incident of `attempt`, `{"event": "output", "worker", "line"}`, `{"event": "missing", "lines"}`
in the place of as many of these, which came faster than they were read,
`{"event": "status", "exitCode", "status"}`.
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.runtime.news import Happened, Output, Passed, RunNews
from trainrun_operator.runtime.written_lines import Lines, source_of


class JsonLines:
    """Writes news."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._state: dict[str, Any] = {}
        self._recovered: int | None = None
        """The attempt whose recovery was told last, or whose end had been recovered from before."""

    def emit(self, news: RunNews) -> None:
        """Write one object."""
        match news:
            case Happened(time=moment, event=event):
                fields = {"type": event.type, "reason": event.reason, "message": event.message}
                self._write({"event": "history", "time": moment.isoformat(), **fields})
            case Output(worker=worker, line=line):
                told = {"event": "output", "worker": worker, "line": line}
                self._lines.line(json.dumps(told), source=source_of(worker, line))
            case Passed():
                self._tell_recovery(news)
                state = _state_of(news)
                if state != self._state:
                    self._state = state
                    self._write({"event": "state", "time": news.time.isoformat(), **state})
            case _:
                assert_never(news)

    def finish(self, status: TrainRunStatus, *, exit_code: int) -> None:
        """The last line."""
        data = json_object(status)
        self._write({"event": "status", "exitCode": exit_code, "status": data})

    def _tell_recovery(self, news: Passed) -> None:
        incidents = news.plan.status.incidents
        last = incidents[-1] if incidents else None
        over = last is not None and last.recovery_seconds is not None
        known = last.attempt if last is not None and over else 0
        if self._recovered is not None and known > self._recovered and last is not None:
            told = {"attempt": last.attempt, "seconds": sum(last.stages.values())}
            parts = {"stages": last.stages, "warm": last.warm}
            self._write({"event": "recovery", "time": news.time.isoformat(), **told, **parts})
        self._recovered = max(known, self._recovered or 0)

    def _write(self, fields: dict[str, Any]) -> None:
        self._lines.line(json.dumps(fields))


def _state_of(news: Passed) -> dict[str, Any]:
    status = news.plan.status
    return {
        "reason": news.plan.reason,
        "message": news.plan.message,
        "phase": status.phase,
        "attempt": status.attempt,
        "step": status.progress.step,
        "metrics": status.progress.metrics,
        "posted": _posted_of(status),
        "checkpoint": status.checkpoint.step if status.checkpoint else None,
        "failures": status.failures.text,
        "ready": status.workers.text,
    }


def _posted_of(status: TrainRunStatus) -> dict[str, Any] | None:
    posted = status.posted
    if posted is None:
        return None
    return {
        "step": posted.step,
        "totalSteps": posted.total_steps,
        "percent": posted.percent,
        "metrics": posted.metrics,
        "remainingSeconds": posted.remaining_seconds,
    }
