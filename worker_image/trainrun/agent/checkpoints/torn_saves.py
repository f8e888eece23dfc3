"""Incomplete checkpoints: reported before their save had ended or failed, or saved in turns.

Layer: agent. A step that was reported too early is set aside in case it gets committed: no run
resumes from it. Ranks that count different steps are a problem: any subset of ranks may bring
files, so one such checkpoint is fine; three in a row whose ranks alternate are not, and each of
them would resume with a part missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainrun._common import writer_processes
from trainrun._common.backoff import Backoff
from trainrun.agent import background
from trainrun.agent.checkpoints.overdue import named_ranks
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.records import Manifest
from trainrun.contract.agent_state import Problem
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import StoreError

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class TornSteps:
    """Steps of one attempt that were reported before their save had ended."""

    attempt: int
    storage: AsyncRunStore
    problem: Problem | None = None
    """The last one, until a later checkpoint is committed."""
    _left: dict[Path, int] = field(default_factory=dict)
    """Directories that files were reported from, with the step: an unfinished save writes there."""
    _why: dict[int, str] = field(default_factory=dict)
    _aside: set[int] = field(default_factory=set)
    """Steps to set aside once they may be committed."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __contains__(self, step: int) -> bool:
        """Whether `step` is torn."""
        return step in self._why

    def left(self, directory: Path, step: int) -> None:
        """The files of `step` were reported from `directory`, which must stay empty."""
        self._left[directory] = step

    def late(self) -> Iterator[tuple[int, str]]:
        """Steps with files that appeared later, each once, with a message."""
        for directory, step in [*self._left.items()]:
            name = writer_processes.first_in(directory)
            if name or not directory.is_dir():
                del self._left[directory]
            if name:
                yield step, writer_processes.late(name, step)

    def add(
        self, step: int, message: str, *, aside: bool = True, reason: str = "StillWritten"
    ) -> None:
        """Mark `step` as torn; `aside`: it might still be committed."""
        LOG.error("%s", message)
        self._why[step] = message
        self._aside |= {step} if aside else set()
        self.problem = Problem(type="CheckpointUnfinished", reason=reason, message=message)

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
        checkpoint = CheckpointId(attempt=self.attempt, step=step)
        await set_aside(self.storage, checkpoint, self._why[step])


async def set_aside(storage: AsyncRunStore, checkpoint: CheckpointId, why: str) -> None:
    """Set a checkpoint aside; tries again until the store takes it."""
    backoff = Backoff(0.5, 15.0)
    while True:
        try:
            await storage.set_aside(checkpoint, why)
        except StoreError as error:
            LOG.warning("%s cannot be set aside yet: %s", checkpoint.name, error)
            await asyncio.sleep(backoff.next())
        else:
            return


@dataclass(slots=True)
class AlternatingSaves:
    """Checks the commits of one attempt for ranks that save in turns."""

    problem: Problem | None = None
    """Stays until the attempt ends: its ranks will keep counting different steps."""
    _before: tuple[Manifest, ...] = ()
    """The last two."""

    def saw(self, manifest: Manifest) -> None:
        """Take a commit into account."""
        if manifest.whole:  # one rank's files on purpose, whichever rank it is
            self._before = ()
            return
        last_three = (*self._before, manifest)
        if len(last_three) == 3 and self.problem is None and _alternate(last_three):
            self.problem = _turns_problem(last_three[1], manifest)
        self._before = last_three[-2:]


def _alternate(manifests: tuple[Manifest, ...]) -> bool:
    first, second, third = map(_ranks, manifests)
    return all((first, second, third)) and not second & (first | third)


def _ranks(manifest: Manifest) -> frozenset[int]:
    return frozenset(rank for item in manifest.files for rank in item.ranks)


def _turns_problem(before: Manifest, last: Manifest) -> Problem:
    newer, older = (named_ranks(sorted(_ranks(manifest))) for manifest in (last, before))
    return Problem(
        type="CheckpointPartial",
        reason="RanksTakeTurns",
        message=f"the checkpoint of step {last.step} has files only from {newer}, that of step "
        f"{before.step} only from {older}, so a restart would miss the others' files. If they "
        "belong together, report them with the same step on every rank",
    )
