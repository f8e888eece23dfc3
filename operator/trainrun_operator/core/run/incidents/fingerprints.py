"""The same failure again and again: a bug where it strikes on several nodes, else the node.

Layer: core; a pure function of the incidents that the status tells of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun_operator.core.run.signals import NAMES, signal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainrun_operator.api.run.incident import Incident

AGAIN = 3
"""Times from which on it is shown: two may be chance."""

NUMBERED = {3: "third", 4: "fourth", 5: "fifth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What two incidents of one root have in common."""

    root: str
    """`FloatingPointError in loss.py:88`, `SIGSEGV`."""
    step: int | None
    """The highest step that its attempt had reported; None: none."""
    template: str
    """Hash of the pod template, and so of the image."""


def fingerprint(incident: Incident) -> Fingerprint | None:
    """None where its root is not known: an exit code alone may be anything."""
    signal = signal_of(incident)
    if incident.collateral:
        return None
    if incident.exception and incident.raised_at:
        root = f"{incident.exception[0]} in {incident.raised_at}"
    elif signal is not None and not incident.exception:
        root = NAMES.get(signal, f"signal {signal}")
    else:
        return None
    return Fingerprint(root=root, step=incident.step, template=incident.template)


def same_node(incidents: Sequence[Incident]) -> Incident | None:
    """The first of the newest ones in which the root of the newest incident has struck again and
    again, on one node alone; None where it has not."""
    newest = fingerprint(incidents[-1]) if incidents else None
    same = [it for it in incidents if newest is not None and fingerprint(it) == newest]
    nodes = {it.node for it in same}
    if len(same) < AGAIN or len(nodes) > 1:
        return None
    return same[-AGAIN]


def repeated(incidents: Sequence[Incident]) -> tuple[str, str]:
    """Reason and message for the newest incident where its root has struck before; else empty."""
    newest = fingerprint(incidents[-1]) if incidents else None
    same = [it for it in incidents if newest is not None and fingerprint(it) == newest]
    if newest is None or len(same) < AGAIN:
        return "", ""
    nodes = sorted({it.node for it in same} - {""})
    time = NUMBERED.get(len(same), f"{len(same)}th")
    when = "before the first step" if newest.step is None else f"at step {newest.step}"
    what = f"{time} time: {newest.root} {when}"
    if len(nodes) == 1:
        return "SameNode", f"{what}, always on node {nodes[0]}: have the node checked"
    where = f", on {len(nodes)} nodes" if nodes else ""
    return "SameFailure", f"{what}{where}: the code, which no restart mends"
