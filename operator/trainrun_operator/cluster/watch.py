"""Which TrainRuns there are: kopf's watch tells what has changed, lists find what it has missed.

Layer: cluster. Invariant: a deletion or a change that no watch told of is known after `RELIST`
seconds, once the API server answers; so is that a backup was restored. An API server that is away
is asked again. Each namespace is listed by itself: one that is gone, or refuses, keeps nobody
from the runs of the others, and its own runs are not taken for deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.cluster.manager import RunManager
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.kube.list_state import ListState, settled
from trainrun_operator.worlds.kubernetes.run_object import number_of

EVERYWHERE = ""
"""The namespace that stands for all."""

RELIST = 60.0
"""Seconds between two lists of all TrainRuns."""
RETRY = 1.0
"""Seconds until a list that failed is tried again: so many times as long after so many failures,"""
LONGEST_RETRY = 15
"""and at most so many times."""
JITTER = (0.8, 1.2)
"""Factors of either, so that several operators do not list together."""

_log = logging.getLogger(__name__)


class RunWatch:
    """Tells the manager of every TrainRun."""

    def __init__(self, api: KubeApi, *, namespaces: Sequence[str], manager: RunManager) -> None:
        """`namespaces`: those to look at, none for all."""
        self._api = api
        self._manager = manager
        self._places = {
            namespace: _Place(ListState(TRAINRUN.path(namespace)))
            for namespace in namespaces or (EVERYWHERE,)
        }
        self.listed = asyncio.Event()
        """The TrainRuns of all namespaces that can be listed have been: the CRD is there."""

    @property
    def listings(self) -> tuple[ListState, ...]:
        """One for each namespace."""
        return tuple(place.listing for place in self._places.values())

    def knows(self, namespace: str) -> bool:
        """Whether the runs of this namespace have been listed: before that one that is not known
        need not be gone."""
        place = self._place(namespace)
        return place is not None and place.listing.synced.is_set()

    @property
    def readable(self) -> frozenset[str]:
        """The namespaces that can be listed now; the empty one stands for all."""
        return frozenset(
            namespace
            for namespace, place in self._places.items()
            if place.listing.synced.is_set() and not place.listing.trouble
        )

    def changed(self, kind: str | None, raw: Mapping[str, Any]) -> None:
        """The watch saw this object; `kind` is ADDED, MODIFIED, DELETED, or None in a list, of
        which it tells no more than what names the object."""
        uid, place = raw["metadata"]["uid"], self._place(raw["metadata"]["namespace"])
        if kind == "DELETED":
            self._manager.gone(uid)
        elif kind is None:
            if place is not None and not self._manager.knows(uid, number_of(raw)):
                place.soon.set()
        else:
            self._manager.seen(raw)

    def _place(self, namespace: str) -> _Place | None:
        return self._places.get(namespace) or self._places.get(EVERYWHERE)

    async def relist(self) -> None:
        """List all TrainRuns again and again, for ever."""
        async with asyncio.TaskGroup() as group:
            for namespace, place in self._places.items():
                group.create_task(self._relist(namespace, place))
            await settled(self.listings)
            self.listed.set()

    async def _relist(self, namespace: str, place: _Place) -> None:
        while True:
            pause = RETRY
            try:
                await self._list(namespace, place)
                place.listing.read()
                pause = RELIST
            except KubeError as error:
                place.listing.failed(error)
                pause = RETRY * min(place.listing.failures, LONGEST_RETRY)
            except Exception as error:  # noqa: BLE001 - whatever it is, the process must go on
                _log.exception("TrainRuns cannot be listed")
                place.listing.failed(error)
            await place.pause(pause * random.uniform(*JITTER))

    async def _list(self, namespace: str, place: _Place) -> None:
        known, numbers = self._manager.uids(namespace), dict[str, int]()

        def take(raw: Object) -> None:
            numbers[raw["metadata"]["uid"]] = number_of(raw)
            self._manager.listed(raw, known_before=known)

        version = await self._api.each(place.listing.path, take)
        restored = version < place.version
        if restored:
            _log.warning("the versions of TrainRuns went back: was a backup restored?")
        place.version = version
        older = self._manager.relisted(
            numbers, known_before=known, version=version, restored=restored
        )
        if older:
            await self._see_again(place, older)

    async def _see_again(self, place: _Place, uids: frozenset[str]) -> None:
        """These were restored from a backup: what we know of them is none any more."""

        def take(raw: Object) -> None:
            if raw["metadata"]["uid"] in uids:
                self._manager.seen(raw, restored=True)

        await self._api.each(place.listing.path, take)


@dataclass(slots=True)
class _Place:
    """A namespace, or all of them."""

    listing: ListState
    version: int = 0
    """Of the newest list: it grows, unless a backup is restored."""
    soon: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        """Cut short, though not to nothing, where the watch has told of something in part."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.soon.wait()
                self.soon.clear()
                await asyncio.sleep(RETRY)
