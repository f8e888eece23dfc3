"""Writes a condition on runs that we do not lead: another installation's, unreadable ones, and
deleted ones that finalizers keep. Also on deleted sweeps.

Layer: cluster. Two installations that watch the same namespace are a mistake, or one of them is
gone; the condition names both and the remedy. Invariant: in such a run only the list of conditions
changes, by one more, and in an unreadable or deleted one also the fields behind its columns; the
rest of its status is written back as it was read, whichever version wrote it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainrun._common.text import cut
from trainrun_operator.api.base import RECONCILING, STALLED
from trainrun_operator.api.resources import Resource
from trainrun_operator.api.sweep.status import MAX_MESSAGE
from trainrun_operator.core.run.boundary import Event, name_of
from trainrun_operator.core.run.display import CONTESTED, TOO_LARGE
from trainrun_operator.kube.errors import Conflict, KubeError, NotFound
from trainrun_operator.kube.raw import mapping, named, objects
from trainrun_operator.worlds.kubernetes.run_object import Raw, holder_of
from trainrun_operator.worlds.kubernetes.world import WorldDependencies

REASON = "OtherInstallation"
RETRY = 60.0
"""Seconds until a failed write of a condition is retried."""
DELETED = "Deleted"
OF_THE_COLLECTOR = ("foregroundDeletion", "orphan")
"""Finalizers of Kubernetes' garbage collector: it removes them within seconds."""
SETTLED = ("Complete", "Failed")
"""Conditions of runs that need no further condition."""

_log = logging.getLogger(__name__)

Record = Callable[[Mapping[str, Any], Event, datetime], None]
"""Records an event of the object, with its time."""


@dataclass(frozen=True, slots=True)
class _UnpublishedCondition:
    """Conditions that a run or a sweep must get, and its status without them."""

    head: Raw
    status: Raw
    types: tuple[str, ...]
    reason: str
    message: str


class UnmanagedRuns:
    """Runs or sweeps that must get a condition, by uid."""

    def __init__(self, record: Record, kind: Resource[Any]) -> None:
        self._record = record
        self._kind = kind
        self._unpublished: dict[str, _UnpublishedCondition] = {}
        self._more = asyncio.Event()

    def seen(self, raw: Raw, *, by: str) -> None:
        """Another installation leads this run; `by` is our installation's name."""
        other = name_of(holder_of(raw))
        message = (
            f"the operator in namespace {other} leads this run; the operator in namespace {by} "
            "also watches it, but does not act. Set watchNamespaces so that each namespace has "
            f"one operator; or, if the operator in namespace {other} is gone for good, upgrade the "
            f"other one with --set adopt={{{other}}}"
        )
        self._note(raw, (CONTESTED,), REASON, message)

    def deleted(self, raw: Raw) -> None:
        """This run is being deleted; a finalizer may keep its object."""
        if not (keepers := _keepers(raw)):
            return
        message = (
            "the TrainRun was deleted: its workers must stop, and the operator does nothing else. "
            f"The object stays until these finalizers are removed: {keepers}"
        )
        status, workers = mapping(raw, "status"), mapping(raw, "status", "workers")
        none = {**workers, "ready": 0, "text": f"0/{workers.get('total', 0)}"}
        display = {**status, "phase": "Terminating", "reason": DELETED, "workers": none}
        self._note({**raw, "status": display}, (DELETED,), "Finalizers", message)

    def deleted_sweep(self, raw: Raw, finalizers: Raw) -> None:
        """The same for this sweep, whose metadata has these `finalizers`."""
        if not (keepers := _keepers(finalizers)):
            return
        # Its runs are its dependents: background deletion removes them after it is gone.
        message = cut(
            "the TrainSweep was deleted: it no longer starts, pauses or stops trials. The object "
            "and its remaining TrainRuns disappear once these finalizers are removed: "
            f"{keepers}",
            MAX_MESSAGE,
        )
        columns = {"phase": "Terminating", "reason": DELETED, "message": message}
        display = {**mapping(raw, "status"), **columns}
        self._note({**raw, "status": display}, (DELETED,), "Finalizers", message)

    def refused(self, raw: Raw, reason: str, message: str) -> None:
        """No operator can lead this run until its user edits it."""
        generation, status = raw["metadata"].get("generation", 0), mapping(raw, "status")
        types = (TOO_LARGE, STALLED) if reason == TOO_LARGE else (STALLED,)
        found = objects(status, "conditions")
        generations = {item.get("type"): item.get("observedGeneration") for item in found}
        if generations.get(STALLED) == generation:
            return
        rest = [item for item in found if item.get("type") not in (TOO_LARGE, RECONCILING, STALLED)]
        display = {**status, "reason": reason, "observedGeneration": generation, "conditions": rest}
        self._note({**raw, "status": display}, types, reason, message[:2000])

    def _note(self, raw: Raw, types: tuple[str, ...], reason: str, message: str) -> None:
        """Queue conditions of these types for this object, unless it has them."""
        metadata, status = raw["metadata"], mapping(raw, "status")
        self._unpublished.pop(metadata["uid"], None)
        if not _settled(status, types[0]):
            head = {**self._kind.head(), **named(raw)}
            self._unpublished[metadata["uid"]] = _UnpublishedCondition(
                head, status, types, reason, message
            )
            self._more.set()

    def gone(self, uid: str) -> None:
        """The object no longer needs a condition."""
        self._unpublished.pop(uid, None)

    async def publish(self, around: WorldDependencies) -> None:
        """Write queued conditions forever; one after the other, since none is urgent."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._unpublished:
                condition = self._unpublished.pop(next(iter(self._unpublished)))
                try:
                    await self._publish_one(around, condition)
                except (Conflict, NotFound):
                    continue  # the watch brings the newer version
                except KubeError as error:
                    where = self._path(condition)
                    _log.warning("%s: the condition cannot be written: %s", where, error)
                    asyncio.get_running_loop().call_later(RETRY, self._again, condition)

    def _again(self, condition: _UnpublishedCondition) -> None:
        """Retry; if the object changed since then, the API server will refuse the write."""
        self._unpublished.setdefault(condition.head["metadata"]["uid"], condition)
        self._more.set()

    async def _publish_one(
        self, around: WorldDependencies, condition: _UnpublishedCondition
    ) -> None:
        now = datetime.now(UTC)
        fields = {
            "status": "True",
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": now.isoformat(),
            "observedGeneration": condition.head["metadata"].get("generation", 0),
        }
        new = ({"type": type_, **fields} for type_ in condition.types)
        conditions = [*condition.status.get("conditions", []), *new]
        # This path writes only the status; the rest of the body is ignored.
        body = {**condition.head, "status": {**condition.status, "conditions": conditions}}
        path = f"{self._path(condition)}/status"
        await around.api.put(path, body, guard=around.check_leadership)
        if condition.types[0] != STALLED:  # its event was recorded when the run was read
            event = Event(type="Warning", reason=condition.types[0], message=condition.message)
            self._record(condition.head, event, now)

    def _path(self, condition: _UnpublishedCondition) -> str:
        metadata = condition.head["metadata"]
        return self._kind.path(metadata["namespace"], metadata["name"])


def _settled(status: Raw, type_: str) -> bool:
    conditions: list[Mapping[str, Any]] = status.get("conditions", [])
    return any(c.get("type") in (*SETTLED, type_) and c.get("status") == "True" for c in conditions)


def _keepers(raw: Raw) -> str:
    """The finalizers that are not Kubernetes' own."""
    found = mapping(raw, "metadata").get("finalizers", ())
    return ", ".join(finalizer for finalizer in found if finalizer not in OF_THE_COLLECTOR)[:500]
