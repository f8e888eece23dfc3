"""Steps that were reported before their save had ended: no run resumes from them.

Layer: agent. Invariant: what may be committed of such a step is set aside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainrun import writing
from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.backoff import Backoff
from trainrun.contract.agent_state import Problem
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import StoreError

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class TornSteps:
    """Of one attempt."""

    attempt: int
    storage: AsyncRunStore
    problem: Problem | None = None
    """The last one, until a later checkpoint is committed."""
    _left: dict[Path, int] = field(default_factory=dict)
    """Where reported files were, and of which step: a save that goes on writes there."""
    _why: dict[int, str] = field(default_factory=dict)
    _aside: set[int] = field(default_factory=set)
    """Those that are to be set aside once they may be committed."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __contains__(self, step: int) -> bool:
        """Whether `step` is one."""
        return step in self._why

    def left(self, directory: Path, step: int) -> None:
        """The files of `step` were reported from `directory`, which is to stay empty."""
        self._left[directory] = step

    def late(self) -> Iterator[tuple[int, str]]:
        """Steps with files that have come since, each once, and what to say."""
        for directory, step in [*self._left.items()]:
            name = writing.first_in(directory)
            if name or not directory.is_dir():
                del self._left[directory]
            if name:
                yield step, writing.late(name, step)

    def add(self, step: int, message: str, *, aside: bool = True) -> None:
        """One more; with `aside` it might be committed all the same."""
        LOG.error("%s", message)
        self._why[step] = message
        self._aside |= {step} if aside else set()
        self.problem = Problem(type="CheckpointUnfinished", reason="StillWritten", message=message)

    def stored(self, step: int) -> None:
        """Our part of `step` is in the store, or the step is committed."""
        if step in self._aside:
            self._aside.remove(step)
            self._tasks.append(background.run(self._set_aside(step)))

    def close(self) -> None:
        """Write nothing more."""
        for task in self._tasks:
            task.cancel()

    async def _set_aside(self, step: int) -> None:
        checkpoint, backoff = CheckpointId(attempt=self.attempt, step=step), Backoff(0.5, 15.0)
        while True:
            try:
                await self.storage.set_aside(checkpoint, self._why[step])
            except StoreError as error:
                LOG.warning("%s is to be set aside: %s", checkpoint.name, error)
                await asyncio.sleep(backoff.next())
            else:
                return
