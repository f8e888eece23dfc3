"""The status of a sweep, for people and for `kubectl wait`; bounded for any number of trials.

Layer: core, pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainrun._common.text import cut
from trainrun.sweep.records import written
from trainrun.sweep.search import Objective
from trainrun.sweep.view import SweepView, TrialView, best
from trainrun_operator.api.base import RECONCILING, STALLED
from trainrun_operator.api.run.status import Condition, ConditionStatus
from trainrun_operator.api.sweep.status import (
    MAX_LAST_ENDED,
    MAX_MESSAGE,
    MAX_RUNNING,
    BestTrial,
    EndedTrial,
    TrainSweepStatus,
    TrialCounts,
)
from trainrun_operator.core.sweep.boundary import ClerkUnknown, SweepObservation, SweepPlan
from trainrun_operator.core.sweep.clerking import OF_THE_STORE
from trainrun_operator.core.sweep.config import SweepConfig, objective_of

_MAX_PARAMS = 2048
"""Characters of the best trial's parameters as JSON."""


def sweep_status(
    observation: SweepObservation,
    config: SweepConfig,
    plan: SweepPlan,
    *,
    before: TrainSweepStatus,
    generation: int = 0,
) -> TrainSweepStatus:
    """The new status. While the log is unknown, phase and trials stay as `before`, and `generation`
    is not recorded as observed: otherwise no operator would lead a sweep that was over before."""
    verdict = plan.verdict
    view = observation.log if isinstance(observation.log, SweepView) else SweepView()
    # The status must not lose what it shows of the log while the log cannot be read.
    known = view if view.position >= before.position else None
    objective = config.search.objective
    if view.sessions and view.sessions[0].spec != config.immutable:  # the edit is refused
        objective = objective_of(view.sessions[0].spec)
    base = before if known is None else status_of_log(known, objective, trials=config.trials)
    running = tuple(sorted(run.trial for run in observation.runs if run.live)[:MAX_RUNNING])
    return replace(
        base,
        phase=before.phase if known is None else verdict.phase,
        reason=verdict.reason,
        message=cut(verdict.message, MAX_MESSAGE),
        running=before.running if known is None else running,
        observed_generation=before.observed_generation if known is None else generation,
    )


def notable(status: TrainSweepStatus, before: TrainSweepStatus) -> bool:
    """Whether more has changed than the values that change all the time."""
    return _essence(status) != _essence(before)


def _essence(status: TrainSweepStatus) -> TrainSweepStatus:
    best = status.best and replace(status.best, step=0)
    return replace(status, active_seconds=0, position=0, best=best)


def is_settled(raw: Mapping[str, Any]) -> bool:
    """Whether the TrainSweep is over and its spec unchanged since: no operator needs to lead it."""
    status = raw.get("status") or {}
    over = status.get("phase") in ("Succeeded", "Failed")
    seen: bool = status.get("observedGeneration") == raw["metadata"].get("generation")
    return over and seen


def status_of_log(view: SweepView, objective: Objective, *, trials: int | None) -> TrainSweepStatus:
    """The status from the log alone; `trials` is the budget, None: unknown."""
    ended = [trial for trial in view.trials.values() if not trial.open]
    of_all = "" if trials is None else f"/{max(trials, view.asked)}"
    return replace(
        _phase(view),
        asked=view.asked,
        trials=TrialCounts(
            open=view.count("Open"),
            succeeded=view.count("Succeeded"),
            stopped=view.count("Stopped"),
            diverged=view.count("Diverged"),
            errored=view.count("Errored"),
            skipped=view.count("Skipped"),
            text=f"{len(ended)}{of_all}",
        ),
        best=_best(view, objective),
        last_ended=tuple(_ended(trial) for trial in ended[-MAX_LAST_ENDED:]),
        active_seconds=int(view.active),
        position=view.position,
    )


def _phase(view: SweepView) -> TrainSweepStatus:
    if view.end is None:
        message = "the sweep has not finished; its log does not show whether it is running now"
        return TrainSweepStatus(phase="Running", reason="Unfinished", message=message)
    end = view.end.record
    message = cut(end.message, MAX_MESSAGE)
    return TrainSweepStatus(phase=end.verdict, reason=end.reason, message=message)


def _best(view: SweepView, objective: Objective) -> BestTrial | None:
    found = best(view, objective)
    if found is None:
        return None
    params = dict(found.trial.params)
    return BestTrial(
        trial=found.trial.number,
        value=written(found.own.value),
        step=found.own.step,
        text=f"{found.own.value:.6g}",
        params=params if len(json.dumps(params)) <= _MAX_PARAMS else {},
    )


def _ended(trial: TrialView) -> EndedTrial:
    return EndedTrial(
        trial=trial.number,
        state=trial.state,
        reason=trial.reason,
        message=cut(trial.message, MAX_MESSAGE),
        value="" if trial.value is None else written(trial.value),
        restarts=trial.restarts,
    )


_ConditionFields = tuple[str, ConditionStatus, str, str]
"""Type, status, reason, message."""
TOO_LARGE = "TooLarge"
"""The object is too large to be read; running trials continue."""

_PHASES = (("Complete", "Succeeded"), ("Failed", "Failed"), ("Suspended", "Suspended"))
"""Conditions that hold in one phase."""

_AT_WORK = ("TrialsAtWork", "WaitingForRoom", "AllPaused", "Ending")
"""Reasons of the phase Running in which the spec is fully applied."""


def with_conditions(
    status: TrainSweepStatus,
    *,
    before: TrainSweepStatus,
    clerk: ClerkUnknown | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Complete, Failed, Suspended, ClerkReady, StorageReady, and by kstatus's rules Reconciling or
    Stalled; `clerk` says why the log is unknown.

    A sweep that is over has no ClerkReady, since its clerk is no longer needed.
    """
    known = {condition.type: condition for condition in before.conditions}
    wanted: list[_ConditionFields] = [
        (kind, "True" if status.phase == phase else "False", status.reason, status.message)
        for kind, phase in _PHASES
        if status.phase == phase or kind in known
    ]
    if status.phase not in ("Succeeded", "Failed"):
        wanted.append(_clerk(clerk))
    wanted += _store(clerk, known.get("StorageReady"), over=status.phase in ("Succeeded", "Failed"))
    wanted += _health(status, clerk)
    return tuple(_condition(known.get(fields[0]), fields, status, now) for fields in wanted)


def with_refusal(status: TrainSweepStatus, *, now: datetime) -> tuple[Condition, ...]:
    """The conditions for a spec that cannot be used, with the reason and message of `status`."""
    before = {condition.type: condition for condition in status.conditions}
    before.pop(RECONCILING, None)
    kinds = (TOO_LARGE, STALLED) if status.reason == TOO_LARGE else (STALLED,)
    for kind in kinds:
        fields: _ConditionFields = (kind, "True", status.reason, status.message)
        before[kind] = _condition(before.get(kind), fields, status, now)
    return tuple(before.values())


def _health(status: TrainSweepStatus, clerk: ClerkUnknown | None) -> tuple[_ConditionFields, ...]:
    """As kstatus treats a Job: see `core.run.health`."""
    if status.phase == "Failed":
        return ((STALLED, "True", status.reason, status.message),)
    if status.phase in ("Succeeded", "Suspended") or (clerk is None and status.reason in _AT_WORK):
        return ()
    return ((RECONCILING, "True", status.reason, status.message),)


def _clerk(clerk: ClerkUnknown | None) -> _ConditionFields:
    if clerk is None:
        return "ClerkReady", "True", "Ready", "the log is known"
    return "ClerkReady", "False", clerk.reason, clerk.message


def _store(
    clerk: ClerkUnknown | None, before: Condition | None, *, over: bool
) -> tuple[_ConditionFields, ...]:
    """StorageReady, shown from the first trouble with the store on."""
    if clerk is not None and clerk.reason in OF_THE_STORE and not over:
        return (("StorageReady", "False", clerk.reason, clerk.message),)
    if before is None:
        return ()
    if clerk is None or clerk.reason == "ReadingLog" or before.status == "True":
        return (("StorageReady", "True", "Resolved", "the store answers again"),)
    return (("StorageReady", "Unknown", "NotAsked", "no clerk has asked the store since"),)


def _condition(
    before: Condition | None, fields: _ConditionFields, status: TrainSweepStatus, now: datetime
) -> Condition:
    kind, value, reason, message = fields
    if before is not None and (before.status, before.reason) == (value, reason):
        now = before.last_transition_time
    return Condition(
        type=kind,
        status=value,
        reason=reason or "Unknown",
        message=cut(message, MAX_MESSAGE),
        last_transition_time=now,
        observed_generation=status.observed_generation,
    )
