"""A cache of projected objects that follows the API server: list, then watch, forever.

Layer: kube. Invariants: no error ends it; changes that it missed are reported after the next list;
it holds projections only, never whole objects. Until `follow` is called it lists only once: that
proves the permission, and an unused watch would double what the API server has to send. A list that
is refused (a missing namespace, permission or kind) blocks only what depends on it. What is not
listed is unknown; it never counts as empty.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

from trainrun._common.backoff import Backoff
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.cache import Cache, Entry, identity
from trainrun_operator.kube.errors import Forbidden, Gone, KubeError, NotFound, error_of_status

EVERYWHERE = ""
"""The namespace that stands for all."""
PATIENCE = 3
"""Failures in a row after which a list counts as unreadable; single ones do not matter."""
LOOK_EVERY = 0.05
"""Seconds between two checks, while nothing at all can be read."""
WATCH_SECONDS = (240, 360)
"""The requested length of a watch; random, so that not all end together."""
RELIST_AFTER = 900.0
"""Seconds after which the end of a watch leads to a list, so that missed changes are found."""
SOON = (0.5, 1.5)
"""Seconds until a requested list."""
WATCHED, UNWATCHED = 330.0, 60.0
"""Seconds between two lists: the maximum while the shared watch works (each start of it leads to a
list earlier), and while it does not."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two tries."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ListState:
    """Whether the list under one path can be read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble = ""
        """Why it cannot be read, in the API server's words; empty: it can be read."""
        self.failures = 0
        """In a row."""
        self.synced = asyncio.Event()
        """Set once it has been read."""
        self.settled = asyncio.Event()
        """Set once it has been read, or counts as unreadable."""

    def start_over(self) -> None:
        """It must be read again."""
        self.synced.clear()
        self.settled.clear()

    def read(self) -> None:
        """The whole list has been read."""
        self.succeeded()
        self.synced.set()
        self.settled.set()

    def succeeded(self) -> None:
        """The API server sent the list, an event or a bookmark."""
        if self.trouble:
            _log.info("%s can be read again", self.path)
        self.trouble, self.failures = "", 0

    def failed(self, error: Exception) -> None:
        """An attempt to read it failed."""
        self.failures += 1
        text = str(error) or type(error).__name__
        if self.failures < PATIENCE:
            _log.info("%s: %s", self.path, text)
            return
        if text != self.trouble:
            _log.warning("%s cannot be read; retrying: %s", self.path, text)
        self.trouble = text
        self.settled.set()


async def settled(listings: Collection[ListState]) -> None:
    """Wait until each list was read or counts as unreadable, and at least one was read; so this
    waits while the API server is down."""
    for listing in listings:
        await listing.settled.wait()
    while not any(listing.synced.is_set() for listing in listings):
        await asyncio.sleep(LOOK_EVERY)


class Informer(Generic[T]):
    """Follows the objects under one path. Not thread-safe: use it in the event loop's thread."""

    _at_once = False
    """True: store each object of a list as it arrives; False: all at its end."""

    def __init__(
        self,
        api: KubeApi,
        *,
        path: str,
        params: Mapping[str, str],
        project: Callable[[dict[str, Any]], T | None],
        key: Callable[[T], str],
        on_change: Callable[[T | None, T | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`project` returns the part of an object to keep (None: it is not ours); `on_change` gets
        (before, after) of every projection that differs; None: no object."""
        self._api = api
        self._path = path
        self._params = dict(params)
        self._clock = clock
        self._cache = Cache(
            project=_guarded_projection(project, path),
            key=key,
            on_change=_guarded_listener(on_change, path),
        )
        self._version = 0
        """The resourceVersion that we have reached."""
        self._list_is_due = True
        self._followed = asyncio.Event()
        self._listed_at = self._last_news_at = clock()
        self._backoff = Backoff(SHORTEST_PAUSE, LONGEST_PAUSE)
        self.listing = ListState(path)
        self.synced = self.listing.synced
        """Set once a list is in the cache: the first one, and after `follow` a fresh one."""

    def get(self, key: str) -> T | None:
        """One object."""
        return self._cache.items.get(key)

    def learn(self, raw: dict[str, Any], *, previous: int = 0) -> bool:
        """Store an answer of the API server at once; returns whether the object is ours.
        `previous`: the version that we had at the time of the call; an older one is from a backup.
        """
        uid, version = identity(raw)
        if version < previous:
            self._cache.trust_next(uid)
        return self._cache.put(raw)

    def forget(self, uid: str) -> None:
        """The API server says that this object is gone; another of the same name may exist."""
        self._cache.remove(uid)

    def silent_for(self) -> float:
        """Seconds since an event, a bookmark, a list or a refusal; up to 70 are normal in a quiet
        cluster.

        0 before `follow`, when nothing is watched.
        """
        return self._clock() - self._last_news_at if self._followed.is_set() else 0.0

    def follow(self) -> None:
        """From now on report every change, after a fresh list."""
        self.listing.start_over()
        self._list_is_due = True
        self._last_news_at = self._clock()
        self._followed.set()

    async def run(self) -> None:
        """List once; after `follow`, list and watch forever."""
        while True:
            try:
                if self._list_is_due:
                    await self.relist()
                if not self._followed.is_set():
                    await self._followed.wait()
                    continue
                await self._watch()
                self._list_is_due |= self._clock() - self._listed_at > RELIST_AFTER
            except Gone:
                _log.info("%s: the history since our last event is gone; listing again", self._path)
                self._list_is_due = True
            except KubeError as error:
                self.listing.failed(error)
                # After some failures give up our resourceVersion and list.
                self._list_is_due |= self.listing.failures >= PATIENCE
                if isinstance(error, (Forbidden, NotFound)):
                    self._last_news_at = self._clock()  # the API server is up: it has answered
            except Exception as error:  # noqa: BLE001 - no error may end the watch
                _log.exception("%s: listing again", self._path)
                self.listing.failed(error)
                self._list_is_due = True
            await asyncio.sleep(self._backoff.next())

    async def relist(self) -> None:
        """Compare the cache with a full list, read in pages. Raises KubeError."""
        watched = self._version
        version, versions, news = await self._list()
        restored = version < watched
        if restored:
            _log.warning("%s: versions decreased: was a backup restored?", self._path)
            self._cache.start_over()
        if self._cache.listed(versions, version=version) or restored:
            _, _, news = await self._list()
        for entry in news:
            self._cache.take(entry)
        self._version, self._listed_at, self._list_is_due = version, self._clock(), False
        self._note_news()
        self.listing.read()

    async def _list(self) -> tuple[int, dict[str, int], list[Entry[T]]]:
        """Read a list: its version, the versions of our objects in it by uid, and new entries."""
        versions, news = dict[str, int](), list[Entry[T]]()

        def take(raw: dict[str, Any]) -> None:
            uid, version = identity(raw)
            if self._cache.knows(raw):
                versions[uid] = version
            elif (entry := self._cache.entry(raw)) is not None:
                versions[uid] = version
                if self._at_once:
                    self._cache.take(entry)
                else:
                    news.append(entry)

        return await self._api.each(self._path, take, params=self._params), versions, news

    async def _watch(self) -> None:
        """Watch until the server ends it. Raises KubeError."""
        params = {
            **self._params,
            "resourceVersion": str(self._version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        async with aclosing(self._api.stream(self._path, params=params)) as events:
            async for event in events:
                self._take(event["type"], event["object"])

    def _take(self, kind: str, raw: dict[str, Any]) -> None:
        if kind == "ERROR":
            raise error_of_status(raw)
        version = int(raw["metadata"]["resourceVersion"])
        match kind:
            case "ADDED" | "MODIFIED":
                self._cache.put(raw)
            case "DELETED":
                self._cache.remove(raw["metadata"]["uid"], version=version)
            case _:
                pass  # A BOOKMARK only brings a version: we have received everything before it.
        self._version = version
        self._note_news()

    def _note_news(self) -> None:
        self._last_news_at = self._clock()
        self.listing.succeeded()
        self._backoff.reset()


class SharedWatchInformer(Informer[T]):
    """An informer whose watch another client runs; that client passes on the events. The informer
    itself only lists: soon after each start of that watch, and every UNWATCHED s while it fails.

    It projects and stores each object of a list as it arrives: each version once, never an older.
    """

    _at_once = True
    _watched_until = 0.0
    _soon: asyncio.Event
    _fresh: asyncio.Event

    def follow(self) -> None:
        """From now on list repeatedly, starting with a fresh list."""
        self._soon, self._fresh = asyncio.Event(), asyncio.Event()
        super().follow()

    def on_event(self, kind: str, raw: dict[str, Any]) -> None:
        """The shared watch brought this event: ADDED, MODIFIED or DELETED."""
        if kind == "DELETED":
            uid, version = identity(raw)
            self._cache.remove(uid, version=version)
        else:
            self._cache.put(raw)

    def on_watch(self, *, good: bool) -> None:
        """The shared watch has started, or could not; it does not report earlier changes."""
        self._watched_until = self._clock() + WATCHED if good else 0.0
        self._soon.set()

    def renew(self) -> None:
        """The cache may be stale: see `fresh`."""
        self._fresh = asyncio.Event()
        self._soon.set()

    async def fresh(self) -> None:
        """Wait for a list that started after `renew`, without a timeout."""
        await self._fresh.wait()

    async def relist(self) -> None:
        """List, then mark it fresh. Raises KubeError."""
        fresh = self._fresh
        await super().relist()
        fresh.set()

    async def _watch(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._watched_until - self._clock(), UNWATCHED)):
                await self._soon.wait()
                await asyncio.sleep(random.uniform(*SOON))
        self._soon.clear()
        self._list_is_due = True


def _guarded_projection(
    project: Callable[[dict[str, Any]], T | None], path: str
) -> Callable[[dict[str, Any]], T | None]:
    """`project`, guarded: one unreadable object must not hide all others."""

    def guarded(raw: dict[str, Any]) -> T | None:
        try:
            return project(raw)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("%s: %s cannot be read", path, raw.get("metadata", {}).get("name"))
            return None

    return guarded


def _guarded_listener(
    on_change: Callable[[T | None, T | None], None], path: str
) -> Callable[[T | None, T | None], None]:
    """`on_change`, guarded: a listener that fails must not stop the watch."""

    def guarded(before: T | None, after: T | None) -> None:
        try:
            on_change(before, after)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("%s: a change could not be processed", path)

    return guarded
