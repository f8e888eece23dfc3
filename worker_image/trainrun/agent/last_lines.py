"""What is stored of the output of an attempt on this worker.

Layer: agent. Only reads.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from trainrun.agent.processes.tail import MOST_LINES
from trainrun.checkpoint.logs import LogLine, RankLog, WorkerLog

if TYPE_CHECKING:
    from trainrun.agent.attempt import Attempt
    from trainrun.agent.processes.group import TrainingProcess

LINES_OF_SUCCESS = 200
"""Lines kept of each process where the run has succeeded."""


def last_lines(attempt: Attempt, *, succeeded: bool = False) -> WorkerLog:
    """The last lines of each of its processes; fewer where the run has `succeeded`."""
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
        ranks=tuple(_of(process, attempt.spawned, most) for process in attempt.processes.all),
    )


def _of(process: TrainingProcess, spawned: float, most: int) -> RankLog:
    if process.pump is None:
        return RankLog(rank=process.rank)
    kept = process.pump.tail.last(most)
    lines = tuple(LogLine(at=round(max(0.0, at - spawned), 2), text=text) for at, text in kept)
    return RankLog(rank=process.rank, lines=lines, dropped=process.pump.tail.seen - len(lines))
