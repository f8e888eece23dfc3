"""Which worker copies the staged files of which other one.

Layer: core. The *buddy* of a worker is on another node. Pairs follow from the roster and from the
nodes, so they stay the same for an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.view import View, once


def node_of(worker: WorkerFact | None) -> str:
    """The node of a worker; "": not known."""
    if worker is None:
        return ""
    return worker.node or (worker.agent.node if worker.agent is not None else "")


@once
def buddies(view: View) -> Mapping[int, int]:
    """By slot, that of its buddy; without the slots for which no other node is known.

    Where it can be, each worker is the buddy of one other: the ring is shifted by one slot, or by
    as many as a node has. Else the buddy is the next one in the ring on another node.
    """
    nodes = [node_of(worker) for worker in view.roster]
    size = len(nodes)
    if not view.config.buddy or view.config.upload_every is None or len({*nodes} - {""}) < 2:
        return {}

    def apart(slot: int, other: int) -> bool:
        return nodes[slot] != nodes[other] and "" not in (nodes[slot], nodes[other])

    for shift in sorted({1, max(Counter(nodes).values())}):
        if all(apart(slot, (slot + shift) % size) for slot in range(size)):
            return {slot: (slot + shift) % size for slot in range(size)}
    ring = [*range(size), *range(size)]
    found = {
        slot: next((other for other in ring[slot : slot + size] if apart(slot, other)), None)
        for slot in range(size)
    }
    return {slot: other for slot, other in found.items() if other is not None}


def without_buddy(view: View) -> str:
    """The message about workers without another node; "": each has one, or no attempt runs."""
    config = view.config
    if not config.buddy or config.upload_every is None or view.running is None:
        return ""
    nodes = [node_of(worker) for worker in view.roster]
    if "" in nodes or buddies(view):
        return ""
    return (
        f"all workers are on node {nodes[0]}, so none has a buddy on another node. Spread them "
        "(topologySpreadConstraints), or set checkpoint.buddy: false"
    )
