"""Plans that wait: for workers, for the store, for uploads; each says what for.

Layer: core. A plan that waits changes nothing durable; it is made anew in every pass. Meanwhile
workers read ahead what the attempt will most likely resume from: a wrong guess costs a download and
nothing else, since what is handed out is what slot 0's agent claims.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.api.run.resource import RESTART
from trainrun_operator.core.run import answers, transitions
from trainrun_operator.core.run.display import condition, gathering_phase, refreshed
from trainrun_operator.core.run.flush import away_from, to_flush
from trainrun_operator.core.run.gang import roster as gang
from trainrun_operator.core.run.plan import Action, Plan
from trainrun_operator.core.run.steps import newest_known
from trainrun_operator.core.run.store_wait import (
    OUTSIDE,
    asked_again,
    asked_in_vain,
    lasted,
    paused,
)

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.status import Condition
    from trainrun_operator.core.run.view import View


GOES_ON = f"; a new value of the annotation {RESTART} lets the run go on"
"""What is told with a verdict about the store."""

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
    claimed = gang.claimed(view)
    status = refreshed(
        view,
        view.status,
        phase=gathering_phase(view),
        reason=shown,
        waiting_for=message,
        marks=marks,
    )
    if resolve or away_from(view):  # uploads ask it, too
        status = replace(status, store_wait=asked_again(view, answered=claimed is not None))
    return Plan(
        reason=reason,
        message=message,
        status=status,
        actions=actions,
        answers=answers.gathering(
            view, gang.lead(view), resolve=resolve, claimed=claimed, prefetch=prefetched(view)
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
    marks: tuple[Condition, ...] = (),
    resolve: bool = True,
    hint: str = "",
) -> Plan:
    """Wait for the store; unknown is not failed, but not for ever either.

    `marks` are conditions besides; `resolve`: slot 0's agent asks; `hint` is told while it is
    waited for.
    """
    vain = asked_in_vain(view, reason)
    if grace is not None and lasted(view, vain) > grace:
        later = GOES_ON if reason in OUTSIDE else ""
        plan = transitions.fail(view, reason, message + later)
        # What is edited from now on is compared with this.
        return replace(plan, status=replace(plan.status, store_wait=paused(view, vain)))
    message += hint
    mark = condition(view, "StorageReady", "False", reason, message)
    plan = wait(view, reason, message, actions=actions, marks=(mark, *marks), resolve=resolve)
    return replace(plan, status=replace(plan.status, store_wait=vain))


def prefetched(view: View) -> dict[str, CheckpointId]:
    """By name of the worker whose agent reads it, for its node: the lowest slot of each, as it will
    be once the attempt runs."""
    likely = _likely(view)
    if likely is None:
        return {}
    found: dict[str, str] = {}
    for worker in gang.choose(view):
        if worker is not None and worker.agent is not None:
            found.setdefault(worker.node or worker.agent.node or worker.name, worker.name)
    return dict.fromkeys(found.values(), likely)


def _likely(view: View) -> CheckpointId | None:
    """The newest that is in the store; none while something newer is on its way there."""
    known, flush = newest_known(view), to_flush(view)
    if known is None or not flush:
        return known
    return known if (known.attempt, known.step) >= (view.status.attempt, max(flush)) else None
