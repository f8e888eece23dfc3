"""How long an operator that begins to lead takes no silence for a loss.

Layer: runtime, pure. After an outage of the API server agents look for the leader, as far away as
their longest pause, kube-proxy may lead them to the one before, and kubelets seem to be gone until
they are through again: what is not heard then is no sign of a loss.
"""

from __future__ import annotations

AFTERMATH = 45.0
"""Seconds after an outage of the API server: kube-proxy waits as long as 30 s between its tries."""
UNATTENDED = 20.0
"""Seconds without a leader that no crash explains, since the others wait but ten: there was an
outage, though a process that was started since has not seen it."""


def silence_grace(*, since_outage: float, vacant_for: float) -> float:
    """Seconds from now in which nobody counts as silent.

    `since_outage`: seconds since the API server was back; `vacant_for`: that nobody has led.
    """
    if vacant_for > UNATTENDED:
        return AFTERMATH
    return max(0.0, AFTERMATH - since_outage)
