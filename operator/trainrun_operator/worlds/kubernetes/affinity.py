"""A pod's node affinity, narrowed: nodes that must not be chosen, or that others are preferred to.

Layer: worlds/kubernetes; pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

WEIGHT = 100
"""The most there is. The scheduler adds it to how empty a node is and what the template prefers."""


def keep_away(spec: Object, nodes: Sequence[str]) -> None:
    """Add to the pod's spec that it is not placed on `nodes` (their names)."""
    if not nodes:
        return
    of_nodes = _node_affinity(spec)
    required = of_nodes.get(REQUIRED) or {}
    # One term is enough for a node to be chosen, so each of the user's has to be narrowed.
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *_none_of(nodes)]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    of_nodes[REQUIRED] = {**required, "nodeSelectorTerms": terms}


def rather_elsewhere(spec: Object, nodes: Sequence[str]) -> None:
    """Add to the pod's spec that other nodes than `nodes` (their names) are preferred."""
    if not nodes:
        return
    of_nodes = _node_affinity(spec)
    ours = {"weight": WEIGHT, "preference": {"matchFields": _none_of(nodes)}}
    of_nodes[PREFERRED] = [*(of_nodes.get(PREFERRED) or ()), ours]


def _node_affinity(spec: Object) -> Object:
    """The pod's own, to be changed: the template's is left as it is."""
    affinity = spec["affinity"] = {**(spec.get("affinity") or {})}
    of_nodes: Object = {**(affinity.get("nodeAffinity") or {})}
    affinity["nodeAffinity"] = of_nodes
    return of_nodes


def _none_of(nodes: Sequence[str]) -> list[Object]:
    # By name, since labels may be missing or shared; such a requirement takes a single value.
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
