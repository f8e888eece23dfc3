"""Which TrainRuns there are: kopf's watch tells what has changed, lists find what it has missed.

Layer: cluster. Invariant: a deletion or a change that no watch told of is known after `RELIST`
seconds, once the API server answers; so is that a backup was restored. An API server that is away
is asked again.

A watch that is older than the CRD is no witness. When a CRD changes, kube-apiserver 1.36 serves
new requests with the new schema at once, but ends the old watches a second later or more
(apiextensions-apiserver, `crdHandler.tearDown`), and cuts what they tell to the old schema. Taken
for the truth, a run without `status.internal` would begin again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status_json import is_stripped
from trainrun_operator.cluster.manager import RunManager
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.worlds.kubernetes.run_object import number_of

RELIST = 60.0
"""Seconds between two lists of all TrainRuns."""
RETRY = 2.0
"""Seconds until a list that failed is tried again."""
JITTER = (0.8, 1.2)
"""Factors of either, so that several operators do not list together."""

_log = logging.getLogger(__name__)


class RunWatch:
    """Tells the manager of every TrainRun."""

    def __init__(self, api: KubeApi, *, namespaces: Sequence[str], manager: RunManager) -> None:
        """`namespaces`: those to look at, none for all."""
        self._api = api
        self._namespaces = namespaces or ("",)
        self._manager = manager
        self._versions: dict[str, int] = {}
        """Of the newest lists, by namespace: they grow, unless a backup is restored."""
        self._list_soon = asyncio.Event()
        self.listed = asyncio.Event()
        """All TrainRuns have been listed once: the CRD is there."""

    def changed(self, kind: str | None, raw: Mapping[str, Any]) -> None:
        """The watch saw this object; `kind` is ADDED, MODIFIED, DELETED, or None in a list."""
        if kind == "DELETED":
            self._manager.gone(raw["metadata"]["uid"])
        elif is_stripped(raw.get("status") or {}):
            self._list_soon.set()
        else:
            self._manager.seen(raw)

    async def relist(self) -> None:
        """List all TrainRuns again and again, for ever."""
        while True:
            try:
                await self._list()
                pause = RELIST
            except KubeError as error:
                _log.warning("TrainRuns cannot be listed: %s", error)
                pause = RETRY
            except Exception:  # noqa: BLE001 - whatever it is, the process must go on
                _log.exception("TrainRuns cannot be listed")
                pause = RETRY
            await self._pause(pause * random.uniform(*JITTER))

    async def _pause(self, seconds: float) -> None:
        """Cut short, though not to nothing, where the watch has told of something in part."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._list_soon.wait()
                self._list_soon.clear()
                await asyncio.sleep(RETRY)

    async def _list(self) -> None:
        objects: dict[str, Object] = {}
        known, versions = self._manager.uids(), dict[str, int]()
        for namespace in self._namespaces:
            async for page in self._api.pages(TRAINRUN.path(namespace)):
                objects |= {raw["metadata"]["uid"]: raw for raw in page["items"]}
                versions[namespace] = number_of(page)
        restored = any(now < self._versions.get(it, 0) for it, now in versions.items())
        if restored:
            _log.warning("the versions of TrainRuns went back: was a backup restored?")
        self._versions = versions
        self._manager.relisted(
            objects, known_before=known, version=min(versions.values()), restored=restored
        )
        self.listed.set()
