"""What an informer knows: the newest projection of each object, and nothing older ever again.

Layer: kube; pure. Objects reach it on three ways that overtake each other: lists,
watch events, and the answers to our own writes. Invariants: an older resourceVersion never replaces
a newer one; what was deleted does not come back by an answer that is late; every difference is told
once, a deletion that nobody saw included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Raw = Mapping[str, Any]

REMEMBERED_DELETIONS = 4096
"""Deleted objects whose late answers are known as such; each costs about 200 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[T]):
    """One object."""

    key: str
    uid: str
    version: int
    """Its resourceVersion: a number that grows with every write to the cluster."""
    item: T


@dataclass(kw_only=True, eq=False, repr=False)
class Cache(Generic[T]):
    """Objects by key. `on_change` gets (before, after); None: it is not there."""

    project: Callable[[dict[str, Any]], T | None]
    """What matters of an object; None: it is none of ours."""
    key: Callable[[T], str]
    on_change: Callable[[T | None, T | None], None]

    def __post_init__(self) -> None:
        self._entries: dict[str, Entry[T]] = {}
        self._items: dict[str, T] = {}
        self._keys: dict[str, str] = {}
        self._deleted: dict[str, int] = {}
        """uid -> the version at which it was gone; a newer one is an object that is ours again."""
        self.items: Mapping[str, T] = MappingProxyType(self._items)
        """Live; changes while one awaits."""

    def put(self, raw: dict[str, Any]) -> bool:
        """The object as it is, or was at its resourceVersion; False: it is none of ours."""
        if self.knows(raw):
            return True  # the watch tells of our own writes, which their answers have told
        if (entry := self.entry(raw)) is not None:
            self.take(entry)
            return True
        uid, version = identity(raw)
        if self._of(uid) is not None:
            self.remove(uid, version=version)  # it may become ours again
        return False

    def knows(self, raw: Raw) -> bool:
        """Whether this version is no news: it is what we have, is older, or was before the end."""
        uid, version = identity(raw)
        return version <= self._newest(uid)

    def entry(self, raw: dict[str, Any]) -> Entry[T] | None:
        """The projection of an object that is news; None: it is none of ours."""
        item = self.project(raw)
        if item is None:
            return None
        uid, version = identity(raw)
        return Entry(key=self.key(item), uid=uid, version=version, item=item)

    def take(self, entry: Entry[T]) -> None:
        """It is there; nothing where there are newer news by now."""
        cached = self._entries.get(entry.key)
        newest = -1 if cached is None else cached.version
        if entry.version <= max(newest, self._deleted.get(entry.uid, -1)):
            return
        if cached is not None and cached.uid != entry.uid:
            self.remove(cached.uid)  # a new object of the same name: two changes, not one
            cached = None
        self._entries[entry.key] = entry
        self._items[entry.key] = entry.item
        self._keys[entry.uid] = entry.key
        before = None if cached is None else cached.item
        if before != entry.item:
            self.on_change(before, entry.item)

    def remove(self, uid: str, *, version: int = sys.maxsize) -> None:
        """The object is gone, or none of ours any more, at this version; without one, for ever."""
        self._deleted[uid] = version
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.pop(next(iter(self._deleted)))
        if (cached := self._of(uid)) is not None:
            self._drop(cached)

    def listed(self, versions: Mapping[str, int], *, version: int) -> bool:
        """These, by uid, were the versions of all objects of ours in a list that was complete at
        `version`. What it lacks is gone, unless that is newer.

        Says whether one of them is from a backup that was restored under higher versions
        (`etcdutl snapshot restore --bump-revision`), and has to be looked at once more: a list is
        the truth up to its version, also where it shows what is older than what we had.
        """
        for cached in list(self._entries.values()):
            if cached.version <= version and cached.uid not in versions:
                self.remove(cached.uid, version=version)
        restored = [uid for uid, shown in versions.items() if shown < self._newest(uid) <= version]
        for uid in restored:
            self.trust_next(uid)
        return bool(restored)

    def trust_next(self, uid: str) -> None:
        """What comes next of this object is the truth, whatever its version."""
        self._deleted.pop(uid, None)
        if (cached := self._of(uid)) is not None:
            self._entries[cached.key] = replace(cached, version=-1)

    def start_over(self) -> None:
        """Versions count from the beginning: the cluster was restored from a backup."""
        self._deleted.clear()
        for key, entry in self._entries.items():
            self._entries[key] = replace(entry, version=-1)

    def _newest(self, uid: str) -> int:
        """The version of the newest news of this object."""
        cached = self._of(uid)
        return max(-1 if cached is None else cached.version, self._deleted.get(uid, -1))

    def _of(self, uid: str) -> Entry[T] | None:
        return self._entries.get(self._keys.get(uid, ""))

    def _drop(self, entry: Entry[T]) -> None:
        del self._entries[entry.key], self._items[entry.key], self._keys[entry.uid]
        self.on_change(entry.item, None)


def identity(raw: Raw) -> tuple[str, int]:
    """uid and resourceVersion of an object."""
    metadata = raw["metadata"]
    return metadata["uid"], int(metadata["resourceVersion"])
