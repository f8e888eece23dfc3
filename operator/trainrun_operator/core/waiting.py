"""Plans that wait: for workers, for the store, for uploads; each says what for.

Layer: core. A plan that waits changes nothing durable; it is made anew in every pass.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core import answers, gang, transitions
from trainrun_operator.core.display import condition, gathering_phase, refreshed, since
from trainrun_operator.core.plan import Action, Plan

if TYPE_CHECKING:
    from trainrun_operator.api.status import Condition
    from trainrun_operator.core.view import View

IDLE_CHECK = timedelta(seconds=5)
"""Look again at least this often while something is waited for."""


def wait(
    view: View,
    reason: str,
    message: str,
    *,
    actions: tuple[Action, ...],
    marks: tuple[Condition, ...] = (),
    resolve: bool = False,
    after: timedelta = IDLE_CHECK,
) -> Plan:
    """Wait while the next attempt is prepared; `marks` are conditions that tell more."""
    shown = next((m.reason for m in marks if m.status == "False"), reason)
    return Plan(
        reason=reason,
        message=message,
        status=refreshed(
            view,
            view.status,
            phase=gathering_phase(view),
            reason=shown,
            waiting_for=message,
            marks=marks,
        ),
        actions=actions,
        answers=answers.gathering(view, gang.choose(view), resolve=resolve),
        requeue_after=min(after, IDLE_CHECK, view.next_silence),
    )


def store_wait(
    view: View,
    reason: str,
    message: str,
    *,
    grace: timedelta | None,
    actions: tuple[Action, ...] = (),
) -> Plan:
    """Wait for the store; unknown is not failed, but not for ever either."""
    waited = since(view.status, "StorageReady", reason, view.observation.now)
    if grace is not None and waited > grace:
        return transitions.fail(view, reason, message)
    mark = condition(view, "StorageReady", "False", reason, message)
    return wait(view, reason, message, actions=actions, marks=(mark,), resolve=True)
