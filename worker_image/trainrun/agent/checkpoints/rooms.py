"""Room for staged checkpoints: `report(checkpoint=)` waits while the backlog is full.

Layer: agent. At most `max_pending` steps with files that are not in the store yet. A step that has
room has it for every rank: else one rank's files could keep out those that complete them. One that
only waits for ranks to report their next step takes none: they may wait for the rank that asks.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from trainrun.agent.checkpoints.staged import StagedSteps, Step


@dataclass(slots=True, kw_only=True)
class Rooms:
    """Who may stage, in one attempt."""

    staged: StagedSteps
    max_pending: int
    _granted: dict[int, int] = field(default_factory=dict)
    """Step for which a rank may stage and has not reported yet, by rank."""
    _waiters: set[asyncio.Future[None]] = field(default_factory=set)
    _since: dict[int, float] = field(default_factory=dict)
    _stalled: dict[int, float] = field(default_factory=dict)

    async def wait(self, rank: int, step: int) -> None:
        """Return when the files of `rank` for `step` may be staged."""
        self._granted.pop(rank, None)
        self._since[rank] = time.monotonic()
        try:
            while not self._has_room(step):
                change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(change)
                try:
                    await change
                finally:
                    self._waiters.discard(change)
            self._granted[rank] = step
        finally:
            waited = time.monotonic() - self._since.pop(rank)
            self._stalled[rank] = self._stalled.get(rank, 0.0) + waited

    def used(self, rank: int) -> None:
        """`rank` has reported: what it was granted is used."""
        self._granted.pop(rank, None)

    def limit(self, max_pending: int) -> None:
        """The user has edited it."""
        self.max_pending = max_pending
        self.wake()

    def wake(self) -> None:
        """The backlog may have changed."""
        for change in self._waiters:
            if not change.done():
                change.set_result(None)

    @property
    def wait_for_store(self) -> bool:
        """Somebody waits while a step is being uploaded, and not for other ranks' files alone."""
        return bool(self._since) and any(map(self._is_uploading, self.staged.pending()))

    def _is_uploading(self, entry: Step) -> bool:
        return self.staged.complete(entry.step)

    def stall(self, now: float) -> float:
        """Seconds that the rank which has waited most has waited so far."""
        waits = {rank: now - since for rank, since in self._since.items()}
        ranks = {*self._stalled, *waits}
        return max((self._stalled.get(r, 0.0) + waits.get(r, 0.0) for r in ranks), default=0.0)

    def _has_room(self, step: int) -> bool:
        pending = {entry.step for entry in self.staged.pending()}
        taken = {step for step in pending if not self._waits_for_a_word(step)}
        taken |= set(self._granted.values())
        unwanted = step <= self.staged.committed or step in self.staged.dropped
        return unwanted or step in pending | taken or len(taken) < self.max_pending

    def _waits_for_a_word(self, step: int) -> bool:
        return not self.staged.complete(step) and self.staged.only_open(step)
