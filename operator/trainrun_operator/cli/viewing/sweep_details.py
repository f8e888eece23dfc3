"""Everything that the page of one sweep shows, kept up to date while somebody looks at it.

Layer: cli. Its log is read on every two seconds. The folders of trials that had trouble are read
again only twice a minute: they may be twenty.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.sweep_log import SweepLog
from trainrun_operator.cli.explaining.search_life import (
    SearchLife,
    resume_command_of,
    search_life_of,
)
from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.cli.viewing.run_details import UNUSED

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion

LOOK, LIVES = 2.0, 30.0
"""Seconds between two looks at the log, and at the folders of trials."""


@dataclass(slots=True, kw_only=True)
class SweepDetails:
    """What is known of one sweep."""

    catalog: RunCatalog
    row: RunRow
    life: SearchLife | None = None
    """None: it has no log yet, or it was not read yet."""
    trouble: str = ""
    """Why it could not be read the last time; empty: it could."""
    asked: float = field(default_factory=time.monotonic)
    changes: int = 0
    """Grows with each read."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was read."""
    _log: SweepLog | None = None
    _lives_read: float = -math.inf

    async def run(self) -> None:
        """Keep it up to date until nobody asks any more."""
        while time.monotonic() - self.asked < UNUSED:
            self.row = self.catalog.current(self.row)
            try:
                self.trouble = await self._read()
            except Exception as error:  # noqa: BLE001 - whatever it has told, the page goes on
                self.trouble = str(error) or type(error).__name__
            self.changes += 1
            self.ready.set()
            await asyncio.sleep(LOOK)

    async def _read(self) -> str:
        """Read on; returns what is wrong with the log."""
        row, watch, version = self.row, self.catalog.watch, None
        if row.kind == "cluster" and watch is not None:
            version = await watch.read_sweep(row.namespace, row.name)
        return await asyncio.to_thread(self._read_log, version)

    def _read_log(self, version: SweepVersion | None) -> str:
        if self._log is None:
            self._log = SweepLog(self.row.source.checkpoints())
        damage = self._log.read_before_damage()
        if self._log.view.sessions:
            sweep = ReadSweep(
                folder=self._log.folder,
                view=self._log.view,
                described=None if version is None else version.sweep,
                version=version,
            )
            if self.life is not None and time.monotonic() - self._lives_read < LIVES:
                self.life = replace(self.life, sweep=sweep)
            else:
                self.life = search_life_of(sweep, resume_command=resume_command_of(sweep))
                self._lives_read = time.monotonic()
        return "" if damage is None else f"only the records before this one: {damage}"
