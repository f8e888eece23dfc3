"""Plans that wait: for workers, for the store, for uploads; each says what for.

Layer: core. A plan that waits changes nothing durable; it is made anew in every pass.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run import answers, transitions
from trainrun_operator.core.run.display import condition, gathering_phase, refreshed, since
from trainrun_operator.core.run.gang import roster as gang
from trainrun_operator.core.run.gang.prefetching import prefetched
from trainrun_operator.core.run.plan import Action, Plan

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import Condition
    from trainrun_operator.core.run.view import View

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
        answers=answers.gathering(
            view, gang.lead(view), resolve=resolve, prefetch=prefetched(view)
        ),
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
    """Wait for the store; unknown is not failed, but not for ever either.

    Only what this operator has seen in this gathering counts: an earlier trouble may have ended
    while nobody looked.
    """
    known = since(view.status, "StorageReady", reason, view.observation.now)
    waited = min(known, _gathering_for(view), view.observation.listening_for)
    if grace is not None and waited > grace:
        return transitions.fail(view, reason, message)
    mark = condition(view, "StorageReady", "False", reason, message)
    return wait(view, reason, message, actions=actions, marks=(mark,), resolve=True)


def _gathering_for(view: View) -> timedelta:
    """Since the attempt before has ended, or since the run was accepted or resumed."""
    ending, begun = view.status.ending, view.status.start_time
    assert begun is not None, "a run gathers only once it was accepted"
    return view.observation.now - (max(ending.time, begun) if ending is not None else begun)
