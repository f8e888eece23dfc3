"""The verdict about processes that all ended well and never met.

Layer: core. Certainly separate trainings fail the run; where it may be meant, the run succeeds, and
its reason and a warning say what was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.separate import NEVER_MET, SEPARATE, separate

if TYPE_CHECKING:
    from trainrun_operator.core.run.plan import Plan
    from trainrun_operator.core.run.view import View


def verdict(view: View, ended: str) -> Plan | None:
    """Of a run of which `ended` could be said; None: its processes have met, or may have."""
    reason, message = separate(view)
    if reason == NEVER_MET:
        return transitions.succeed(view, reason, f"{ended}, but {message}", type_="Warning")
    return transitions.fail(view, SEPARATE, message) if reason else None
