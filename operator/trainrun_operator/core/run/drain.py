"""The end of an attempt: notices, SIGTERM and its grace, and the uploads that follow.

Layer: core. A script that calls `should_save()` saves there. All others get SIGTERM. The attempt is
given up first, in the status; the Hold that follows says how long its processes have. So their end
is neither a failure nor a success, and this does not depend on the order of agents' messages.

Uploads come before the claim of the next resume point, which fences everything stored later. An
agent's list of staged steps is final once it has acknowledged the current Hold: then its processes
are dead. Until all agents have, the list of steps may grow. While the store is unavailable the time
for uploads does not run: the next attempt has to wait for the same store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from trainrun.contract.agent_state import AgentState, Notice, Problem
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_parts import Ending, EndingKind
from trainrun_operator.core.run import steps
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.steps import committed_step, flushable
from trainrun_operator.core.run.view import STORE_AWAY, View, done, notice_of, once

NOTICE_DEFAULT = timedelta(seconds=120)
"""Time left after a notice that names none: the two minutes that the large clouds give."""

Noticed = tuple[tuple[WorkerFact, Notice], ...]


def notices(view: View) -> Noticed:
    """The roster's workers under notice, by slot."""
    found = ((worker, notice_of(worker)) for worker in view.roster if worker is not None)
    return tuple((worker, notice) for worker, notice in found if notice is not None)


def noticed(view: View) -> Noticed:
    """Workers under notice whose processes have not ended well yet."""
    return tuple(pair for pair in notices(view) if not done(view.joined(pair[0])))


def time_left(view: View) -> list[timedelta]:
    """Until each of them is taken away; below 0 where it is still there after its time."""
    return [
        timedelta(seconds=notice.remaining)
        if notice.remaining is not None
        else NOTICE_DEFAULT - timedelta(seconds=notice.age)
        for _, notice in noticed(view)
    ]


NOT_ASKED = "; should_save() was not called "
"""Begins the part about a save that the script missed; a better explanation keeps that part."""
ASK_MORE = (
    "call it in evaluation loops and before long work, too, or raise terminationGracePeriodSeconds"
)


def not_asked_since(view: View) -> str:
    """What to add to the loss of a worker under notice whose script did not reach the agreed call
    of `should_save()`; "": nothing."""
    asked = view.status.save_asked
    votes = ((agent.worker, agent.save) for agent in view.ever_heard if not done(agent))
    late = [name for name, vote in votes if 0 < vote.calls < (vote.committed or vote.prepared or 0)]
    if asked is None or not late:
        return ""
    waited = (view.observation.now - asked.time).total_seconds()
    return (
        f"{NOT_ASKED}in the {waited:.0f} s since the notice (worker {min(late)}), so no checkpoint "
        f"was saved: {ASK_MORE}"
    )


LONGEST = timedelta(minutes=10)
"""The longest grace, unless the template's pods have a longer one: a script that ignores the signal
must not block a suspension."""

FOR_UPLOADS = 4
"""One part in this many of a leaving worker's time is reserved for its uploads, unless
flushTimeout is shorter."""


def stop_grace(view: View) -> timedelta:
    """How long processes that get SIGTERM now may take to end.

    After a notice, the time until the last worker is taken away. Otherwise no worker is taken away,
    and it is the grace that the template gives its pods.
    """
    if view.config.suspend or not noticed(view):
        return view.config.grace
    left = max(time_left(view))
    left -= min(view.config.flush_timeout, left / FOR_UPLOADS)
    return min(max(left, timedelta(0)), _longest(view))


def grace_left(view: View) -> timedelta:
    """How long processes of the attempt that has ended may still take."""
    ending = view.status.ending
    if ending is None or ending.grace_until is None:
        return timedelta(0)
    left = ending.grace_until - view.observation.now
    # A time further ahead was written by a leader whose clock was ahead of ours.
    return left if timedelta(0) < left <= _longest(view) else timedelta(0)


def still_ending(view: View) -> tuple[WorkerFact, ...]:
    """Workers whose processes got SIGTERM and have not ended, while their time lasts."""
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


MAX_FLUSH = 64
"""How many of the newest staged steps are flushed: an ending's list is bounded."""

AWAY = (STORE_AWAY, "StoreUnavailable")
"""Type and reason of an agent's problem when its uploads cannot reach the store."""
LEFT_AWAY = 0.75
"""The part of `flushTimeout` that uploads always have left while the store is unavailable: a leader
that takes over meanwhile is in time, and not every pass writes."""
LEAST_AWAY = timedelta(seconds=10)
"""What they get then at least, however short `flushTimeout` is: twice the time between two
passes."""


@once
def to_flush(view: View) -> tuple[int, ...]:
    """Steps that agents still bring into the store for the attempt that has ended.

    Those that the ending names, and those that later reports of agents show to be complete: a step
    that every rank has reported is not lost because of a late message. With uploadEvery the newest
    that survives replaces older ones.
    """
    ending = view.status.ending
    if ending is None:
        return ()
    named, survivors = ending.flush, flushable(view, gone_slots(view))
    if survivors and view.config.upload_every is not None:
        named = tuple(step for step in named if step > survivors[-1])
    if ending.in_place:
        return (survivors or named)[-1:]  # if the newest is torn, the one before it
    return tuple(sorted({*named, *survivors}))[-MAX_FLUSH:]


@once
def stood_in(view: View) -> Mapping[str, tuple[int, ...]]:
    """By worker, the slots of lost ones whose parts it uploads from its copies.

    As the agents of the ended attempt tell: its roster is forgotten if the next one cannot start.
    """
    flush = frozenset(to_flush(view)) - steps.dropped_steps(view)
    there = [(w, w.agent) for w in view.workers if w.agent is not None and answers_still(view, w)]
    attempt = max((agent.attempt for _, agent in there), default=0)
    holders = [(worker.name, agent) for worker, agent in there if agent.attempt == attempt]
    present = {agent.slot for _, agent in holders}
    found = {
        name: {copy.slot for copy in agent.copies if copy.complete and copy.step in flush} - present
        for name, agent in holders
    }
    return {name: tuple(sorted(slots)) for name, slots in found.items() if slots}


def ends_in_place(view: View) -> bool:
    """Whether the attempt that is ending leaves its newest step on the workers' disks."""
    return view.status.ending is not None and view.status.ending.in_place


def gone_slots(view: View) -> frozenset[int]:
    """Slots of the attempt whose workers can no longer store anything."""
    return frozenset(
        slot for slot, w in enumerate(view.roster) if w is None or not answers_still(view, w)
    )


def flush_until(view: View) -> datetime | None:
    """When uploads are given up; None: no attempt has ended."""
    ending = view.status.ending
    if ending is None:
        return None
    return ending.flush_until or ending.time + view.config.flush_timeout


def flush_allowed(view: View) -> timedelta:
    """How long uploads may take in total."""
    ending, until = view.status.ending, flush_until(view)
    return until - ending.time if ending is not None and until is not None else timedelta(0)


def flush_left(view: View) -> timedelta:
    """How long uploads may still take."""
    until = flush_until(view)
    left = until - view.observation.now if until is not None else timedelta(0)
    return max(left, timedelta(0))


def outlasting(view: View, *, grace: timedelta) -> Ending | None:
    """The ending with more time for uploads, if the store is unavailable; None: no change.

    For at most `grace`, and only before their time is over: after it their files may be fenced.
    """
    ending, now = view.status.ending, view.observation.now
    timeout = max(view.config.flush_timeout, LEAST_AWAY)
    due = timedelta(0) < flush_left(view) <= LEFT_AWAY * timeout
    if ending is None or not due or now - ending.time > grace or not away_from(view):
        return None
    return replace(ending, flush_until=now + timeout)


@once
def away_from(view: View) -> str:
    """The message of a worker that cannot store its steps, since the store is unavailable; else "".

    Not of a worker that is slow, that the store refuses, or for which it has no room.
    """
    newest = max(to_flush(view), default=-1)
    if newest <= committed_step(view):
        return ""
    problems = _problems(still_flushing(view))
    return next((p.message for p in problems if (p.type, p.reason) == AWAY), "")


def _problems(workers: Iterable[WorkerFact]) -> Iterator[Problem]:
    return (problem for worker in workers if worker.agent for problem in worker.agent.problems)


def new_ending(
    view: View, kind: EndingKind, *, lost: frozenset[int], wait: timedelta, grace: timedelta
) -> Ending:
    """The ending of the attempt that is given up now; the next one starts after `wait` at the
    earliest. `lost` and `grace`: see `transitions.open_incident`."""
    now, flush = view.observation.now, flushable(view, lost)[-MAX_FLUSH:]
    # An attempt that waits anyway loses nothing by the upload, which makes the checkpoint safe.
    stays = kind == "Incident" and not lost and not grace and not wait and _all_stay(view)
    in_place = stays and steps.in_place(view, flush)
    return Ending(
        attempt=view.status.attempt,
        kind=kind,
        time=now,
        grace_until=now + grace if grace else None,
        flush=flush[-1:] if in_place else flush,
        in_place=in_place,
        flush_until=_longer_flush(view, grace),
        not_before=now + wait if wait else None,
    )


def _all_stay(view: View) -> bool:
    """Every worker can keep what it has staged for the next attempt. Not twice in a row without an
    upload between: else a run that crashes often would never store anything."""
    if view.config.upload_every is None or steps.on_disks(view) is not None:
        return False
    return all(
        w is not None and answers_still(view, w) and notice_of(w) is None for w in view.roster
    )


def _longer_flush(view: View, grace: timedelta) -> datetime | None:
    """When uploads of an attempt that ends now are given up, where that is later than flushTimeout.

    Its processes may take this `grace` to end first. The last worker under notice uploads until it
    is taken away.
    """
    announced = (
        notice_of(w)
        for w in view.roster
        if w is not None and view.joined(w) is not None and answers_still(view, w)
    )
    seconds = max((n.remaining or 0.0 for n in announced if n is not None), default=0.0)
    left, timeout = timedelta(seconds=seconds), view.config.flush_timeout
    limit = max(left, grace + timeout)
    return view.observation.now + limit if limit > timeout else None


@once
def still_flushing(view: View) -> tuple[WorkerFact, ...]:
    """Workers of ended attempts that may still store something, while their time lasts."""
    until = flush_until(view)
    took_part = (w for w in view.workers if _took_part(view, w))
    if until is None or view.observation.now > until:
        return tuple(w for w in took_part if _has_grace(view, w))
    flush = frozenset(to_flush(view))
    return tuple(w for w in took_part if not _flushed(view, w, flush))


def _has_grace(view: View, worker: WorkerFact) -> bool:
    """Its processes are alive: by its agent's clock, which is not ours, they have time left after
    SIGTERM. Two attempts must never compute at the same time because of that."""
    ending, until = view.status.ending, flush_until(view)
    if ending is None or ending.grace_until is None or until is None or worker.agent is None:
        return False
    running = worker.agent.phase == "Running"
    return running and view.observation.now - until <= view.config.start_timeout


def given_up(view: View, point: CheckpointId | None) -> tuple[int, ...]:
    """Steps that should have been stored but were not, if the next attempt starts from `point`."""
    record, saved = view.record, view.status.checkpoint
    reached = point.step if point is not None else -1
    if record is not None and saved is not None and saved.attempt == record.attempt:
        reached = max(reached, saved.step)  # stored, but found damaged since
    return tuple(step for step in to_flush(view) if step > reached)


def why_given_up(view: View) -> str:
    """Why these steps were not stored, as far as is known."""
    problems = (p.message for p in _problems(view.workers) if p.type == STORE_AWAY)
    if trouble := next(problems, ""):
        return trouble
    if gone := gone_slots(view):
        return f"the worker of slot {min(gone)}, which may have had a part of it, is lost"
    return "its upload did not end in time (checkpoint.flushTimeout)"


def acknowledged(view: View, agent: AgentState) -> bool:
    """It has confirmed the current Hold, not that of an earlier preparation."""
    return (agent.held.attempt, agent.held.number) == (view.next_attempt, view.status.resumptions)


def answers_still(view: View, worker: WorkerFact) -> bool:
    """It may still carry out orders."""
    if worker.phase == "Ended" or worker.loss is not None:
        return False
    return not view.is_silent(worker) and not view.is_cut_off(worker)


def _took_part(view: View, worker: WorkerFact) -> bool:
    if worker.phase == "Pending" or not answers_still(view, worker):
        return False
    if worker.agent is None:
        return worker in view.roster or worker.created_for <= view.status.attempt
    return worker.agent.attempt > 0


def _flushed(view: View, worker: WorkerFact, flush: frozenset[int]) -> bool:
    agent = worker.agent
    return (
        agent is not None
        and agent.phase == "Idle"
        and acknowledged(view, agent)
        and flush <= set(agent.held.flush)
        and agent.held.in_place == ends_in_place(view)
        and agent.held.stand_in == stood_in(view).get(worker.name, ())
        and not _owes_resume_point(view, agent)
    )


def _owes_resume_point(view: View, agent: AgentState) -> bool:
    """No attempt follows soon, and what this one started from is not in the store yet."""
    ending, point = view.status.ending, steps.carried(view)
    if ending is None or point is None or to_flush(view):
        return False
    goes_on = ending.kind == "Incident" and not view.config.suspend
    return point in agent.holds and not goes_on
