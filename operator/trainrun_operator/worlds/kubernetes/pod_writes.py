"""Deletes pods, and tracks refused creations.

Layer: worlds/kubernetes. Invariants: a pod is deleted by its uid; a pod that still exists is not
removed from the cache: it would become invisible, and another one would be created next to it. A
quota, an admission policy or a webhook that is down may refuse a pod for hours: each slot backs off
separately, and the core gets the refusal as a fact.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from trainrun_operator.core.run.boundary import CreateWorker, Refused, RefusedReason
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries; doubled each time."""
LONGEST_OUTAGE_PAUSE = 10.0
"""The maximum if nothing refused it: a webhook that is down is back within minutes."""


async def delete_pod(
    pod: PodFact, *, api: KubeApi, pods: PodIndex, guard: Callable[[], None], force: bool = False
) -> None:
    """Delete a pod. `force`: at once, without waiting for its node; `guard` as for the API. Raises
    KubeError if the pod remains."""
    body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if force:
        body["gracePeriodSeconds"] = 0
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    try:
        raw = await api.delete(path, body=body, guard=guard)
    except (NotFound, Conflict) as error:
        if isinstance(error, Conflict) and "Precondition failed" not in error.message:
            raise  # the pod exists: a policy or a webhook refused
        pods.forget(pod)
        return
    if raw.get("kind") == "Pod" and not force:
        pods.learn(raw)
    else:
        pods.forget(pod)


@dataclass(slots=True, kw_only=True)
class _Refusal:
    fact: Refused
    """The fact for the core, without the time."""
    since: float
    pause: float
    not_before: float


class Refusals:
    """The refused creations of one run, by slot."""

    def __init__(self) -> None:
        self._by_slot: dict[int, _Refusal] = {}

    def may_try(self, slot: int) -> bool:
        """Whether the pause after the last refusal is over."""
        refusal = self._by_slot.get(slot)
        return refusal is None or time.monotonic() >= refusal.not_before

    def record(self, action: CreateWorker, reason: RefusedReason, message: str) -> float:
        """A creation was refused; returns the seconds until the next try."""
        now, before = time.monotonic(), self._by_slot.get(action.slot)
        same = before is not None and before.fact.reason == reason
        longest = LONGEST_OUTAGE_PAUSE if reason == "Unavailable" else LONGEST_PAUSE
        pause = min(before.pause * 2, longest) if before is not None and same else FIRST_PAUSE
        self._by_slot[action.slot] = _Refusal(
            fact=Refused(
                slot=action.slot,
                name=action.name,
                reason=reason,
                message=message,
                since=timedelta(0),
            ),
            since=before.since if before is not None and same else now,
            pause=pause,
            not_before=now + pause,
        )
        return pause

    def clear(self, slot: int) -> None:
        """A pod of this slot was created."""
        self._by_slot.pop(slot, None)

    def try_again(self, reason: RefusedReason) -> None:
        """There may be room now: forget the refusals with this reason."""
        self._by_slot = {
            slot: refusal
            for slot, refusal in self._by_slot.items()
            if refusal.fact.reason != reason
        }

    def facts(self) -> tuple[Refused, ...]:
        """The refusals, as facts for the core."""
        now = time.monotonic()
        return tuple(
            replace(refusal.fact, since=timedelta(seconds=now - refusal.since))
            for _, refusal in sorted(self._by_slot.items())
        )


def reason_of(error: KubeError) -> RefusedReason:
    """The reason of a refusal with this error."""
    if isinstance(error, Invalid):
        return "Invalid"
    if isinstance(error, Forbidden):
        return "QuotaExceeded" if "exceeded quota" in error.message else "Forbidden"
    return "Unavailable"
