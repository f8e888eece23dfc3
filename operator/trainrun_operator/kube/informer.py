"""A cache of projected objects that follows the API server: list, then watch, for ever.

Layer: kube. Invariants: it never ends by an error; whatever happened while it could
not see is told after the next list; it holds projections only, never whole objects. Until somebody
needs to follow, it lists once: that shows that we may, and a watch for nobody would double what the
API server has to send. A list that is refused (a namespace that is gone, a right or a kind that is
missing) holds up only what depends on it. What is not listed is unknown: it is never taken for
empty.
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
"""Failures in a row until a list counts as one that cannot be read: single ones pass by."""
LOOK_EVERY = 0.05
"""Seconds between two looks, while nothing at all can be read."""
WATCH_SECONDS = (240, 360)
"""How long a watch is asked to last; spread, so that not all end together."""
RELIST_AFTER = 900.0
"""Seconds after which the end of a watch leads to a list: whatever was missed heals by itself."""
SOON = (0.5, 1.5)
"""Seconds until a list that is asked for."""
WATCHED, UNWATCHED = 330.0, 60.0
"""Seconds between two lists where another one watches: at most, since it begins anew before that;
and where it does not."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two tries."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ListState:
    """Of what lies under one path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble = ""
        """Why it cannot be read, in the API server's words; empty: it can."""
        self.failures = 0
        """In a row."""
        self.synced = asyncio.Event()
        """It has been read."""
        self.settled = asyncio.Event()
        """It has been read, or is known to be in trouble."""

    def start_over(self) -> None:
        """It has to be read anew."""
        self.synced.clear()
        self.settled.clear()

    def read(self) -> None:
        """It has been read as a whole."""
        self.succeeded()
        self.synced.set()
        self.settled.set()

    def succeeded(self) -> None:
        """There is news of what it shows."""
        if self.trouble:
            _log.info("%s can be read again", self.path)
        self.trouble, self.failures = "", 0

    def failed(self, error: Exception) -> None:
        """It was tried in vain."""
        self.failures += 1
        text = str(error) or type(error).__name__
        if self.failures < PATIENCE:
            _log.info("%s: %s", self.path, text)
            return
        if text != self.trouble:
            _log.warning("%s cannot be read, and is tried again and again: %s", self.path, text)
        self.trouble = text
        self.settled.set()


async def settled(listings: Collection[ListState]) -> None:
    """Wait until each was read or is in trouble, and one at least was read: an API server that is
    away is waited for."""
    for listing in listings:
        await listing.settled.wait()
    while not any(listing.synced.is_set() for listing in listings):
        await asyncio.sleep(LOOK_EVERY)


class Informer(Generic[T]):
    """Follows the objects under one path. Not thread-safe: for the event loop's thread."""

    _at_once = False
    """Whether the objects of a list are taken one by one, or all with its end."""

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
        """`project` keeps what matters of an object (None: it is none of ours); `on_change` gets
        (before, after) of every projection that differs, None where there is none."""
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
        """Where in the history we are."""
        self._list_is_due = True
        self._followed = asyncio.Event()
        self._listed_at = self._last_news_at = clock()
        self._backoff = Backoff(SHORTEST_PAUSE, LONGEST_PAUSE)
        self.listing = ListState(path)
        self.synced = self.listing.synced
        """Set once a list is in the cache: the first, and after `follow` a fresh one."""

    def get(self, key: str) -> T | None:
        """One object."""
        return self._cache.items.get(key)

    def learn(self, raw: dict[str, Any], *, previous: int = 0) -> bool:
        """What the API server answered enters the cache at once; says whether it is one of ours.
        `previous`: the version that we had when it was asked for; an older one is from a backup."""
        uid, version = identity(raw)
        if version < previous:
            self._cache.trust_next(uid)
        return self._cache.put(raw)

    def forget(self, uid: str) -> None:
        """The API server says that this object is gone; another one of its name may live."""
        self._cache.remove(uid)

    def silent_for(self) -> float:
        """Seconds since an event, a bookmark, a list or a refusal; up to 70 are normal in a quiet
        cluster.

        0 before `follow`: there is nothing to be heard.
        """
        return self._clock() - self._last_news_at if self._followed.is_set() else 0.0

    def follow(self) -> None:
        """From now on see every change, after a fresh list."""
        self.listing.start_over()
        self._list_is_due = True
        self._last_news_at = self._clock()
        self._followed.set()

    async def run(self) -> None:
        """List; once `follow` was called, follow for ever."""
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
                _log.info("%s: the history since our last look is gone, listing again", self._path)
                self._list_is_due = True
            except KubeError as error:
                self.listing.failed(error)
                # After some failures we no longer insist on our place in the history.
                self._list_is_due |= self.listing.failures >= PATIENCE
                if isinstance(error, (Forbidden, NotFound)):
                    self._last_news_at = self._clock()  # the API server is there: it has answered
            except Exception as error:  # noqa: BLE001 - whatever it is, we must not go blind
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
            _log.warning("%s: versions went back: was a backup restored?", self._path)
            self._cache.start_over()
        if self._cache.listed(versions, version=version) or restored:
            _, _, news = await self._list()
        for entry in news:
            self._cache.take(entry)
        self._version, self._listed_at, self._list_is_due = version, self._clock(), False
        self._note_news()
        self.listing.read()

    async def _list(self) -> tuple[int, dict[str, int], list[Entry[T]]]:
        """The version of a list, those of the objects of ours in it by uid, and what is news."""
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
        """Until the server ends it. Raises KubeError."""
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
                pass  # Of a BOOKMARK only the version counts: all before it has been told.
        self._version = version
        self._note_news()

    def _note_news(self) -> None:
        self._last_news_at = self._clock()
        self.listing.succeeded()
        self._backoff.reset()


class SharedWatchInformer(Informer[T]):
    """Whose watch is somebody else's, who passes on what it tells. Here lists are read alone: soon
    after each begin of that watch, and again and again where it does not begin.

    What a list shows is projected and taken as it comes: each version once, and never an older one.
    """

    _at_once = True
    _watched_until = 0.0
    _soon: asyncio.Event
    _fresh: asyncio.Event

    def follow(self) -> None:
        """From now on list again and again, after a fresh list."""
        self._soon, self._fresh = asyncio.Event(), asyncio.Event()
        super().follow()

    def on_event(self, kind: str, raw: dict[str, Any]) -> None:
        """The watch says so: ADDED, MODIFIED or DELETED."""
        if kind == "DELETED":
            uid, version = identity(raw)
            self._cache.remove(uid, version=version)
        else:
            self._cache.put(raw)

    def on_watch(self, *, good: bool) -> None:
        """That watch has begun, or could not: what has changed before is told by nobody."""
        self._watched_until = self._clock() + WATCHED if good else 0.0
        self._soon.set()

    def renew(self) -> None:
        """What is in the cache may be old: see `fresh`."""
        self._fresh = asyncio.Event()
        self._soon.set()

    async def fresh(self) -> None:
        """Wait for a list that was begun after `renew`, however long."""
        await self._fresh.wait()

    async def relist(self) -> None:
        """Raises KubeError."""
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
    """An object that cannot be read must not hide all others."""

    def guarded(raw: dict[str, Any]) -> T | None:
        try:
            return project(raw)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, the others are to be seen
            _log.exception("%s: %s cannot be read", path, raw.get("metadata", {}).get("name"))
            return None

    return guarded


def _guarded_listener(
    on_change: Callable[[T | None, T | None], None], path: str
) -> Callable[[T | None, T | None], None]:
    """A listener that fails must not stop the watch: the operator would go blind."""

    def guarded(before: T | None, after: T | None) -> None:
        try:
            on_change(before, after)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("%s: a change could not be processed", path)

    return guarded
