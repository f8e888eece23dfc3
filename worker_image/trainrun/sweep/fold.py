"""The fold: a view and the next record of the log give the next view.

Layer: pure. Total: a record that does not fit (a second Tell of an opening, a report of a trial
that is closed, an Ask of a number that was given) changes nothing but the position. Nobody is
harmed by what comes late, twice, or from a version with other rules.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trainrun.sweep.records import Amend, Ask, End, Record, Reports, SweepSession, Tell
from trainrun.sweep.reports import attempted, on_reports
from trainrun.sweep.space import same_params
from trainrun.sweep.view import EndAt, SweepView, TrialView

if TYPE_CHECKING:
    from collections.abc import Iterable


def fold(records: Iterable[Record], view: SweepView | None = None) -> SweepView:
    """All of these, after what `view` has seen (default: nothing)."""
    return reduce(apply, records, view or SweepView())


def apply(view: SweepView, record: Record) -> SweepView:
    """What is known once this record, the next one, was read."""
    view = replace(view, position=view.position + 1)
    match record:
        case SweepSession():
            return _taken_up(view, record)
        case Ask():
            return _asked(view, record)
        case Reports():
            return _reported(view, record)
        case Tell():
            return _told(view, record)
        case End():
            fits = view.end is None and bool(view.sessions)
            return replace(view, end=EndAt(view.position, record)) if fits else view
        case Amend():
            lifted = view.end is not None and view.end.position == record.lifts
            return replace(view, end=None) if lifted else view


def _taken_up(view: SweepView, session: SweepSession) -> SweepView:
    """The flags hold once, for what was there before; an End is looked at anew."""
    if view.holds(session.uid, session.token):
        return view
    trials = {number: _resumed(trial, session) for number, trial in view.trials.items()}
    return replace(view, sessions=(*view.sessions, session), trials=trials, end=None)


def _resumed(trial: TrialView, session: SweepSession) -> TrialView:
    if trial.state == "Open" and not session.resume_unfinished:
        return replace(
            trial,
            state="Skipped",
            reason="ResumeUnfinishedFalse",
            message="it was unfinished, and resume.resumeUnfinished is false",
        )
    if trial.state == "Errored" and session.restart_errored:
        return TrialView(
            number=trial.number,
            params=trial.params,
            opening=trial.opening + 1,
            incarnation=trial.incarnation + 1,
            earlier=(*trial.earlier, trial.points),
            duplicate_of=trial.duplicate_of,
        )
    if trial.state == "Errored" and session.resume_errored:
        fresh: dict[str, Any] = {"value": None, "step": 0, "reason": "", "message": ""}
        fresh |= {"told_after": 0, "told_at": 0}
        return replace(trial, state="Open", opening=trial.opening + 1, restarts=0, **fresh)
    return trial


def _asked(view: SweepView, ask: Ask) -> SweepView:
    if ask.trial != view.asked or not view.sessions:
        return view
    twins = (it.number for it in view.trials.values() if same_params(it.params, ask.params))
    trial = TrialView(
        number=ask.trial,
        params=ask.params,
        opening=ask.first,
        incarnation=ask.first,
        duplicate_of=next(twins, None),
        fallback=ask.fallback,
    )
    study = {**view.study, **ask.study}
    return replace(view, trials={**view.trials, ask.trial: trial}, study=study)


def _reported(view: SweepView, record: Reports) -> SweepView:
    trials, count = dict(view.trials), view.reports
    for number, reports in groupby(record.reports, key=lambda it: it.trial):
        if number in trials:
            trials[number], count = on_reports(trials[number], reports, count=count)
    counted = view.position if record.active > 0 else view.counted_at
    active = view.active + max(0.0, record.active)
    return replace(view, trials=trials, reports=count, active=active, counted_at=counted)


def _told(view: SweepView, tell: Tell) -> SweepView:
    trial = view.trials.get(tell.trial)
    if trial is None or not trial.open or trial.opening != tell.opening or tell.state == "Open":
        return view
    ended = replace(
        attempted(trial, attempt=tell.attempt, resumed=tell.resumed),
        state=tell.state,
        value=float(tell.value) if tell.value else None,
        step=tell.step,
        reason=tell.reason,
        message=tell.message,
        restarts=tell.restarts,
        told_after=view.reports,
        told_at=view.position,
    )
    return replace(view, trials={**view.trials, tell.trial: ended})
