"""Metrics on their way to the store, where slot 0's agent writes the history of a run.

Layer: agent. Best effort: metrics never fail anything; what the store does not take now waits,
bounded. A commit waits for one try: the metrics of its step are stored before it, if they can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.errors import StoreError

LOG = logging.getLogger("trainrun.agent")

KEPT_REPORTS = 20_000
"""Reports kept while the store is away; the oldest go first."""

_Report = tuple[int, int, Mapping[str, object]]
"""Step, rank, metrics: made a record only when a piece is written, since reports may be many."""


@dataclass(slots=True, kw_only=True)
class MetricsQueue:
    """The metrics of one attempt."""

    attempt: int
    storage: AsyncRunStore
    interval: float
    """Seconds between two pieces."""
    _reports: deque[_Report] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False

    def start(self) -> None:
        """Begin to write pieces."""
        background.run(self._run())

    def add(self, rank: int, step: int, metrics: Mapping[str, object]) -> None:
        """Keep one report's metrics."""
        self._reports.append((step, rank, metrics))

    def hurry(self) -> None:
        """Write what has gathered now: the processes have ended."""
        self._wake.set()

    async def write(self) -> None:
        """Write what has gathered as one piece; what is being written is waited for."""
        async with self._writing:
            await self._write()

    def close(self) -> None:
        """The next attempt begins: write what has gathered, and nothing more."""
        self._closed = True
        self.hurry()

    async def _run(self) -> None:
        while not self._closed:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.interval)
            self._wake.clear()
            await self.write()

    async def _write(self) -> None:
        if not self._reports:
            return
        reports = list(self._reports)
        self._reports.clear()
        records = [
            {"step": step, "rank": rank, "metrics": metrics} for step, rank, metrics in reports
        ]
        try:
            await self.storage.write_metrics(self.attempt, records)
        except StoreError as error:
            LOG.info("metrics wait to be stored: %s", error)
            room = KEPT_REPORTS - len(self._reports)
            self._reports.extendleft(reversed(reports[max(0, len(reports) - room) :]))
