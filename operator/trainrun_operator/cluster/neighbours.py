"""Runs that we do not lead, told so once: those of another installation, too large ones, and those
that were deleted and are kept.

Layer: cluster. Two installations that watch the same namespace are a mistake, or one of them is
gone; who looks at the run learns of both, and what to do. Invariant: nothing of such a run is
changed but the list of its conditions, which gets one more, and of a deleted one what its columns
show; the rest of its status is written back as it was read, whatever version has written it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.core.run.boundary import Event, name_of
from trainrun_operator.core.run.display import CONTESTED
from trainrun_operator.kube.errors import Conflict, KubeError, NotFound
from trainrun_operator.kube.raw import mapping, named
from trainrun_operator.worlds.kubernetes.run_object import Raw, holder_of
from trainrun_operator.worlds.kubernetes.world import Surroundings

REASON = "OtherInstallation"
RETRY = 60.0
"""Seconds until a condition that could not be written is tried again."""
DELETED = "Deleted"
OF_THE_COLLECTOR = ("foregroundDeletion", "orphan")
"""Finalizers with which Kubernetes itself deletes: it removes them within seconds."""
SETTLED = ("Complete", "Failed")
"""Conditions of runs that need no telling, with the one to be told."""

_log = logging.getLogger(__name__)

Record = Callable[[Mapping[str, Any], Event, datetime], None]
"""Writes an event of the object, which happened then, into the cluster."""


@dataclass(frozen=True, slots=True)
class _Untold:
    """A condition that a run has to get, and what its status is without it."""

    head: Raw
    status: Raw
    type: str
    reason: str
    message: str


class Neighbours:
    """Those runs, by uid."""

    def __init__(self, name: str, record: Record) -> None:
        """`name` is our installation's."""
        self._name = name
        self._record = record
        self._untold: dict[str, _Untold] = {}
        self._more = asyncio.Event()

    def seen(self, raw: Raw) -> None:
        """This run, in this version, is led elsewhere."""
        other = name_of(holder_of(raw))
        message = (
            f"the operator in namespace {other} leads this run; the one in namespace {self._name} "
            "watches it, too, and leaves it alone. Set watchNamespaces so that each namespace has "
            f"one operator; or, if the one in namespace {other} is gone for good, upgrade the "
            f"other one with --set adopt={{{other}}}"
        )
        self.note(raw, CONTESTED, REASON, message)

    def deleted(self, raw: Raw) -> None:
        """This run is being deleted; somebody's finalizer may keep its object."""
        keepers = [it for it in raw["metadata"].get("finalizers", ()) if it not in OF_THE_COLLECTOR]
        if not keepers:
            return
        message = (
            "the TrainRun was deleted: its workers are sent away, and nothing more is done about "
            f"it. The object stays until these finalizers are removed: {', '.join(keepers)[:500]}"
        )
        status, workers = mapping(raw, "status"), mapping(raw, "status", "workers")
        none = {**workers, "ready": 0, "text": f"0/{workers.get('total', 0)}"}
        shown = {**status, "phase": "Terminating", "reason": DELETED, "workers": none}
        self.note({**raw, "status": shown}, DELETED, "Finalizers", message)

    def note(self, raw: Raw, type_: str, reason: str, message: str) -> None:
        """This run has to get the condition of this type, unless it has it."""
        metadata, status = raw["metadata"], {"internal": {}, **mapping(raw, "status")}
        self._untold.pop(metadata["uid"], None)
        if not _settled(status, type_):
            head = {**TRAINRUN.head(), **named(raw)}
            self._untold[metadata["uid"]] = _Untold(head, status, type_, reason, message)
            self._more.set()

    def gone(self, uid: str) -> None:
        """It is led elsewhere no longer."""
        self._untold.pop(uid, None)

    async def tell(self, around: Surroundings) -> None:
        """Write the condition into each, for ever; one after the other, since nothing is urgent."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._untold:
                untold = self._untold.pop(next(iter(self._untold)))
                try:
                    await self._tell_one(around, untold)
                except (Conflict, NotFound):
                    continue  # the watch brings what it has become
                except KubeError as error:
                    where = _path(untold.head)
                    _log.warning("%s: the condition cannot be written: %s", where, error)
                    asyncio.get_running_loop().call_later(RETRY, self._again, untold)

    def _again(self, untold: _Untold) -> None:
        """What has become of the run since then, the API server will say."""
        self._untold.setdefault(untold.head["metadata"]["uid"], untold)
        self._more.set()

    async def _tell_one(self, around: Surroundings, untold: _Untold) -> None:
        now = datetime.now(UTC)
        condition = {
            "type": untold.type,
            "status": "True",
            "reason": untold.reason,
            "message": untold.message,
            "lastTransitionTime": now.isoformat(),
            "observedGeneration": untold.head["metadata"].get("generation", 0),
        }
        conditions = [*untold.status.get("conditions", []), condition]
        # What is not the status stays as it is, whatever stands here.
        body = {**untold.head, "status": {**untold.status, "conditions": conditions}}
        path = f"{_path(untold.head)}/status"
        await around.api.put(path, body, guard=around.check_leadership)
        event = Event(type="Warning", reason=untold.type, message=untold.message)
        self._record(untold.head, event, now)


def _settled(status: Raw, type_: str) -> bool:
    conditions: list[Mapping[str, Any]] = status.get("conditions", [])
    return any(c.get("type") in (*SETTLED, type_) and c.get("status") == "True" for c in conditions)


def _path(raw: Raw) -> str:
    return TRAINRUN.path(raw["metadata"]["namespace"], raw["metadata"]["name"])
