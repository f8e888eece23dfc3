"""Who is under notice, how much time that leaves, and SIGTERM for a script that does not ask.

Layer: core. A script that asks `should_save()` saves there; whether it would hear of a notice in
time is said before one comes, in steps, so that a long evaluation is not told anew in every pass.
All others get SIGTERM. The attempt is given up first, in the status; the Hold that follows says how
long its processes have. So however they end then, it is neither a failure nor a success, and no
message of an agent has to come before another one for that.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.flush import answers_still
from trainrun_operator.core.run.view import View, done, notice_of

if TYPE_CHECKING:
    from trainrun.contract.agent_state import Notice
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.plan import Plan


NOTICE_DEFAULT = timedelta(seconds=120)
"""Time left after a notice that names none: the two minutes that the large clouds give."""

Noticed = tuple[tuple["WorkerFact", "Notice"], ...]


def notices(view: View) -> Noticed:
    """The roster's workers under notice, by slot."""
    found = ((worker, notice_of(worker)) for worker in view.roster if worker is not None)
    return tuple((worker, notice) for worker, notice in found if notice is not None)


def noticed(view: View) -> Noticed:
    """Those that still have something to do."""
    return tuple(pair for pair in notices(view) if not done(view.joined(pair[0])))


def time_left(view: View) -> list[timedelta]:
    """Until each of them is taken away; below 0 where nobody knows why it is still there."""
    return [
        timedelta(seconds=notice.remaining)
        if notice.remaining is not None
        else NOTICE_DEFAULT - timedelta(seconds=notice.age)
        for _, notice in noticed(view)
    ]


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


SAVE_TOO_LATE = "SaveTooLate"
"""Type of the condition."""

TOLD_AGAIN = 1.5
"""A gap is told anew when it has grown by this factor."""


def hears_too_late(view: View, status: TrainRunStatus) -> str:
    """What a notice would cost, "" where it would be heard in time."""
    if view.running is None or view.all_done or view.config.on_notice in ("Signal", "Stop"):
        return ""
    grace = view.config.grace.total_seconds()
    gaps = {a.worker: a.ask_gap for a in view.agents if a is not None}
    known = status.condition(SAVE_TOO_LATE)
    worker = max(gaps, key=lambda name: gaps[name], default="")
    if not worker or gaps[worker] <= grace:
        # A new leader has not heard everybody yet: that nobody says it any more is no news.
        return known.message if known is not None and None in view.agents else ""
    gap = max(grace, 1.0)
    while gap * TOLD_AGAIN <= gaps[worker]:
        gap *= TOLD_AGAIN
    text = f"has not asked should_save() for {gap:.0f} s or more (worker {worker})"
    if known is not None and text in known.message:
        return known.message
    return (
        f"a notice of {grace:.0f} s would lose {_at_stake(status)}: the script {text}; ask in "
        "evaluation loops and before long work, too, or raise terminationGracePeriodSeconds"
    )


def _at_stake(status: TrainRunStatus) -> str:
    """What was trained since the newest checkpoint, at the moment when it is told."""
    step, saved = status.progress.step, status.checkpoint
    done = (step or 0) - (saved.step if saved is not None else 0)
    return f"{done} steps" if done > 1 else "what was trained since the newest checkpoint"
