"""The history of metrics in the store: numbered pieces, each written once, by slot 0's agent.

Layer: agent. Best effort: metrics never delay or fail anything; what the store does not take now
waits, bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainrun.agent.storage import Storage
from trainrun.errors import StoreError

LOG = logging.getLogger("trainrun.agent")

INTERVAL = 30.0
"""Seconds between two pieces."""
KEPT_LINES = 20_000
"""Lines kept while the store is away; the oldest go first."""


@dataclass(slots=True, kw_only=True)
class MetricsLog:
    """The metrics of one attempt."""

    attempt: int
    storage: Storage
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    _number: int = 0
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write pieces."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, rank: int, step: int, metrics: Mapping[str, object]) -> None:
        """Keep one report's metrics."""
        line = json.dumps({"step": step, "rank": rank, "metrics": metrics}, allow_nan=False)
        self._lines.append(line)

    async def write(self) -> None:
        """Write what has gathered as one piece."""
        if not self._lines:
            return
        lines = list(self._lines)
        self._lines.clear()
        text = "".join(f"{line}\n" for line in lines)
        try:
            self._number = await self.storage.write_metrics(self.attempt, self._number + 1, text)
        except StoreError as error:
            LOG.info("metrics wait to be stored: %s", error)
            self._lines.extendleft(reversed(lines[: KEPT_LINES - len(self._lines)]))

    def close(self) -> None:
        """Write nothing more for this attempt."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await self.write()
