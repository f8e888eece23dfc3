"""Records stored next to checkpoints: metrics, last lines of processes, the run's story.

Layer: agent. Best effort in the background: no process or order waits for it or fails because of
it; what the store does not accept now waits in bounded memory. Only a commit waits, for one try:
the metrics of its step are stored first, if possible. What an agent has not stored when it dies is
missing, and readers see the gap.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainrun._common.backoff import Backoff, ends_early
from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.logs import WorkerLog
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.contract.answer import StoryEntry
from trainrun.contract.masking import masked_object
from trainrun.contract.wire import LARGEST_STORY_ENTRY
from trainrun.errors import StoreError

LOG = logging.getLogger("trainrun.agent")

KEPT_REPORTS = 20_000
"""Reports kept while the store is away; the oldest are dropped first."""

_Report = tuple[int, int, Mapping[str, object]]
"""Step, rank, metrics: becomes a record only when it is written, since there may be many."""


@dataclass(slots=True, kw_only=True)
class MetricsQueue:
    """The metrics of one attempt."""

    attempt: int
    storage: AsyncRunStore
    interval: float
    """Seconds between two writes."""
    _log: MetricsLog = field(init=False)
    _reports: deque[_Report] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False

    def __post_init__(self) -> None:
        self._log = MetricsLog(self.attempt)

    def start(self) -> None:
        """Start writing periodically."""
        background.run(self._run())

    def add(self, rank: int, step: int, metrics: Mapping[str, object]) -> None:
        """Keep one report's metrics."""
        self._reports.append((step, rank, metrics))

    def hurry(self) -> None:
        """Write the collected reports now: the processes have ended."""
        self._wake.set()

    async def write(self) -> None:
        """Write the collected reports as one object, after any write under way."""
        async with self._writing:
            await self._write()

    def close(self) -> None:
        """The next attempt begins: write the collected reports, then stop."""
        self._closed = True
        self.hurry()

    async def _run(self) -> None:
        while not self._closed:
            await ends_early(self._wake, self.interval)
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
            await self.storage.on_run(self._log.write, records)
        except StoreError as error:
            LOG.info("metrics wait to be stored: %s", error)
            room = KEPT_REPORTS - len(self._reports)
            self._reports.extendleft(reversed(reports[max(0, len(reports) - room) :]))


LOG_PAUSE = (3.0, 10.0)
"""Random delay in seconds, so that workers store at different times and not while they start."""
MOST_LOGS = 3
"""Attempts whose lines wait while the store is away; the oldest are dropped first."""


@dataclass(slots=True, kw_only=True)
class LogKeeping:
    """Stores the last lines of ended attempts; of one agent.

    Waits until checkpoint uploads are done, and some seconds longer if the worker stays: the next
    start needs the CPU and the store.
    """

    storage: AsyncRunStore
    _newest: int = 0
    """The newest attempt whose lines were taken."""
    _waiting: deque[WorkerLog] = field(default_factory=lambda: deque(maxlen=MOST_LOGS))
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def keep(self, attempt: int, lines: Callable[[], WorkerLog]) -> None:
        """Store the last lines of an attempt whose processes have all ended, once."""
        if attempt <= self._newest:
            return
        self._newest = attempt
        self._waiting.append(lines())
        if self._task is None or self._task.done():
            self._task = background.run(self._run())

    async def finished(self) -> None:
        """Store all waiting lines now, and return when they are stored."""
        self._hurry.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        backoff = Backoff(0.5, 10.0)
        await ends_early(self._hurry, random.uniform(*LOG_PAUSE))
        while self._waiting:
            log = self._waiting[0]
            try:
                await self.storage.write_log(log)
            except StoreError as error:
                LOG.debug("the last lines of attempt %d wait: %s", log.attempt, error)
                await asyncio.sleep(backoff.next())
                continue
            # A newer log may have pushed it out meanwhile.
            if self._waiting and self._waiting[0] is log:
                self._waiting.popleft()


@dataclass(slots=True, kw_only=True)
class Recording:
    """Stores chapters of the run's story while the operator asks for it; of one agent.

    Each chapter is written once, masked: if an agent dies while writing, the operator asks the next
    one.
    """

    storage: AsyncRunStore
    news: Callable[[], None]
    _wanted: dict[int, str] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    @property
    def done(self) -> tuple[int, ...]:
        """Numbers of the requested chapters that are stored."""
        return tuple(sorted(self._done & self._wanted.keys()))

    def want(self, entries: tuple[StoryEntry, ...]) -> None:
        """Store these chapters and no others."""
        self._wanted = {entry.number: entry.text for entry in entries}
        if self._missing() and (self._task is None or self._task.done()):
            self._task = background.run(self._run())

    async def finished(self) -> None:
        """Wait until all is stored."""
        if self._task is not None:
            await self._task

    def _missing(self) -> list[int]:
        return sorted(self._wanted.keys() - self._done)

    async def _run(self) -> None:
        backoff = Backoff(0.5, 10.0)
        while missing := self._missing():
            number = missing[0]
            try:
                await self._write(number, self._wanted[number])
            except StoreError as error:
                LOG.debug("chapter %d of the story waits: %s", number, error)
                await asyncio.sleep(backoff.next())

    async def _write(self, number: int, text: str) -> None:
        try:
            chapter = json.loads(text) if len(text) <= LARGEST_STORY_ENTRY else None
        except (ValueError, RecursionError):
            chapter = None
        if isinstance(chapter, dict):
            await self.storage.write_story(number, masked_object(chapter))
        else:
            LOG.warning("chapter %d of the story is malformed or too large: not stored", number)
        self._done.add(number)
        self.news()
