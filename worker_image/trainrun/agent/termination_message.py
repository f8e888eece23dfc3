"""The termination message of a container, and the last lines of its processes.

Layer: agent; only reads of an attempt. `kubectl describe pod` shows the message of an ended worker.
Best effort: the kubelet puts an empty file into each container and reads it when the container has
ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.agent.processes.group import TrainingProcess, describe
from trainrun.agent.processes.output import MOST_LINES
from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog
from trainrun.contract.agent_state import ProcessExit

if TYPE_CHECKING:
    from trainrun.agent.attempt import Attempt

FILE = Path("/dev/termination-log")
"""Its default path in Kubernetes; absent elsewhere, and never created by the agent."""
LONGEST = 4096
"""Bytes that the kubelet reads."""
LINES_OF_SUCCESS = 200
"""Lines kept of each process if the run has succeeded."""


def compose(reason: str, exits: Iterable[ProcessExit]) -> str:
    """Why the agent exited, and the last lines of the process that failed first."""
    failed = [end for end in exits if end.failed]
    if not failed:
        return reason
    culprit = max(failed, key=lambda end: end.age)
    head = f"rank {culprit.rank} {describe(culprit)}"
    return "\n".join([f"{head} ({reason})" if reason else head, *culprit.last_lines])


def write(text: str, file: Path = FILE) -> None:
    """Write `text`; if it is too long, keep its first line and its end, where errors are."""
    data = text.encode(errors="replace")
    if len(data) > LONGEST:
        head, _, rest = data.partition(b"\n")
        head = head[: LONGEST // 2]
        data = head + b"\n...\n" + rest[-(LONGEST - len(head) - 5) :]
    try:
        target = os.open(file, os.O_WRONLY | os.O_TRUNC)
    except OSError:
        return  # not in a container, or the path is configured differently
    try:
        os.write(target, data)
    except OSError:
        pass  # a full disk: the log has the same lines
    finally:
        os.close(target)


def last_lines(attempt: Attempt, *, succeeded: bool = False) -> WorkerLog:
    """The last lines of each of its processes; fewer if the run has `succeeded`."""
    config = attempt.around.config
    most = LINES_OF_SUCCESS if succeeded else MOST_LINES
    begun = datetime.fromtimestamp(attempt.begun, timezone.utc)
    return WorkerLog(
        attempt=attempt.number,
        slot=config.slot,
        workers=attempt.start.workers,
        worker=config.worker,
        node=config.node,
        begun=begun.isoformat(timespec="milliseconds"),
        ranks=tuple(
            _lines_of(process, attempt.spawned, most) for process in attempt.processes.all.values()
        ),
    )


def _lines_of(process: TrainingProcess, spawned: float, most: int) -> RankLog:
    last = process.tail.last(most)
    lines = tuple(LogLine(at=round(max(0.0, at - spawned), 2), text=text) for at, text in last)
    return RankLog(rank=process.rank, lines=lines, dropped=process.tail.seen - len(lines))
