"""How long a node's kubelet has not renewed its Lease: the earliest sign that a node is gone.

Layer: worlds/kubernetes. The node controller waits 40 to 50 s before it calls a node NotReady; the
kubelet renews its Lease every quarter of leaseDurationSeconds (10 s by default). Only asked for
nodes with a silent worker. Ages are counted on our own clock, since we began to look: a node's
clock may be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Forbidden, NotFound, Unavailable

LOOK_EVERY = 1.0
"""Seconds between two reads of one node's Lease."""
MISSED = 10.0
"""Seconds until a node is asked about again that had no Lease."""
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
    """What one run remembers of the Leases of nodes on which its workers are silent."""

    def __init__(self, api: KubeApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._seen: dict[str, _Sight] = {}
        self._missed: dict[str, float] = {}
        """When a node had no Lease, of late."""

    async def stale(self, silent: set[str]) -> dict[str, timedelta]:
        """Of these nodes, the ages of Leases that two renewals have missed; forgets all others."""
        for node in self._seen.keys() - silent:
            del self._seen[node]
        late = self._clock() - MISSED
        self._missed = {node: at for node, at in self._missed.items() if at > late}
        for node in sorted(silent - self._missed.keys()):
            await self._look(node)
        # Until we looked last: while nobody can be asked, a Lease does not grow older.
        return {
            node: timedelta(seconds=sight.looked - sight.since)
            for node, sight in self._seen.items()
            if sight.looked - sight.since > sight.duration / 2
        }

    async def _look(self, node: str) -> None:
        now, sight = self._clock(), self._seen.get(node)
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
            self._seen[node] = _Sight(renewed, since=now, looked=now, duration=duration)
        else:
            sight.looked = now
