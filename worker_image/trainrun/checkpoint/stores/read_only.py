"""A store that is read as it is and never written: what code that writes would do, without it.

Layer: implements `ObjectStore` over another one. Invariant: each write answers what the real one
would have answered, and nothing is different afterwards; so code that reads back what it has just
written is not for this store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun.errors import ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from trainrun.checkpoint.rules.listing import ObjectInfo
    from trainrun.checkpoint.stores.store import ObjectStore, Progress


@dataclass(frozen=True, slots=True)
class ReadOnlyStore:
    """`ObjectStore` documents the calls."""

    store: ObjectStore

    @property
    def uri(self) -> str:
        """That of the store."""
        return self.store.uri

    def put(self, key: str, data: bytes) -> None:
        """Write nothing."""

    def put_file(
        self, key: str, path: Path, *, crc32: int, progress: Progress | None = None
    ) -> None:
        """Write nothing."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Say whether it would have been written, or stands there already."""
        try:
            return self.store.get(key) == data
        except ObjectNotFound:
            return True

    def get(self, key: str) -> bytes:
        """Read it."""
        return self.store.get(key)

    def size(self, key: str) -> int | None:
        """Ask for it."""
        return self.store.size(key)

    def get_file(
        self, key: str, path: Path, *, size: int, crc32: int | None, tag: str = ""
    ) -> None:
        """Read it."""
        self.store.get_file(key, path, size=size, crc32=crc32, tag=tag)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """List it."""
        return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove nothing."""

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """Give up nothing."""

    def close(self) -> None:
        """Close it."""
        self.store.close()

    def probe(self) -> None:
        """Try nothing."""
