"""Which worker copies the staged files of which other one.

Layer: core. The *buddy* of a worker is on another node. Pairs follow from the roster and from the
nodes, so they stay the same for an attempt.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.view import View, and_others, once


def node_of(worker: WorkerFact | None) -> str:
    """The node of a worker; "": not known."""
    if worker is None:
        return ""
    return worker.node or (worker.agent.node if worker.agent is not None else "")


@once
def buddies(view: View) -> Mapping[int, int]:
    """By slot, that of its buddy; without the slots for which no other node is known.

    The ring goes from node to node, the one with the most workers first, and is shifted by as many
    as that one has. So each worker is the buddy of one other, unless one node has more than half of
    them: those share the others evenly.
    """
    by_node: dict[str, list[int]] = {}
    for slot, worker in enumerate(view.roster):
        by_node.setdefault(node_of(worker), []).append(slot)
    by_node.pop("", None)
    if not view.config.buddy or view.config.upload_every is None or len(by_node) < 2:
        return {}
    nodes = sorted(by_node.values(), key=lambda slots: (-len(slots), slots))
    ring, most = [slot for slots in nodes for slot in slots], len(nodes[0])
    others = len(ring) - most
    return {
        slot: ring[most + at % others if at < most else (at + most) % len(ring)]
        for at, slot in enumerate(ring)
    }


@once
def serving(view: View) -> Mapping[int, int]:
    """Those of `buddies` that can copy; without the workers whose agents serve no other node."""
    heard = ((slot, view.agents[slot]) for slot in buddies(view))
    silent = {slot for slot, agent in heard if agent is not None and not agent.serves_tls}
    return {slot: buddy for slot, buddy in buddies(view).items() if slot not in silent}


def without_buddy(view: View) -> tuple[str, str]:
    """Reason and message about workers that no buddy can copy; empty: none, or no attempt runs."""
    config = view.config
    if not config.buddy or config.upload_every is None or view.running is None:
        return "", ""
    nodes = [node_of(worker) for worker in view.roster]
    if "" not in nodes and not buddies(view):
        return "OneNode", (
            f"all workers are on node {nodes[0]}, so none has a buddy on another node. Spread them "
            "(topologySpreadConstraints), or set checkpoint.buddy: false"
        )
    left_out = (a for a in view.heard if a.slot in buddies(view) and a.slot not in serving(view))
    # Without a file it may not have the certificate yet.
    found = sorted(agent.worker for agent in left_out if agent.staged)
    if not found:
        return "", ""
    return "NotCopied", (
        f"worker {found[0]}{and_others(len(found))} serves no other node, so no buddy copies what "
        "it has staged. Read its log, or set checkpoint.buddy: false"
    )
