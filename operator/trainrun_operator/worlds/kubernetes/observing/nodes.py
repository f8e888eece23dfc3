"""What is looked at of a node: whether it answers, and whether it is going away.

Layer: worlds/kubernetes; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainrun_operator.kube.raw import mapping, moment, objects, text
from trainrun_operator.worlds.kubernetes.observing.taints import Taint


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """A node as its object says; what changes every few seconds (heartbeats) is left out."""

    name: str
    ready: str = "Unknown"
    """True, False or Unknown; anything but True makes the node suspect."""
    ready_since: datetime | None = None
    """When that changed last."""
    ready_reason: str = ""
    ready_message: str = ""
    unschedulable: bool = False
    """It was cordoned: whoever removes it then meant to."""
    taints: tuple[Taint, ...] = ()
    deletion: datetime | None = None
    """Since when its object is being deleted; finalizers (Karpenter, Cluster API) drain it."""
    deleted: bool = False
    """There is no such object any more: this is how it looked last."""

    def as_gone(self) -> NodeFact:
        """The node after its object was deleted."""
        return replace(self, deleted=True)


def node_fact(raw: Mapping[str, Any]) -> NodeFact:
    """The node that the API server describes so."""
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
