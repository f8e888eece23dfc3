"""SIGTERM for a script that does not ask `should_save()`, and how long it may take to end then.

Layer: core. The attempt is given up first, in the status; the Hold that follows says how long its
processes have. So however they end then, it is neither a failure nor a success, and no message of
an agent has to come before another one for that.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.flush import answers_still
from trainrun_operator.core.run.notices import noticed, time_left

if TYPE_CHECKING:
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.plan import Plan
    from trainrun_operator.core.run.view import View

LONGEST = timedelta(minutes=10)
"""At most, where the template's pods do not have a longer grace: a script that ignores the signal
must not keep a run from being suspended."""

FOR_UPLOADS = 4
"""One part in so many of the time that a leaving worker has is kept for its uploads, where
flushTimeout is not shorter."""


def grace(view: View) -> timedelta:
    """How long processes that get SIGTERM now may take to end.

    After a notice that is the time that the last worker has which is taken away. Otherwise nobody
    takes anything away, and it is the grace that the template gives its pods.
    """
    if view.config.suspend or not noticed(view):
        return view.config.grace
    left = max(time_left(view))
    left -= min(view.config.flush_timeout, left / FOR_UPLOADS)
    return min(max(left, timedelta(0)), _longest(view))


def granted(view: View, plan: Plan, time: timedelta) -> Plan:
    """The plan that gives the attempt up, with so much time for its processes."""
    ending = plan.status.ending
    assert ending is not None, "its attempt is given up"
    over = view.observation.now + time
    flush_until = max(over + view.config.flush_timeout, ending.flush_until or over)
    ending = replace(ending, grace_until=over, flush_until=flush_until)
    return replace(plan, status=replace(plan.status, ending=ending))


def grace_left(view: View) -> timedelta:
    """How long processes of the attempt that has ended may still take."""
    ending = view.status.ending
    if ending is None or ending.grace_until is None:
        return timedelta(0)
    left = ending.grace_until - view.observation.now
    # What lies further ahead was written by a leader whose clock was ahead of ours.
    return left if timedelta(0) < left <= _longest(view) else timedelta(0)


def still_ending(view: View) -> tuple[WorkerFact, ...]:
    """Workers whose processes got SIGTERM and have not ended, as far as time allows."""
    if not grace_left(view):
        return ()
    return tuple(w for w in view.roster if w is not None and _still_ends(view, w))


def _still_ends(view: View, worker: WorkerFact) -> bool:
    if not answers_still(view, worker):
        return False
    agent = view.joined(worker)
    return worker.agent is None or (agent is not None and agent.phase == "Running")


def _longest(view: View) -> timedelta:
    return max(view.config.grace, LONGEST)
