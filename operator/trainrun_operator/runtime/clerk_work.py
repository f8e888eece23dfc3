"""The work of a sweep's clerk, but for its line to the operator: one round of it.

Layer: runtime. Everything it knows it has from the store, so it may die at any moment, and two may
live. By the last orders it goes on without an operator: trials that are too bad are told as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trainrun.checkpoint.numbered_log import VOLUME
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import (
    InvalidSpec,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    SweepLogDamaged,
)
from trainrun.sweep.clerk import Suggest
from trainrun.sweep.records import LogEntry, Record, TrialReport
from trainrun.sweep.search import Search
from trainrun.sweep.targets import Targets
from trainrun_operator.api.sweep.spec import TrainSweepSpec
from trainrun_operator.core.sweep.clerking import (
    REFUSED,
    ClerkOrders,
    ClerkState,
    ClerkTrouble,
    piece,
)
from trainrun_operator.core.sweep.config import search_of
from trainrun_operator.runtime.suggesting import suggest_of
from trainrun_operator.runtime.trial_folders import RetiredFolders, TrialFolders

BELIEVED = 60.0
"""Seconds for which trials count as at work while neither the operator nor a report says so."""


class Stopwatch:
    """Of one sweep."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._at = clock()
        self._running = False

    def seconds(self, *, running: bool) -> float:
        """So many by now; from here on trials are at work, or none is."""
        now = self._clock()
        if self._running:
            self._seconds += now - self._at
        self._at, self._running = now, running
        return self._seconds

    def less(self, seconds: float) -> None:
        """So many stand in a record now."""
        self._seconds -= seconds


class ClerkWork:
    """Of one clerk of one sweep."""

    def __init__(
        self,
        folder: RunStore,
        *,
        sweep_uid: str,
        clock: Callable[[], float] = time.monotonic,
        volume: int = VOLUME,
    ) -> None:
        """`folder` is the sweep's, `volume` as a `SweepLog` has it."""
        self._uid = sweep_uid
        self._records: list[LogEntry] = []
        """The whole log: operators begin with nothing."""
        self._log = SweepLog(folder, on_record=self._keep, volume=volume)
        self._folders = TrialFolders(folder)
        self._retired = RetiredFolders(folder)
        self._sampler: Suggest | None = None
        """Made with the first orders: it can never be another one."""
        self._clock = clock
        self._worked = Stopwatch(clock)
        self._at_work = clock()
        """When somebody has said so last."""
        self._trouble: ClerkTrouble | None = None
        self._search: tuple[dict[str, Any], Search] | None = None
        """The last one, and the spec that it was read from."""
        self._orders = ClerkOrders()

    @property
    def orders(self) -> ClerkOrders:
        """What it goes by, until others come."""
        return self._orders

    def hear(self, orders: ClerkOrders) -> None:
        """From now on it goes by these."""
        self._orders, self._at_work = orders, self._clock()

    @property
    def busy(self) -> bool:
        """Something may come to be stored, or could not be done."""
        return bool(self._log.view.count("Open") or self._trouble)

    def settle(self) -> None:
        """Read the log, and bring it to what is wanted; what stands in the way is told."""
        try:
            self._settle()
        except (StoreError, SweepLogDamaged, InvalidSpec) as error:
            self._trouble = ClerkTrouble(reason=_reason(error), message=str(error))
        else:
            self._trouble = None

    def state(self) -> ClerkState:
        """What the operator is told."""
        known = min(self.orders.known, len(self._records))
        return ClerkState(
            sweep_uid=self._uid,
            position=self._log.view.position,
            sent_after=known,
            records=piece(tuple(self._records[known:])),
            trouble=self._trouble,
            seen=self.orders.digest,
        )

    def _settle(self) -> None:
        orders = self.orders
        self._log.read_on()
        if orders.targets is None:
            return
        search = self._searched(orders.spec)
        if self._sampler is None:
            self._sampler = self._log.suggest = suggest_of(search.sampler)
        stored = self._folders.read_on(self._log.view, search.objective.metric)
        self._write(self._folders.complete(orders.targets, self._log.view), search, stored)
        self._retired.clear(orders.targets, self._log.view)

    def _write(self, targets: Targets, search: Search, stored: tuple[TrialReport, ...]) -> None:
        counted, now = self._log.view.counted_at, self._clock()
        if stored:
            self._at_work = now
        # Whoever has said so may be gone since, and the trials may have ended.
        running = self.orders.working and now - self._at_work < BELIEVED
        active = self._worked.seconds(running=running)
        view = self._log.settle(targets, search, active=active, stored=stored)
        if view.counted_at != counted:
            self._worked.less(active)

    def _searched(self, spec: dict[str, Any]) -> Search:
        """What this spec searches. Raises InvalidSpec where it is that of another version."""
        if self._search is None or self._search[0] != spec:
            try:
                self._search = spec, search_of(TrainSweepSpec.model_validate(spec))
            except ValueError as error:
                raise InvalidSpec(f"this clerk cannot read the spec: {error}") from error
        return self._search[1]

    def _keep(self, record: Record) -> None:
        self._records.append(LogEntry(record))


def _reason(error: StoreError | SweepLogDamaged | InvalidSpec) -> str:
    match error:
        case SweepLogDamaged():
            return "LogDamaged"
        case InvalidSpec():
            return "ClerkUnable"
        case StoreDenied() | StoreMisconfigured():
            return REFUSED
        case StoreError():
            return "StorageUnavailable"
