"""The log and the results of a program of tasks: what keeps them must do, and how a driver asks it.

Layer: tasks. Under an agent that place is the agent, which alone knows the store; elsewhere a
folder. Names of objects are relative to `tasks/objects/`. One driver writes a log: whoever finds
another driver's batch at its own position has lost the program to that one.
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
"""Of the logs of programs outside of a run, below the working folder."""
BY_HAND = "cli"
"""`Batch.session` of a person's command, which may come between the batches of a driver."""
AWAY = "%s does not answer (%s). Running tasks go on, and no new one starts until it does"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between two tries of a store that does not answer."""

T = TypeVar("T")


class TaskStorage(Protocol):
    """Calls may be made from several threads, and take as long as a store takes.

    Each raises StoreError where the store does not do it; nothing is known then.
    """

    @property
    def uri(self) -> str:
        """Address of `tasks/`, for people."""

    def read(self, after: int) -> list[bytes]:
        """All batches of the log behind this position, in order. The first has position 1.

        Raises TaskLogDamaged where one is missing or damaged."""

    def append(self, position: int, batch: bytes) -> bool:
        """Write the batch at this position; False: another one stands there."""

    def upload(self, path: Path, name: str) -> None:
        """Store this file. One that is there already is replaced."""

    def download(self, name: str, path: Path) -> None:
        """Bring an object to a new file. Raises ObjectNotFound. Its digest is the caller's
        business, and so is what is left of the file where this fails."""

    def sizes(self, names: list[str]) -> list[int | None]:
        """Bytes of each object; None: it is not there."""

    def set_aside(self, name: str) -> None:
        """Move a damaged object to `tasks/damaged/`."""


def digest_in(storage: TaskStorage, name: str, file: Path) -> str:
    """sha256 of the object as the keep has it now; empty: it has none. `file` is used meanwhile."""
    try:
        storage.download(name, file)
        return digest_of(file)
    except ObjectNotFound:
        return ""
    finally:
        file.unlink(missing_ok=True)


def to_bytes(batch: Batch) -> bytes:
    """What the log holds of it."""
    return json.dumps(wire.encode(batch), separators=(",", ":")).encode()


def from_bytes(data: bytes) -> Batch:
    """The batch. Raises MalformedMessage."""
    return wire.decode(Batch, wire.parsed(data))


class RetryingTaskStorage:
    """A Keep for asyncio: it asks again until the store answers."""

    def __init__(
        self, storage: TaskStorage, threads: Callable[..., Awaitable[Any]] = asyncio.to_thread
    ) -> None:
        """`threads` calls a function elsewhere, and waits for it."""
        self.storage = storage
        self._threads = threads
        self._warned = False

    async def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the Keep. Raises ObjectNotFound, and what is no StoreError."""
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
    """Reads all of it once, then appends."""

    def __init__(
        self, storage: RetryingTaskStorage, session: str, clock: Callable[[], float]
    ) -> None:
        self.session = session
        self._storage = storage
        self._clock = clock
        self._position = 0
        self._begun = False

    async def read(self) -> list[Record]:
        """All that it says. Raises TaskLogDamaged."""
        found = await self._storage(self._storage.storage.read, 0)
        self._position = len(found)
        return [record for data in found for record in from_bytes(data).records]

    async def append(self, records: tuple[Record, ...]) -> list[Record]:
        """Append a batch; returns what was written before it: of people's commands, and,
        before the first one of ours, of the driver before.

        Raises LogTaken where another driver has written; then this batch is not in the log.
        """
        data = to_bytes(Batch(session=self.session, records=records, time=self._clock()))
        between: list[Record] = []
        while not await self._storage(self._storage.storage.append, self._position + 1, data):
            found = await self._storage(self._storage.storage.read, self._position)
            for there in found:
                self._position += 1
                if there == data:  # it was written, and the answer to that was lost
                    self._begun = True
                    return between
                between += self._of_others(there).records
            if not found:  # some stores show a new object late
                await asyncio.sleep(FIRST_PAUSE)
        self._position += 1
        self._begun = True
        return between

    def _of_others(self, data: bytes) -> Batch:
        batch = from_bytes(data)
        # The last batch of the driver before may arrive after its death.
        if self._begun and batch.session != BY_HAND:
            uri = self._storage.storage.uri
            raise LogTaken(f"another driver has taken over the tasks in {uri}; this one ends")
        return batch
