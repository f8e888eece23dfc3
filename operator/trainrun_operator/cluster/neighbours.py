"""Runs that the operator of another installation leads: left alone, and told so once.

Layer: cluster. Two installations that watch the same namespace are a mistake, or one of them is
gone; who looks at the run learns of both, and what to do. Invariant: nothing of such a run is
changed but the list of its conditions, which gets one more; the rest of its status is written back
as it was read, whatever version has written it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.core.run.display import CONTESTED
from trainrun_operator.core.run.installation import name_of
from trainrun_operator.core.run.plan import Event
from trainrun_operator.kube.errors import Conflict, KubeError, NotFound
from trainrun_operator.worlds.kubernetes.run_object import Raw, holder_of
from trainrun_operator.worlds.kubernetes.world import Surroundings

REASON = "OtherInstallation"
SETTLED = ("Complete", "Failed", CONTESTED)
"""Conditions of runs that need no telling (any more)."""

_log = logging.getLogger(__name__)

Record = Callable[[Mapping[str, Any], Event, datetime], None]
"""Writes an event of the object (a raw TrainRun), which happened then, into the cluster."""


class Neighbours:
    """Those runs, by uid."""

    def __init__(self, name: str, record: Record) -> None:
        """`name` is our installation's."""
        self._name = name
        self._record = record
        self._untold: dict[str, Raw] = {}
        self._uids: set[str] = set()
        self._more = asyncio.Event()

    @property
    def uids(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self._uids)

    def seen(self, raw: Raw) -> None:
        """This run, in this version, is led elsewhere."""
        uid = raw["metadata"]["uid"]
        self._uids.add(uid)
        self._untold.pop(uid, None)
        if not _settled(raw):
            self._untold[uid] = raw
            self._more.set()

    def gone(self, uid: str) -> None:
        """It is led elsewhere no longer."""
        self._uids.discard(uid)
        self._untold.pop(uid, None)

    async def tell(self, around: Surroundings) -> None:
        """Write the condition into each, for ever; one after the other, since nothing is urgent."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._untold:
                raw = self._untold.pop(next(iter(self._untold)))
                try:
                    await self._tell_one(around, raw)
                except (Conflict, NotFound):
                    continue  # the watch brings what it has become
                except KubeError as error:  # the next list brings it again
                    _log.warning("%s: the condition cannot be written: %s", _path(raw), error)

    async def _tell_one(self, around: Surroundings, raw: Raw) -> None:
        now, other = datetime.now(UTC), name_of(holder_of(raw))
        message = (
            f"the operator in namespace {other} leads this run; the one in namespace {self._name} "
            "watches it, too, and leaves it alone. Set watchNamespaces so that each namespace has "
            f"one operator; or, if the one in namespace {other} is gone for good, upgrade the "
            f"other one with --set adopt={{{other}}}"
        )
        condition = {
            "type": CONTESTED,
            "status": "True",
            "reason": REASON,
            "message": message,
            "lastTransitionTime": now.isoformat(),
            "observedGeneration": raw["metadata"].get("generation", 0),
        }
        status: Mapping[str, Any] = raw["status"]
        conditions = [*status.get("conditions", []), condition]
        body = {**raw, "status": {**status, "conditions": conditions}}
        await around.api.put(f"{_path(raw)}/status", body, guard=around.check_leadership)
        self._record(raw, Event(type="Warning", reason=CONTESTED, message=message), now)


def _settled(raw: Raw) -> bool:
    conditions: list[Mapping[str, Any]] = raw["status"].get("conditions", [])
    return any(c.get("type") in SETTLED and c.get("status") == "True" for c in conditions)


def _path(raw: Raw) -> str:
    return TRAINRUN.path(raw["metadata"]["namespace"], raw["metadata"]["name"])
