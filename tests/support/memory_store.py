"""An object store in memory, for tests that try thousands of lives."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.stores.store import Progress, check_key
from trainrun.errors import CheckpointDamaged, ObjectNotFound


class MemoryStore:
    """Keeps the promises of `ObjectStore`; `objects` may be damaged at will."""

    uri = "memory://store"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self.objects[check_key(key)] = data

    def put_file(
        self, key: str, path: Path, *, crc32: int | None = None, progress: Progress | None = None
    ) -> int:
        data = path.read_bytes()
        found = zlib.crc32(data)
        assert crc32 in (None, found)
        self.put(key, data)
        return found

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            return self.objects.setdefault(check_key(key), data) == data

    def get(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectNotFound(key) from None

    def size(self, key: str) -> int | None:
        return len(self.objects[key]) if key in self.objects else None

    def get_file(self, key: str, path: Path, *, size: int, crc32: int | None, **_: object) -> None:
        data = self.get(key)
        if len(data) != size or crc32 not in (None, zlib.crc32(data)):
            raise CheckpointDamaged(key)
        path.write_bytes(data)

    def list(self, prefix: str) -> list[ObjectInfo]:
        with self._lock:
            return [
                ObjectInfo(key=key, size=len(data), modified=0.0)
                for key, data in sorted(self.objects.items())
                if key.startswith(prefix)
            ]

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        pass

    def close(self) -> None:
        pass

    def probe(self) -> None:
        pass
