"""Nodes: whether one answers, and whether its end is announced.

Layer: worlds/kubernetes. A table of taints: clouds and autoscalers announce the end of a node by
tainting it, minutes or seconds before pods notice anything. Static taints
(`cloud.google.com/gke-spot`, `kubernetes.azure.com/scalesetpriority`) and mere intentions
(`DeletionCandidateOfClusterAutoscaler`, `aws-node-termination-handler/rebalance-recommendation`)
are not notices. docs/failure-model.md shows the table to users.

The earliest sign of a lost node is a Lease that its kubelet has not renewed: the node controller
waits 40 to 50 s before it marks a node NotReady; the kubelet renews its Lease every quarter of
leaseDurationSeconds (10 s by default). Leases are read only for nodes with a silent worker. Ages
count on our own clock, from our first look: a node's clock may be wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Forbidden, NotFound, Unavailable
from trainrun_operator.kube.raw import mapping, moment, objects, text

NO_EXECUTE = "NoExecute"

LIFE_CYCLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""The node controller's own taints: they repeat the Ready condition."""

SWITCHED_OFF = (
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
)
"""They vouch that the machine is off: what ran there is lost, and may be deleted by force."""
_ENTRY = re.compile(
    r"(?P<drop>-?)(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)(=(?P<value>[A-Za-z0-9._-]*))?"
    r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?(@(?P<seconds>\d{1,6})s)?"
)
LOOK_EVERY = 1.0
"""Seconds between two reads of one node's Lease."""
MISSED = 10.0
"""Seconds until the next look at a node that had no Lease."""
DEFAULT_DURATION = 40
"""Seconds; the kubelet's nodeLeaseDurationSeconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""
    added: datetime | None = None
    """Known only for NoExecute taints."""

    def __str__(self) -> str:
        """The taint as kubectl writes it."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTaint:
    """A taint that announces the end of its node; an empty value or effect matches any."""

    key: str
    value: str = ""
    effect: str = ""
    means: str
    """Completes "node n1 ...": what will happen, in words for users."""
    seconds: float | None = None
    """Seconds from the taint to the end of the node, where its source promises a time."""

    def matches(self, taint: Taint) -> bool:
        """Whether it is this taint."""
        return (
            self.key == taint.key
            and self.value in ("", taint.value)
            and self.effect in ("", taint.effect)
        )


DEFAULT_NOTICES = (
    NoticeTaint(
        key="aws-node-termination-handler/spot-itn",
        means="is a spot instance that is being reclaimed",
        seconds=120,
    ),
    NoticeTaint(
        key="aws-node-termination-handler/scheduled-maintenance",
        means="is going into maintenance",
    ),
    NoticeTaint(
        key="aws-node-termination-handler/asg-lifecycle-termination",
        means="is being terminated by its scaling group",
    ),
    NoticeTaint(key="karpenter.sh/disrupted", means="is being replaced by Karpenter"),
    NoticeTaint(
        key="cloud.google.com/impending-node-termination",
        means="is being reclaimed or goes into maintenance",
    ),
    NoticeTaint(
        key="remediator.kubernetes.azure.com/unschedulable",
        means="is being drained by AKS",
    ),
    NoticeTaint(
        key="ToBeDeletedByClusterAutoscaler",
        means="is being removed by the cluster autoscaler",
    ),
    NoticeTaint(
        key="sagemaker.amazonaws.com/node-health-status",
        means="was quarantined by SageMaker HyperPod",
    ),
    NoticeTaint(
        key="AggregatedNodeHealth",
        value="False",
        means="was quarantined by NVSentinel",
    ),
)
"""The common ones; the operator's settings may add more, or leave one out."""


def notice_taints(entries: Iterable[str] = ()) -> tuple[NoticeTaint, ...]:
    """The default table with the changes of `entries`.

    `key[=value][:effect][@120s]` adds a taint, or replaces the default one of the same key; `@`
    gives the time from the taint to the end of the node. `-key` leaves a default one out. Raises
    InvalidSpec for anything else.
    """
    table = {notice.key: notice for notice in DEFAULT_NOTICES}
    for entry in entries:
        read = _ENTRY.fullmatch(entry)
        if read is None:
            raise InvalidSpec(
                f"{entry!r} is not a taint; write key, key=value, key=value:NoSchedule (append "
                "@120s if you know how long the node will live), or -key to leave out a default one"
            )
        if read["drop"]:
            table.pop(read["key"], None)
            continue
        table[read["key"]] = NoticeTaint(
            key=read["key"],
            value=read["value"] or "",
            effect=read["effect"] or "",
            means="is going away",
            seconds=float(read["seconds"]) if read["seconds"] else None,
        )
    return tuple(table.values())


def announced(
    taints: Iterable[Taint], notices: Sequence[NoticeTaint]
) -> tuple[Taint, NoticeTaint] | None:
    """The first taint, in the order of the table, that announces the end of its node."""
    found = ((taint, notice) for notice in notices for taint in taints if notice.matches(taint))
    return next(found, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """What a pod tolerates; an empty key (with Exists) tolerates everything."""

    key: str = ""
    exists: bool = False
    value: str = ""
    effect: str = ""
    seconds: int | None = None
    """Seconds after the taint was added for which it is tolerated; None: without limit."""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this taint is tolerated, at least for a time."""
        return (
            self.effect in ("", taint.effect)
            and self.key in ("", taint.key)
            and (self.exists or (self.key != "" and self.value == taint.value))
        )


def patience(taint: Taint, tolerations: Iterable[Toleration]) -> float | None:
    """Seconds after which a NoExecute taint ends a pod: 0 at once, None never."""
    tolerated = [t.seconds for t in tolerations if t.tolerates(taint)]
    if not tolerated:
        return 0.0
    limited = [max(seconds, 0) for seconds in tolerated if seconds is not None]
    return float(min(limited)) if limited else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """A node by its object, without fields that change every few seconds (heartbeats)."""

    name: str
    ready: str = "Unknown"
    """True, False or Unknown; anything but True makes the node suspect."""
    ready_since: datetime | None = None
    """When that last changed."""
    ready_reason: str = ""
    ready_message: str = ""
    unschedulable: bool = False
    """Whether it is cordoned: then its removal is intended."""
    taints: tuple[Taint, ...] = ()
    deletion: datetime | None = None
    """Since when its object is being deleted; finalizers (Karpenter, Cluster API) drain it."""
    deleted: bool = False
    """Whether its object is gone: then this is its last state."""

    def as_gone(self) -> NodeFact:
        """The node after its object was deleted."""
        return replace(self, deleted=True)


def node_fact(raw: Mapping[str, Any]) -> NodeFact:
    """The node for this object of the API server."""
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    conditions = objects(mapping(raw, "status"), "conditions")
    ready = next((c for c in conditions if c.get("type") == "Ready"), {})
    return NodeFact(
        name=text(metadata, "name"),
        ready=text(ready, "status") or "Unknown",
        ready_since=moment(ready, "lastTransitionTime"),
        ready_reason=text(ready, "reason"),
        ready_message=text(ready, "message"),
        unschedulable=spec.get("unschedulable") is True,
        taints=tuple(
            Taint(
                key=text(taint, "key"),
                value=text(taint, "value"),
                effect=text(taint, "effect"),
                added=moment(taint, "timeAdded"),
            )
            for taint in objects(spec, "taints")
        ),
        deletion=moment(metadata, "deletionTimestamp"),
    )


@dataclass(slots=True)
class _Sight:
    renewed: str
    """The Lease's renewTime."""
    since: float
    """When we first saw it."""
    looked: float
    duration: float


class NodeLeases:
    """The Leases of nodes on which workers of one run are silent, as last seen."""

    def __init__(self, api: KubeApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._sights: dict[str, _Sight] = {}
        self._missed: dict[str, float] = {}
        """When a node had no Lease, for the last MISSED seconds."""

    async def stale(self, silent: set[str]) -> dict[str, timedelta]:
        """Ages of the Leases of these nodes that missed two renewals; forgets all other nodes."""
        for node in self._sights.keys() - silent:
            del self._sights[node]
        late = self._clock() - MISSED
        self._missed = {node: at for node, at in self._missed.items() if at > late}
        for node in sorted(silent - self._missed.keys()):
            await self._look(node)
        # Up to our last look: while the API server does not answer, a Lease does not age.
        return {
            node: timedelta(seconds=sight.looked - sight.since)
            for node, sight in self._sights.items()
            if sight.looked - sight.since > sight.duration / 2
        }

    async def _look(self, node: str) -> None:
        now, sight = self._clock(), self._sights.get(node)
        if sight is not None and now - sight.looked < LOOK_EVERY:
            return
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        try:
            lease = await self._api.get(path)
        except NotFound:
            self._missed[node] = now
            return
        except (Forbidden, Unavailable):
            return  # nothing is known, and unknown is not lost
        spec = lease.get("spec", {})
        renewed = str(spec.get("renewTime", ""))
        if sight is None or sight.renewed != renewed:
            duration = float(spec.get("leaseDurationSeconds", DEFAULT_DURATION))
            self._sights[node] = _Sight(renewed, since=now, looked=now, duration=duration)
        else:
            sight.looked = now
