"""An informer's cache: the newest projection of each object, never replaced by an older one.

Layer: kube; pure. Objects arrive in three ways that overtake each other: lists,
watch events, and the answers to our own writes. Invariants: an older resourceVersion never replaces
a newer one; a late answer does not bring back a deleted object; every difference is reported
once, including a deletion that the watch missed.
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
"""Deleted objects whose late answers are still recognized; each costs about 200 bytes."""


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
    """Objects by key. `on_change` gets (before, after); None: no object."""

    project: Callable[[dict[str, Any]], T | None]
    """The part of an object to keep; None: the object is not ours."""
    key: Callable[[T], str]
    on_change: Callable[[T | None, T | None], None]

    def __post_init__(self) -> None:
        self._entries: dict[str, Entry[T]] = {}
        self._items: dict[str, T] = {}
        self._keys: dict[str, str] = {}
        self._deleted: dict[str, int] = {}
        """uid -> the version at which it was gone; a newer version is ours again."""
        self.items: Mapping[str, T] = MappingProxyType(self._items)
        """A live view; it changes across awaits."""

    def put(self, raw: dict[str, Any]) -> bool:
        """Store the object at its resourceVersion; False: it is not ours."""
        if self.knows(raw):
            return True  # the watch repeats our own writes, which their answers brought already
        if (entry := self.entry(raw)) is not None:
            self.take(entry)
            return True
        uid, version = identity(raw)
        if self._of(uid) is not None:
            self.remove(uid, version=version)  # it may become ours again
        return False

    def knows(self, raw: Raw) -> bool:
        """Whether this version is not new: we have it or a newer one, or it precedes a deletion."""
        uid, version = identity(raw)
        return version <= self._newest(uid)

    def entry(self, raw: dict[str, Any]) -> Entry[T] | None:
        """The projection of a new version; None: the object is not ours."""
        item = self.project(raw)
        if item is None:
            return None
        uid, version = identity(raw)
        return Entry(key=self.key(item), uid=uid, version=version, item=item)

    def take(self, entry: Entry[T]) -> None:
        """Store this entry, unless a newer version is known by now."""
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
        """The object is gone, or no longer ours, at this version; by default for good."""
        self._deleted[uid] = version
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.pop(next(iter(self._deleted)))
        if (cached := self._of(uid)) is not None:
            self._drop(cached)

    def listed(self, versions: Mapping[str, int], *, version: int) -> bool:
        """Compare with a complete list at `version`; `versions` holds our objects in it, by uid.
        An object that the list lacks is gone, unless our version is newer.

        Returns whether an object comes from a backup that was restored under higher versions
        (`etcdutl snapshot restore --bump-revision`) and must be read again: a list is correct
        up to its version, even where it shows something older than what we had.
        """
        for cached in list(self._entries.values()):
            if cached.version <= version and cached.uid not in versions:
                self.remove(cached.uid, version=version)
        restored = [
            uid for uid, number in versions.items() if number < self._newest(uid) <= version
        ]
        for uid in restored:
            self.trust_next(uid)
        return bool(restored)

    def trust_next(self, uid: str) -> None:
        """Accept the next version of this object, whatever its number."""
        self._deleted.pop(uid, None)
        if (cached := self._of(uid)) is not None:
            self._entries[cached.key] = replace(cached, version=-1)

    def start_over(self) -> None:
        """Accept lower versions again: the cluster was restored from a backup."""
        self._deleted.clear()
        for key, entry in self._entries.items():
            self._entries[key] = replace(entry, version=-1)

    def _newest(self, uid: str) -> int:
        """The newest version of this object that we know, deleted or not."""
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
