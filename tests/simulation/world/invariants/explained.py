"""Every incident has the cause of what really happened, and is charged to the budget of that cause.

Layer: simulation. The budgets are spelled out here once more, so that a row of the core's table
that is wrong is noticed.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from trainrun_operator.api.run.status_parts import Cause

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.invariants.case import Case, Strike
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.api.run.status_parts import BudgetName, Incident
    from trainrun_operator.core.run.causes import Limits

NODE_EVIDENCE = 30.0
"""Seconds, besides the heartbeat timeout, after which nothing new explains an old incident."""

TAKEN_AWAY = (Cause.PREEMPTED, Cause.EVICTED, Cause.NODE_LOST)
"""Charged to maxPreemptions, where the spec has it."""

TRIED_AGAIN = (Cause.RENDEZVOUS_FAILED, Cause.CHECKPOINT_DAMAGED, Cause.MISREAD)
"""Free for the first few times in a row."""

FREE_TRIES = 3

OWN_BUDGETS: dict[BudgetName, tuple[Cause, ...]] = {
    "preemptions": TAKEN_AWAY,
    "startFailures": (Cause.START_FAILED,),
}
"""What is charged to a budget of its own, where the spec has it."""

UNCOUNTED, UNCOUNTED_TRIES = "RestartUncounted", 5
"""What a rule may say, and how often in a row it is free."""

LOOKS_LIKE_SILENCE = (Cause.SILENT, Cause.START_FAILED, Cause.UNKNOWN)
"""What a loss is taken for whose news got lost."""


class Explained:
    """Judges each incident once it is settled, by what has struck the workers of its attempt."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._judged: set[int] = set()
        self._losses: set[int] = set()
        """Attempts in which something really was lost while they ran."""

    def struck(self, agent: SimAgent) -> None:
        """It counts if the worker's attempt is running."""
        status = self._case.world.status
        running = status.start_record is not None and status.ending is None
        if running and agent.attempt == status.attempt and not status.finished:
            self._losses.add(agent.attempt)

    def status(self, new: TrainRunStatus) -> None:
        """A status was written."""
        for incident in new.incidents[-2:]:
            if incident.attempt not in self._judged:
                self._judged.add(incident.attempt)
                failed = new.condition("Failed")
                overdue = failed is not None and failed.reason == "DeadlineExceeded"
                self._cause(incident, cut_short=overdue, goes_on=not new.finished)
                self._budget(incident)

    def _cause(self, incident: Incident, *, cut_short: bool, goes_on: bool) -> None:
        """`cut_short`: the verdict settled it, with what was known of its causes by then."""
        case, attempt = self._case, incident.attempt
        begun = case.opened_at.get(attempt, case.now)
        timeout = case.world.config.heartbeat_timeout.total_seconds()
        strikes = [s for s in case.strikes_on(attempt) if s.at <= begun + timeout + NODE_EVIDENCE]
        if any(_explains(strike, incident) for strike in strikes) or self._other_cause(incident):
            return
        if strikes and cut_short:
            return
        if incident.collateral and goes_on and any(s.until > case.now for s in strikes):
            return  # an edit, say, replaced the lost worker before it was known to be lost
        truth = ", ".join(f"{'/'.join(sorted(s.causes))} of slot {s.slot}" for s in strikes)
        case.wrong(
            f"attempt {attempt} is said to have ended by {incident.cause} of slot {incident.slot}; "
            f"what happened was {truth or 'nothing'}"
        )

    def _other_cause(self, incident: Incident) -> bool:
        """What happened to no worker of its own, or to one that nobody heard."""
        case, attempt = self._case, incident.attempt
        record = case.records.get(attempt)
        if record is None:  # it could not be started
            before = case.ended_at.get(attempt - 1, 0.0)
            return incident.cause == Cause.START_FAILED and any(
                Cause.START_FAILED in s.causes and s.until >= before for s in case.strikes
            )
        if incident.cause == Cause.CHECKPOINT_DAMAGED:
            found = case.world.store.checkpoints.get(record.resume_point)  # type: ignore[arg-type]
            return found is not None and found.damaged
        if incident.cause == Cause.ENDED_EARLY:
            gang = [agent.training for agent in case.world.gang(attempt)]
            return all(t is not None and t.ended_well and t.step == t.begin for t in gang)
        if incident.cause == Cause.PREEMPTED:
            # One takes the other's new workers for gone, or deletes them late. Nothing is counted
            # twice for that; that it does not happen at all is what the Lease is for.
            return case.leaders_overlap
        if incident.cause == Cause.TERMINATED:
            # Its agent told of a notice; only the worker's object, which nobody saw, says whose.
            told = [s.slot for s in case.strikes_on(attempt) if Cause.PREEMPTED in s.causes]
            return incident.slot in told and case.blind_until >= case.opened_at[attempt]
        unheard = case.heartbeats_lost or case.blind_until >= case.started_at[attempt]
        return incident.cause in LOOKS_LIKE_SILENCE and unheard

    def _budget(self, incident: Incident) -> None:
        case = self._case
        since = case.opened_at.get(incident.attempt, case.now) - NODE_EVIDENCE
        allowed = {self._budget_of(incident, limits) for limits in case.limits_since(since)}
        if incident.budget not in allowed:
            case.wrong(
                f"{incident.cause} of attempt {incident.attempt} is charged to {incident.budget}, "
                f"not to {'/'.join(sorted(allowed))}"
            )

    def _budget_of(self, incident: Incident, limits: Limits) -> str:
        if incident.cause == Cause.INTERRUPTED:
            return "none"
        if incident.action == UNCOUNTED or incident.cause in TRIED_AGAIN:
            before = [i for a, i in sorted(self._case.settled.items()) if a < incident.attempt]
            row = takewhile(_is_free_at_first, reversed(before))
            tries = UNCOUNTED_TRIES if incident.action == UNCOUNTED else FREE_TRIES
            if len([i for i in row if _free_name(i) == _free_name(incident)]) < tries:
                return "none"
            return incident.budget  # it depends on the progress that was made in between
        own = (n for n, causes in OWN_BUDGETS.items() if incident.cause in causes and n in limits)
        return next(own, "failures")

    def set_back(self, status: TrainRunStatus) -> None:
        """The status has been set back: losses that it had told are forgotten.

        What has ended the attempt of the old status is not to be known any more.
        """
        self._losses.clear()
        self._judged = {status.attempt}

    def closing(self) -> None:
        """Nothing that was lost is forgotten."""
        case = self._case
        for attempt in sorted(self._losses):
            last = attempt == case.world.status.attempt
            seen = attempt in case.settled or attempt in case.ended_uncounted
            if not seen and not last:
                case.wrong(f"the loss in attempt {attempt} was forgotten")


def _is_free_at_first(incident: Incident) -> bool:
    return incident.action == UNCOUNTED or incident.cause in TRIED_AGAIN


def _free_name(incident: Incident) -> str:
    return UNCOUNTED if incident.action == UNCOUNTED else incident.cause


def _explains(strike: Strike, incident: Incident) -> bool:
    # Of a gang that stands still nobody may know which worker keeps the others waiting.
    unknown = incident.slot is None and incident.cause == Cause.HUNG
    return incident.cause in strike.causes and (unknown or incident.slot == strike.slot)
