"""Deletes old checkpoints in the background: one of the lanes of slot 0's uploads.

Layer: agent. Nothing waits for a deletion, so a failure is reported late; other problems report a
store that is away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.contract.agent_state import Problem
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

PATIENCE = 60.0
"""Seconds before a failure to delete old checkpoints is reported."""


@dataclass(slots=True, kw_only=True)
class Retaining:
    """The deletions of one attempt."""

    attempt: int
    storage: AsyncRunStore
    news: Callable[[], None]
    """Called when `problem` has changed."""
    due: bool = False
    """Whether there may be something to delete."""
    problem: Problem | None = None
    """Why old checkpoints are not deleted; new ones are stored all the same."""
    _failed_at: float | None = None
    """When deleting began to fail; None: it does not fail."""

    async def next(self) -> bool:
        """Delete what retention allows; whether anything was due. Raises what the store raises."""
        if not self.due:
            return False
        self.due = False  # reset first: a commit may set it again meanwhile
        try:
            await self.storage.retain(self.attempt)
        except (TrainRunError, OSError):
            self.due = True
            raise
        self._failed_at = None
        if self.problem is not None:
            LOG.info("old checkpoints can be deleted again")
            self.problem = None
            self.news()
        return True

    def report(self, error: Exception) -> None:
        """`next` has raised this."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        if now - self._failed_at < PATIENCE:
            return
        message = f"old checkpoints cannot be deleted now: {error}"
        problem = Problem(type="OldCheckpointsKept", reason=type(error).__name__, message=message)
        if problem != self.problem:
            self.problem = problem
            self.news()
