"""What people are told of a gang that stands still and that nothing ends.

Layer: core. Told once, and anew where it lasts twice as long; taken back when steps go on. Nobody
takes it back who cannot judge: a new leader, or one that waits for a silent agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.core.run.incidents import evidence
from trainrun_operator.core.run.incidents.learned import (
    HUNG,
    KNOWN_BY_USE,
    judged,
    suspected_hang,
)

if TYPE_CHECKING:
    from trainrun_operator.core.run.incidents.losses import Loss
    from trainrun_operator.core.run.view import View

REMEDIES = {
    "NoStep": "wrap what takes long without a step in trainrun.long_section(); "
    "spec.health.progressTimeout, or hangPolicy: Restart, would end it",
    "NoWork": "look at what its processes wait for; a script that calls trainrun.report() can be "
    "watched by spec.health.progressTimeout and firstStepTimeout",
    "SectionTooLong": "spec.health.hangPolicy: Restart, or progressTimeout, would end it",
}
"""By the reason of the condition."""


def warning(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where there is nothing to tell."""
    if view.running is None or view.all_done:
        return "", ""
    loss = suspected_hang(view)
    if loss is not None:
        reason = _reason(view, loss)
        if evidence.stage_of(view, loss) == "Act":
            loss = evidence.explained(view, loss)
        where = f" (worker {loss.worker} on node {loss.node})" if loss.worker else ""
        return reason, f"{loss.message}{where}. Only observed: {REMEDIES[reason]}"
    known = view.status.condition(HUNG)
    return ("", "") if known is None or judged(view) else (known.reason, known.message)


def _reason(view: View, loss: Loss) -> str:
    if loss.known_by == KNOWN_BY_USE:
        return "NoWork"
    in_section = any(agent is not None and agent.section is not None for agent in view.agents)
    return "SectionTooLong" if in_section else "NoStep"
