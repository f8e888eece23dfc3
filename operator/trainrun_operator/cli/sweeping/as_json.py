"""A sweep as JSON, one object per line; the last one is the final status.

Layer: cli. Objects: `{"event": "trial", "trial", "state", "params", "value", "step", "restarts",
"remark"}` whenever one of these changes, `{"event": "history", "trial", "time", "type", "reason",
"message"}` of the run of a trial, `{"event": "status", "exitCode", "status"}`. A value that JSON
does not have is text: `"nan"`.
"""

from __future__ import annotations

import json
from typing import Any

import click

from trainrun_operator.api.sweep.status import TrainSweepStatus, json_object
from trainrun_operator.cli.sweeping.news import OfTrial, SweepLooked, SweepNews
from trainrun_operator.cli.sweeping.rows import Row
from trainrun_operator.runtime.news import Happened
from trainrun_operator.runtime.written_lines import Lines


class SweepJson:
    """Writes news."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._rows: dict[int, Row] = {}

    def emit(self, news: SweepNews) -> None:
        """Write what has changed."""
        match news:
            case SweepLooked(rows=rows):
                for row in rows:
                    if self._rows.get(row.trial) != row:
                        self._rows[row.trial] = row
                        self._write({"event": "trial", **row.data})
            case OfTrial(trial=trial, news=Happened(time=moment, event=event)):
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
