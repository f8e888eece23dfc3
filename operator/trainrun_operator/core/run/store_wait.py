"""How long the store has been asked in vain, and which workers it refuses.

Layer: core; below `display`. Only time counts in which somebody asked it: not without room, not
while the run is suspended, not without workers. A worker that the store refuses is made anew now
and then, since a pod has the keys that its Secret held when it was made.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.api.run.asked import StoreWait

if TYPE_CHECKING:
    from trainrun.contract.agent_state import Resolution
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.view import View

AWAY, REFUSES = "StorageUnavailable", "StorageMisconfigured"
OUTSIDE = {AWAY, REFUSES}
"""Reasons of the condition StorageReady that somebody ends who repairs what is around the run."""

RENEWED_AFTER = (30, 60, 120, 300)
"""Seconds until workers that the store refuses are made anew; the last again and again."""


def told(view: View, worker: WorkerFact) -> Resolution | None:
    """What the store has told this worker last about the next attempt."""
    found = worker.agent.resolution if worker.agent is not None else None
    return found if found is not None and found.attempt == view.next_attempt else None


def is_refused(view: View, worker: WorkerFact) -> bool:
    """The store does not take the credentials or settings that this worker has."""
    found = told(view, worker)
    return found is not None and found.outcome == "Misconfigured"


def is_made_anew(view: View, worker: WorkerFact) -> bool:
    """It is refused still, and another one is to take its place."""
    known = view.status.store_wait
    return known is not None and worker.created_for <= known.renewed_to and is_refused(view, worker)


def remedy(view: View) -> str:
    """Where its user corrects what a worker is refused for."""
    secret = view.config.storage.credentials
    where = f"storage.credentialsSecretRef (Secret {secret})" if secret else "workers.template"
    return f"Correct the credentials of spec.{where}, or what the store names"


def is_due(view: View, wait: StoreWait) -> bool:
    """Those that are refused are to be made anew now."""
    begun = wait.renewed or wait.since or view.observation.now
    after = RENEWED_AFTER[min(wait.renewals, len(RENEWED_AFTER) - 1)]
    # What lies ahead was written by a leader whose clock was ahead of ours.
    return not timedelta(0) <= view.observation.now - begun < timedelta(seconds=after)


def has_worked(view: View) -> bool:
    """The store has taken a claim of this run before."""
    return view.status.storage_generation > 0


def lasted(view: View, wait: StoreWait) -> timedelta:
    """For how long it was asked in vain, as far as this leader and the status know."""
    now = view.observation.now
    asked = min(now - (wait.since or now), view.observation.listening_for)
    return timedelta(seconds=wait.waited) + max(asked, timedelta(0))


def asked_in_vain(view: View, reason: str) -> StoreWait:
    """The wait for it, which goes on or begins."""
    known = view.status.store_wait
    one = OUTSIDE if has_worked(view) else {reason}
    if known is None or (known.reason != reason and not {known.reason, reason} <= one):
        known = StoreWait(reason=reason)
    return replace(
        known, reason=reason, since=known.since or view.observation.now, spec=view.config.reaches
    )


def paused(view: View, wait: StoreWait | None) -> StoreWait | None:
    """Nobody asks it now."""
    if wait is None or wait.since is None:
        return wait
    return replace(wait, since=None, waited=round(lasted(view, wait).total_seconds(), 3))


def asked_again(view: View, *, answered: bool) -> StoreWait | None:
    """It is asked, and has not said yet that it refuses or is away; `answered`: one worker has had
    an answer."""
    known = view.status.store_wait
    if known is None or (answered and known.reason != REFUSES):
        return None
    return replace(known, since=known.since or view.observation.now)
