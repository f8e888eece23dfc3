"""The clerk's life: read what trials have stored, write what the operator wants, tell both.

Layer: clerk. Everything it knows it has from the store, so it may die at any moment, and two may
live. Without an operator it goes on by the last orders: trials that are too bad are told as such.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pydantic import ValidationError

from trainrun.backoff import Backoff
from trainrun.checkpoint import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import InvalidSpec, StoreError, SweepLogDamaged
from trainrun.sweep.clerk import Suggest
from trainrun.sweep.records import LogEntry, Record
from trainrun.sweep.search import Search
from trainrun.sweep.targets import Targets
from trainrun_operator.api.sweep.spec import TrainSweepSpec
from trainrun_operator.clerk.folders import TrialFolders
from trainrun_operator.clerk.line import NoOperator, OperatorLine
from trainrun_operator.core.sweep.clerking import ClerkOrders, ClerkState, ClerkTrouble, piece
from trainrun_operator.core.sweep.config import search_of
from trainrun_operator.runtime.stopwatch import Stopwatch
from trainrun_operator.runtime.suggesting import suggest_of
from trainrun_operator.runtime.trial_folders import RetiredFolders

READ_EVERY = 2.0
"""Seconds between two looks at what trials have stored, while some are open."""
LONGEST_WAIT = 10.0
"""Seconds that the operator is asked to hold an answer back where none are."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between tries while no operator answers."""

_log = logging.getLogger("trainrun.clerk")


class Clerk:
    """Of one sweep."""

    def __init__(self, folder: RunStore, *, sweep_uid: str) -> None:
        """`folder` is the sweep's."""
        self._uid = sweep_uid
        self._records: list[LogEntry] = []
        """The whole log: operators begin with nothing."""
        self._log = SweepLog(folder, on_record=self._keep)
        self._folders = TrialFolders(folder)
        self._retired = RetiredFolders(folder)
        self._sampler: Suggest | None = None
        """Made with the first orders: it can never be another one."""
        self._worked = Stopwatch()
        self._orders = ClerkOrders()
        self._trouble: ClerkTrouble | None = None
        self._said = ""

    async def serve(self, line: OperatorLine) -> None:
        """For ever. Raises SweepGone."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                await asyncio.to_thread(self._settle)
            except (StoreError, SweepLogDamaged, InvalidSpec) as error:
                self._trouble = ClerkTrouble(reason=_reason(error), message=str(error))
            else:
                self._trouble = None
            try:
                self._orders = await line.ask(self._state(), wait=self._wait)
            except NoOperator as error:
                self._say(str(error))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._say("")

    def _settle(self) -> None:
        """Read the log, and bring it to what is wanted. Raises StoreError, SweepLogDamaged, and
        InvalidSpec where the spec is that of another version."""
        orders = self._orders
        self._log.read_on()
        if orders.targets is None:
            return
        search = _search(orders.spec)
        if self._sampler is None:
            self._sampler = self._log.suggest = suggest_of(search.sampler)
        stored = self._folders.read_on(self._log.view, search.objective.metric)
        self._write(self._folders.complete(orders.targets, self._log.view), search, stored)
        self._retired.clear(orders.targets, self._log.view)

    def _write(self, targets: Targets, search: Search, stored: Any) -> None:
        counted = self._log.view.counted_at
        active = self._worked.seconds(running=self._orders.working)
        view = self._log.settle(targets, search, active=active, stored=stored)
        if view.counted_at != counted:
            self._worked.less(active)

    def _state(self) -> ClerkState:
        known = min(self._orders.known, len(self._records))
        return ClerkState(
            sweep_uid=self._uid,
            position=self._log.view.position,
            sent_after=known,
            records=piece(tuple(self._records[known:])),
            trouble=self._trouble,
            seen=self._orders.digest,
        )

    @property
    def _wait(self) -> float:
        return READ_EVERY if self._log.view.count("Open") or self._trouble else LONGEST_WAIT

    def _keep(self, record: Record) -> None:
        self._records.append(LogEntry(record))

    def _say(self, text: str) -> None:
        """Once, not with every try."""
        if text and text != self._said:
            _log.warning("%s", text)
        self._said = text


def _search(spec: dict[str, Any]) -> Search:
    try:
        return search_of(TrainSweepSpec.model_validate(spec))
    except ValidationError as error:
        raise InvalidSpec(f"this clerk cannot read the spec: {error}") from error


def _reason(error: StoreError | SweepLogDamaged | InvalidSpec) -> str:
    match error:
        case SweepLogDamaged():
            return "LogDamaged"
        case InvalidSpec():
            return "ClerkUnable"
        case StoreError():
            return "StorageUnavailable"
