"""Storing what the operator tells of the run's story, as long as it asks for it.

Layer: agent. In the background and best effort: no process and no order waits for it. Each chapter
is written once, masked: an agent that dies while writing has written it or not, and the next one is
asked again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.backoff import Backoff
from trainrun.contract.answer import StoryEntry
from trainrun.contract.masking import masked_object
from trainrun.contract.wire import LARGEST_STORY_ENTRY
from trainrun.errors import StoreError

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class Recording:
    """Of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    _wanted: dict[int, str] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    @property
    def done(self) -> tuple[int, ...]:
        """Numbers of what is asked for now that is in the store."""
        return tuple(sorted(self._done & self._wanted.keys()))

    def want(self, entries: tuple[StoryEntry, ...]) -> None:
        """Store these, and nothing else."""
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
            LOG.warning("chapter %d of the story is none: not stored", number)
        self._done.add(number)
        self.news()
