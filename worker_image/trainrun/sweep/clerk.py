"""Decides the next record of the log, one at a time, from the log and the targets alone.

Layer: pure. The writer of a log calls `next_record` with the view of all its records, writes the
result at the next position if that is free, and continues to read: the loser of a race reads what
the winner wrote and asks again. Invariant: only the newest session writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from trainrun.sweep.records import (
    Amend,
    Ask,
    EndedRun,
    Record,
    Reports,
    SweepSession,
    Targets,
    Tell,
    TrialReport,
    TrialState,
    written,
)
from trainrun.sweep.samplers import Suggestion, by_chance
from trainrun.sweep.search import Objective, Search
from trainrun.sweep.stopping import Judging
from trainrun.sweep.view import (
    OwnValue,
    SweepView,
    TrialView,
    attempted,
    on_reports,
    own_of,
    own_value,
)

Suggest = Callable[[SweepView, Search], Suggestion]
"""Chooses the parameters of the next trial."""
NANS = 2
"""Steps without a number after which a trial has diverged: one may be an accident of one batch."""
MAX_REPORTS = 1000
"""Reports in one record."""
TRIES = 3
"""Calls of a failing sampler before parameters are drawn at random."""
LONGEST = 500
"""Characters of a sampler's error."""
COUNT_ACTIVE = 10.0
"""Seconds of work after which they are recorded, if there is nothing else to write."""


def next_record(
    view: SweepView,
    targets: Targets,
    search: Search,
    *,
    active: float = 0.0,
    stored: tuple[TrialReport, ...] = (),
    suggest: Suggest = by_chance,
    judging: Judging | None = None,
) -> Record | None:
    """The record that the targets need at `view.position + 1`; None: the log is complete.

    `active`: seconds of work since `view.counted_at`; `stored`: reports in the folders of the
    trials. `suggest` chooses parameters; it may raise any exception. `judging` remembers earlier
    judgements, if any.
    """
    if not view.led_by(targets.session.uid, targets.session.token):
        return _session(view, targets)
    return (
        _reports(view, stored, active)
        or _end_early(view, search, judging or Judging())
        or _tell(view, targets, search)
        or _stop(view, targets, search)
        or _ending(view, targets, active)
        or _ask(view, targets, search, suggest)
        or (Reports(active=active) if active >= COUNT_ACTIVE else None)
    )


def _session(view: SweepView, targets: Targets) -> SweepSession | None:
    """None if a newer session has superseded ours: only that one writes."""
    wanted = targets.session
    late = view.holds(wanted.uid, wanted.token) or len(view.sessions) != targets.after
    return None if late else wanted


def _reports(view: SweepView, reports: tuple[TrialReport, ...], active: float) -> Reports | None:
    trials, fresh = dict(view.trials), list[TrialReport]()
    for report in reports:
        trial = trials.get(report.trial)
        if trial is None:
            continue
        trials[report.trial], counted = on_reports(trial, (report,))
        if counted:
            fresh.append(report)
        if len(fresh) == MAX_REPORTS:
            break
    return Reports(tuple(fresh), active) if fresh else None


def _end_early(view: SweepView, search: Search, judging: Judging) -> Tell | None:
    rule, objective = search.early_stopping, search.objective
    for trial in view.trials.values():
        if not trial.open:
            continue
        if _diverged(trial, objective):
            metric = objective.metric
            message = f"its {metric} was not a number at two steps; objective.stopOnNaN ends it"
            return _stopped(
                trial, objective, state="Diverged", reason="NotANumber", message=message
            )
        if rule and (message := judging.why_ended_early(view.trials, trial, rule, objective)):
            return _stopped(
                trial, objective, state="Stopped", reason="StoppedEarly", message=message
            )
    return None


def _tell(view: SweepView, targets: Targets, search: Search) -> Tell | None:
    for run in targets.ended:
        trial = view.trials.get(run.trial)
        if trial is None or not trial.open or trial.opening != run.opening:
            continue
        if trial.heard.get(run.attempt, 0) >= run.seq:
            return _ended(trial, run, search.objective)
    return None


def _stop(view: SweepView, targets: Targets, search: Search) -> Tell | None:
    for number in targets.stopped:
        trial = view.trials.get(number)
        if trial is not None and trial.open:
            return _stopped(
                trial,
                search.objective,
                state="Stopped",
                reason="StoppedByUser",
                message="spec.stoppedTrials names it",
            )
    return None


def _ending(view: SweepView, targets: Targets, active: float) -> Record | None:
    if view.end is not None:
        return Amend(targets.amend) if targets.amend == view.end.position else None
    if targets.end is not None and active > 0:
        return Reports(active=active)  # record a sweep's cost before its end
    return targets.end


def _ask(view: SweepView, targets: Targets, search: Search, suggest: Suggest) -> Ask | None:
    if view.end is not None or view.asked >= targets.asked:
        return None
    found = _suggested(view, search, suggest)
    params = {**found.params, **dict(search.fixed)}
    return Ask(view.asked, params, study=dict(found.study), fallback=found.fallback)


def _suggested(view: SweepView, search: Search, suggest: Suggest) -> Suggestion:
    """The parameters; if the sampler fails, this trial's are random, and the sweep continues."""
    if view.asked < len(search.first):
        return by_chance(view, search)
    problem = ""
    for _ in range(TRIES):
        try:
            return suggest(view, search)
        # Any exception of a sampler's library: a singular matrix, a bug of one version.
        except Exception as error:  # noqa: BLE001
            problem = f"{type(error).__name__}: {error}"
    return replace(by_chance(view, search), fallback=f"the sampler has failed: {problem}"[:LONGEST])


def _diverged(trial: TrialView, objective: Objective) -> bool:
    """Whether the trial must end because its objective is no longer a number."""
    return objective.stop_on_nan and sum(map(math.isnan, trial.values.values())) >= NANS


def _ended(trial: TrialView, run: EndedRun, objective: Objective) -> Tell:
    """The record of an opening whose run has ended."""
    left = attempted(trial, attempt=run.attempt, resumed=run.resumed)
    own = own_value(left, objective)
    state: TrialState
    if not run.succeeded:
        state, reason, message = "Errored", run.reason, run.message
    elif own is None:
        state, reason = "Errored", "NoObjective"
        message = f"the trial ended with success but {_missed(run, objective.metric)}"
    elif math.isnan(own.value):
        state, reason = "Diverged", "NotANumber"
        message = f"its {objective.metric} is not a number (step {own.step})"
    else:
        state, reason, message = "Succeeded", "Ended", ""
    tell = _closing(trial, state=state, reason=reason, message=message, own=own)
    return replace(tell, restarts=run.restarts, attempt=run.attempt, resumed=run.resumed)


def _stopped(
    trial: TrialView, objective: Objective, *, state: TrialState, reason: str, message: str
) -> Tell:
    """The record of a trial that is ended early: it keeps its last number."""
    numbers = {at: value for at, value in trial.results.items() if not math.isnan(value)}
    own = own_of(numbers, objective) if numbers else None
    return _closing(trial, state=state, reason=reason, message=message, own=own)


def _missed(run: EndedRun, metric: str) -> str:
    if metric in run.metrics:
        call = f'trainrun.report({{"{metric}": float(...)}}, step=...)'
        return f"reported {metric} only as text or true/false, not as a number: call {call}"
    instead = f", only {', '.join(run.metrics)}" if run.metrics else ""
    call = f'trainrun.report({{"{metric}": ...}}, step=...)'
    return f"never reported {metric}{instead}: call {call}"


def _closing(
    trial: TrialView, *, state: TrialState, reason: str, message: str, own: OwnValue | None
) -> Tell:
    return Tell(
        trial=trial.number,
        opening=trial.opening,
        state=state,
        reason=reason,
        message=message,
        value="" if own is None else written(own.value),
        step=0 if own is None else own.step,
    )
