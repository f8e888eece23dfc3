"""A pod's node affinity, narrowed: these nodes must not be chosen.

Layer: worlds/kubernetes; pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def keep_away(spec: Object, nodes: Sequence[str]) -> None:
    """Add to the pod's spec that it is not placed on `nodes` (their names)."""
    if not nodes:
        return
    affinity = spec["affinity"] = {**(spec.get("affinity") or {})}
    of_nodes = affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {})}
    required = of_nodes.get(REQUIRED) or {}
    # One term is enough for a node to be chosen, so each of the user's has to be narrowed. By a
    # node's name, since labels may be missing or shared; such a requirement takes a single value.
    ours = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *ours]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    of_nodes[REQUIRED] = {**required, "nodeSelectorTerms": terms}
