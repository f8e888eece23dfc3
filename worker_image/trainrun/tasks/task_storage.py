"""Task storage: what must store the log and the results of a program, and how a driver calls it.

Layer: tasks. Inside a run the agent is the storage, since only the agent knows the store; outside,
it is a folder. Names of objects are relative to `tasks/objects/`. One driver writes a log: a driver
that finds another driver's batch at its own position has lost the program to that driver.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from trainrun.contract import wire
from trainrun.errors import ObjectNotFound, StoreError
from trainrun.tasks import LogTaken
from trainrun.tasks.records import Batch, Record
from trainrun.tasks.values import digest_of

LOG = logging.getLogger("trainrun.tasks")

FOLDER = Path(".trainrun/tasks")
"""Where programs outside a run keep their logs, below the working folder."""
BY_HAND = "cli"
"""`Batch.session` of a user's command, which may land between a driver's batches."""
AWAY = "%s does not answer (%s). Running tasks continue; no new task starts until it answers"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""First and longest pause in seconds before a store that does not answer is asked again."""

T = TypeVar("T")


class TaskStorage(Protocol):
    """Several threads may call it; a call takes as long as the store does.

    Every call raises StoreError if the store fails; the outcome is then unknown.
    """

    @property
    def uri(self) -> str:
        """Address of `tasks/`, for messages."""

    def read(self, after: int) -> list[bytes]:
        """All batches of the log after this position, in order. Positions start at 1.

        Raises TaskLogDamaged if one is missing or damaged."""

    def append(self, position: int, batch: bytes) -> bool:
        """Write the batch at this position. False: another batch is already there."""

    def upload(self, path: Path, name: str) -> None:
        """Store this file, replacing an existing object."""

    def download(self, name: str, path: Path) -> None:
        """Download an object to a new file. Raises ObjectNotFound. The caller checks the digest,
        and removes what a failed download leaves."""

    def sizes(self, names: list[str]) -> list[int | None]:
        """Size in bytes of each object; None if it does not exist."""

    def set_aside(self, name: str) -> None:
        """Move a damaged object to `tasks/damaged/`."""


def digest_in(storage: TaskStorage, name: str, file: Path) -> str:
    """sha256 of the stored object; empty if it does not exist. Downloads to `file`, then deletes
    it."""
    try:
        storage.download(name, file)
        return digest_of(file)
    except ObjectNotFound:
        return ""
    finally:
        file.unlink(missing_ok=True)


def to_bytes(batch: Batch) -> bytes:
    """The batch as the log stores it."""
    return json.dumps(wire.encode(batch), separators=(",", ":")).encode()


def from_bytes(data: bytes) -> Batch:
    """The batch. Raises MalformedMessage."""
    return wire.decode(Batch, wire.parsed(data))


class RetryingTaskStorage:
    """A TaskStorage for asyncio that retries until the store answers."""

    def __init__(
        self, storage: TaskStorage, threads: Callable[..., Awaitable[Any]] = asyncio.to_thread
    ) -> None:
        """`threads` runs a function in another thread and awaits it."""
        self.storage = storage
        self._threads = threads
        self._warned = False

    async def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the storage. Raises ObjectNotFound, and every error but StoreError."""
        pause = FIRST_PAUSE
        while True:
            try:
                answer: T = await self._threads(function, *arguments)
            except ObjectNotFound:
                raise
            except StoreError as error:
                if not self._warned:
                    LOG.warning(AWAY, self.storage.uri, error)
                self._warned = True
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                self._warned = False
                return answer


class TaskLog:
    """The log of a program: read once, then appended to."""

    def __init__(
        self, storage: RetryingTaskStorage, session: str, clock: Callable[[], float]
    ) -> None:
        self.session = session
        self._storage = storage
        self._clock = clock
        self._position = 0
        self._begun = False

    async def read(self) -> list[Record]:
        """Every record. Raises TaskLogDamaged."""
        found = await self._storage(self._storage.storage.read, 0)
        self._position = len(found)
        return [record for data in found for record in from_bytes(data).records]

    async def append(self, records: tuple[Record, ...]) -> list[Record]:
        """Append a batch. Returns the records that others wrote before it: users' commands and,
        before our first batch, those of the previous driver.

        Raises LogTaken if another driver has written; then this batch is not in the log.
        """
        data = to_bytes(Batch(session=self.session, records=records, time=self._clock()))
        between: list[Record] = []
        while not await self._storage(self._storage.storage.append, self._position + 1, data):
            found = await self._storage(self._storage.storage.read, self._position)
            for there in found:
                self._position += 1
                if there == data:  # we wrote it, and the answer was lost
                    self._begun = True
                    return between
                between += self._of_others(there).records
            if not found:  # some stores list a new object late
                await asyncio.sleep(FIRST_PAUSE)
        self._position += 1
        self._begun = True
        return between

    def _of_others(self, data: bytes) -> Batch:
        batch = from_bytes(data)
        # The last batch of the previous driver may arrive after its death.
        if self._begun and batch.session != BY_HAND:
            uri = self._storage.storage.uri
            raise LogTaken(f"another driver has taken over the tasks in {uri}, so this one stops")
        return batch
