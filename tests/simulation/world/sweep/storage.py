"""The store of a simulated sweep, and the lines to it: calls take time, fail, land unheard.

Layer: simulation. It keeps the promises of `ObjectStore`: an object is absent or whole, and a call
that has raised may have happened. The judge is asked about each record before it stands there, and
about each checkpoint before it goes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Literal, NoReturn

from tests.simulation.world.sweep.judge import BrokenPromise, SweepJudge
from trainrun.checkpoint.records import read_checksummed
from trainrun.checkpoint.selection import ObjectInfo
from trainrun.contract import layout
from trainrun.errors import ObjectNotFound, StoreUnavailable
from trainrun.sweep.records import LogEntry, SweepSession

SWEEP = "s"
"""Name of the sweep, and of its folder."""
LOG = f"{SWEEP}/{layout.SWEEP_LOG}"

Moment = tuple[Literal["before", "after"], str, str]
"""Of a call to the store: before or after it, which, and the key or prefix."""


class SimulatedStorage:
    """What lies in the store."""

    uri = "s3://bucket/sweeps"

    def __init__(self, judge: SweepJudge) -> None:
        self.judge = judge
        self.away = False
        self.objects: dict[str, bytes] = {}
        self._keys: list[str] = []

    def holds(self, key: str) -> bool:
        """Whether it is there."""
        return key in self.objects

    def put(self, key: str, data: bytes) -> None:
        """Write it, over whatever is there."""
        if (copied := layout.read_volume(key)) is not None:
            records = (layout.record_key(LOG, position) for position in copied)
            if b"".join(self.objects[record] for record in records) != data:
                raise BrokenPromise(f"{key} is no copy of its records")
        elif key.startswith(LOG):
            raise BrokenPromise(f"{key} is written without asking whether it is there")
        self._put(key, data)

    def _put(self, key: str, data: bytes) -> None:
        if key not in self.objects:
            insort(self._keys, key)
        self.objects[key] = data

    def put_if_absent(self, key: str, data: bytes, writer: SweepSession | None) -> bool:
        """Write it where nothing is; `writer` is the session of the clerk that does it."""
        if key in self.objects:
            return self.objects[key] == data
        if key.startswith(LOG):
            position = layout.read_number(key)
            assert position is not None, key
            self.judge.record(position, read_checksummed(LogEntry, data, name=key).record, writer)
        self._put(key, data)
        return True

    def list(self, prefix: str) -> list[ObjectInfo]:
        """What is below it."""
        found, at = [], bisect_left(self._keys, prefix)
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            key = self._keys[at]
            found.append(ObjectInfo(key=key, size=len(self.objects[key]), modified=0.0))
            at += 1
        return found

    def delete(self, key: str, *, best: int | None) -> None:
        """Remove it; `best` is how many trials' checkpoints are to be kept, as the clerk knows."""
        if self._remove(key):
            self.judge.deleted(key, best)

    def lose_log(self, kept: int) -> None:
        """Somebody puts back the log as it was when it had so many records."""
        for key in [it.key for it in self.list(LOG)]:
            if (layout.read_number(key) or (layout.read_volume(key) or [0])[-1]) > kept:
                self._remove(key)
        self.judge.lose(kept)

    def _remove(self, key: str) -> bool:
        if self.objects.pop(key, None) is None:
            return False
        del self._keys[bisect_left(self._keys, key)]
        return True


class StoreLine:
    """The line of somebody to the store; an `ObjectStore`."""

    def __init__(self, storage: SimulatedStorage, pause: Callable[[Moment], None]) -> None:
        """`pause` is called before and after each call: others act meanwhile. It may raise."""
        self._storage = storage
        self._pause = pause
        self.writer: SweepSession | None = None
        """The session for which is written."""
        self.best: int | None = None
        """How many trials' checkpoints are kept."""

    @property
    def uri(self) -> str:
        """Of the store."""
        return self._storage.uri

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._reach("before", "put", key)
        self._storage.put(key, data)
        self._reach("after", "put", key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object where none is."""
        self._reach("before", "put_if_absent", key)
        done = self._storage.put_if_absent(key, data, self.writer)
        self._reach("after", "put_if_absent", key)
        return done

    def get(self, key: str) -> bytes:
        """Read an object. Raises ObjectNotFound."""
        self._reach("before", "get", key)
        try:
            return self._storage.objects[key]
        except KeyError:
            raise ObjectNotFound(key) from None

    def size(self, key: str) -> int | None:
        """Bytes of an object."""
        self._reach("before", "size", key)
        found = self._storage.objects.get(key)
        return None if found is None else len(found)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """What is below it."""
        self._reach("before", "list", prefix)
        return self._storage.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, one after the other."""
        for key in keys:
            self._reach("before", "delete", key)
            self._storage.delete(key, best=self.best)

    def put_file(self, *_: object, **__: object) -> NoReturn:
        """Nobody does that here."""
        raise NotImplementedError("simulated trials have no files")

    get_file = put_file

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """There are none."""

    def close(self) -> None:
        """Nothing is open."""

    def probe(self) -> None:
        """It is in order."""

    def _reach(self, when: Literal["before", "after"], call: str, key: str) -> None:
        # Several reads at once are one moment of the life: only whoever acts lets others act.
        if threading.current_thread() is threading.main_thread():
            self._pause((when, call, key))
        if self._storage.away:
            raise StoreUnavailable("the store is away")
