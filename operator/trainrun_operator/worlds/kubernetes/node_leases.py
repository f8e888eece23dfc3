"""How long a node's kubelet has not renewed its Lease: the earliest sign that a node is gone.

Layer: worlds/kubernetes. The node controller waits 40 to 50 s before it calls a node NotReady; the
kubelet renews its Lease every quarter of leaseDurationSeconds (10 s by default). Only asked for
nodes with a silent worker. Ages are counted on our own clock, since we began to look: a node's
clock may be wrong.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from trainrun_operator.worlds.kubernetes.api import KubeApi
from trainrun_operator.worlds.kubernetes.errors import Forbidden, NotFound, Unavailable

LOOK_EVERY = 1.0
"""Seconds between two reads of one node's Lease."""
DEFAULT_DURATION = 40
"""Seconds; the kubelet's nodeLeaseDurationSeconds."""


@dataclass(slots=True)
class _Sight:
    renewed: str
    """The Lease's renewTime."""
    since: float
    """When we first saw it."""
    looked: float
    duration: float


class NodeLeases:
    """Remembers when each Lease was last seen to change."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._seen: dict[str, _Sight] = {}

    async def stale_for(self, node: str) -> timedelta | None:
        """Age of a Lease that two renewals have missed; None while it is fresh or unknown."""
        await self._look(node)
        sight = self._seen.get(node)
        if sight is None:
            return None
        age = time.monotonic() - sight.since
        return timedelta(seconds=age) if age > sight.duration / 2 else None

    def forget_all_but(self, nodes: set[str]) -> None:
        """Workers on these nodes are silent; the others need no looking after."""
        for node in self._seen.keys() - nodes:
            del self._seen[node]

    async def _look(self, node: str) -> None:
        now, sight = time.monotonic(), self._seen.get(node)
        if sight is not None and now - sight.looked < LOOK_EVERY:
            return
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        try:
            lease = await self._api.get(path)
        except (NotFound, Forbidden, Unavailable):
            return  # nothing is known, and unknown is not lost
        spec = lease.get("spec", {})
        renewed = str(spec.get("renewTime", ""))
        if sight is None or sight.renewed != renewed:
            duration = float(spec.get("leaseDurationSeconds", DEFAULT_DURATION))
            self._seen[node] = _Sight(renewed, since=now, looked=now, duration=duration)
        else:
            sight.looked = now
