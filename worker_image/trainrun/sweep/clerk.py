"""What is written into the log next: one record at a time, from the log and the targets alone.

Layer: pure. Whoever keeps a log calls `next_record` with the view of everything that stands in it,
puts the answer at the next position if nothing stands there, and reads on: the loser of a race
reads what the winner wrote and asks again. Invariant: only the newest session writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.sweep import results
from trainrun.sweep.records import Amend, Ask, Record, Reports, SweepSession, Tell, TrialReport
from trainrun.sweep.reports import diverged, on_reports
from trainrun.sweep.samplers import Suggestion, by_chance
from trainrun.sweep.stopping import Judging

if TYPE_CHECKING:
    from trainrun.sweep.search import Search
    from trainrun.sweep.targets import Targets
    from trainrun.sweep.view import SweepView

Suggest = Callable[["SweepView", "Search"], Suggestion]
"""Chooses the parameters of the next trial."""
MAX_REPORTS = 1000
"""In one record."""
TRIES = 3
"""Of a sampler that fails, before parameters are drawn by chance."""
LONGEST = 500
"""Characters of why."""
COUNT_ACTIVE = 10.0
"""Seconds of work after which they are counted, where nothing else is to be written."""


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
    """The record that the targets want at `view.position + 1`; None: the log says it all.

    `active` is the time in seconds that was worked since `view.counted_at`; `stored` are reports
    that the folders of the trials hold. `suggest` chooses
    parameters; it may raise what it likes. `judging` knows what was judged before, if anything.
    """
    if not view.led_by(targets.session.uid, targets.session.token):
        return _session(view, targets)
    return (
        _reports(view, stored, active)
        or _not_a_number(view, search)
        or _too_bad(view, search, judging or Judging())
        or _tell(view, targets, search)
        or _stop(view, targets, search)
        or _ending(view, targets, active)
        or _ask(view, targets, search, suggest)
        or (Reports(active=active) if active >= COUNT_ACTIVE else None)
    )


def _session(view: SweepView, targets: Targets) -> SweepSession | None:
    """Nothing where ours was superseded: a newer one leads, and we have nothing to say."""
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


def _not_a_number(view: SweepView, search: Search) -> Tell | None:
    for trial in view.trials.values():
        if trial.open and diverged(trial, search.objective):
            metric = search.objective.metric
            message = f"its {metric} was not a number at two steps; objective.stopOnNaN ends it"
            return results.stopped(
                trial, search.objective, state="Diverged", reason="NotANumber", message=message
            )
    return None


def _too_bad(view: SweepView, search: Search, judging: Judging) -> Tell | None:
    rule = search.early_stopping
    if rule is None:
        return None
    for trial in view.trials.values():
        if not trial.open:
            continue
        message = judging.why_ended_early(view.trials, trial, rule, search.objective)
        if message:
            return results.stopped(
                trial, search.objective, state="Stopped", reason="StoppedEarly", message=message
            )
    return None


def _tell(view: SweepView, targets: Targets, search: Search) -> Tell | None:
    for run in targets.ended:
        trial = view.trials.get(run.trial)
        if trial is None or not trial.open or trial.opening != run.opening:
            continue
        if trial.heard.get(run.attempt, 0) >= run.seq:
            return results.ended(trial, run, search.objective)
    return None


def _stop(view: SweepView, targets: Targets, search: Search) -> Tell | None:
    for number in targets.stopped:
        trial = view.trials.get(number)
        if trial is not None and trial.open:
            return results.stopped(
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
        return Reports(active=active)  # what a sweep has cost is known when it is over
    return targets.end


def _ask(view: SweepView, targets: Targets, search: Search, suggest: Suggest) -> Ask | None:
    if view.end is not None or view.asked >= targets.asked:
        return None
    found = _suggested(view, search, suggest)
    params = {**found.params, **dict(search.fixed)}
    return Ask(view.asked, params, study=dict(found.study), fallback=found.fallback)


def _suggested(view: SweepView, search: Search, suggest: Suggest) -> Suggestion:
    """A sampler that fails costs one trial its choice, not the sweep its life."""
    said = ""
    for _ in range(TRIES):
        try:
            return suggest(view, search)
        # Whatever a sampler's library raises: a singular matrix, a bug of one of its versions.
        except Exception as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"
    return replace(by_chance(view, search), fallback=f"the sampler has failed: {said}"[:LONGEST])
