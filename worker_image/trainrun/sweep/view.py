"""The view of a log at one position: every trial with its state, and which trial is the best.

Layer: pure. The fold is total: a record that does not fit (a second Tell of an opening, a report of
a closed trial, an Ask of a number already given) changes only the position. Records that come late,
twice, or from a version with other rules do no harm. Reports may come in any order of the attempts:
those that an agent could not send are found in the store once a later attempt has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import groupby
from typing import Any

from trainrun.sweep.records import (
    Amend,
    Ask,
    End,
    Record,
    Reports,
    SweepSession,
    Tell,
    TrialReport,
    TrialState,
)
from trainrun.sweep.search import Objective, Scalar, same_params


@dataclass(frozen=True)
class ReportedAt:
    """A trial's first report at a step."""

    step: int
    value: float
    order: int
    """Its place among all reports of the sweep."""


@dataclass(frozen=True)
class TrialView:
    """One trial: parameters that never change, and one or more openings."""

    number: int
    params: Mapping[str, Scalar]
    state: TrialState = "Open"
    opening: int = 1
    """Counts how often it was opened; each opening has its own TrainRun and one recorded end."""
    incarnation: int = 1
    """Counts how often it began from scratch; each incarnation has its own folder."""
    heard: Mapping[int, int] = field(default_factory=dict)
    """For each attempt of this incarnation the newest report in the log."""
    resumed: Mapping[int, int] = field(default_factory=dict)
    """For each attempt, the step that it resumed from, if known."""
    curve: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """Reported values, by attempt and step, in the order of the log."""
    order: Mapping[int, int] = field(default_factory=dict)
    """For each step the place of its first report among all reports of the sweep, from 1."""
    earlier: tuple[tuple[ReportedAt, ...], ...] = ()
    """Reports of each earlier incarnation: verdicts on other trials used them, and stay."""
    told_after: int = 0
    """Number of the sweep's reports before its end, once it has ended."""
    ended_at: int = 0
    """Position of the record of its end, once there is one."""
    value: float | None = None
    """Its own value, once it has ended with one."""
    step: int = 0
    """The step at which that value was reported."""
    reason: str = ""
    message: str = ""
    restarts: int = 0
    duplicate_of: int | None = None
    """The first trial with the same parameters."""
    fallback: str = ""
    """Why its parameters were drawn at random in place of the wanted sampler."""

    @property
    def open(self) -> bool:
        """Whether its run should exist."""
        return self.state == "Open"

    @property
    def first(self) -> int:
        """Its first incarnation: greater than 1 if folders of its number were in use by a trial
        that the log does not know."""
        return self.incarnation - len(self.earlier)

    @cached_property
    def values(self) -> dict[int, float]:
        """For each step the first reported value, which verdicts use. A restart repeats steps, but
        changes no verdict."""
        found: dict[int, float] = {}
        for (_, step), value in self.curve.items():
            found.setdefault(step, value)
        return found

    @cached_property
    def points(self) -> tuple[ReportedAt, ...]:
        """The same in the order in which they were reported."""
        values = self.values
        found = [ReportedAt(step, values[step], order) for step, order in self.order.items()]
        return tuple(sorted(found, key=lambda at: at.order))

    @property
    def results(self) -> dict[int, float]:
        """For each step the value from the surviving attempts, which results use. Steps of an
        attempt beyond the one that a later attempt resumed from are not in the trained weights."""
        found: dict[int, float] = {}
        for (attempt, step), value in sorted(self.curve.items()):
            later = (at for other, at in self.resumed.items() if other > attempt)
            if step <= min(later, default=step):
                found[step] = value
        return found


@dataclass(frozen=True)
class EndAt:
    """An End, with its position in the log."""

    position: int
    record: End


@dataclass(frozen=True)
class SweepView:
    """A sweep as its log shows it."""

    position: int = 0
    """Position of the newest record; 0: the log is empty."""
    sessions: tuple[SweepSession, ...] = ()
    trials: Mapping[int, TrialView] = field(default_factory=dict)
    """By number, from 0, in order and without gaps."""
    study: Mapping[str, Any] = field(default_factory=dict)
    """State of the sampler."""
    reports: int = 0
    """Number of reports that counted."""
    active: float = 0.0
    """Seconds with trials at work."""
    counted_at: int = 0
    """Position of the newest record that added to `active`."""
    end: EndAt | None = None

    @property
    def asked(self) -> int:
        """Trials that have parameters."""
        return len(self.trials)

    def count(self, *states: TrialState) -> int:
        """Trials in one of these states."""
        return sum(trial.state in states for trial in self.trials.values())

    def holds(self, uid: str, token: int) -> bool:
        """Whether the log has this session, newest or not."""
        return any((session.uid, session.token) == (uid, token) for session in self.sessions)

    def led_by(self, uid: str, token: int) -> bool:
        """Whether this session is the newest one: the only one that may write."""
        newest = self.sessions[-1:]
        return any((session.uid, session.token) == (uid, token) for session in newest)


def fold(records: Iterable[Record], view: SweepView | None = None) -> SweepView:
    """The view after these records, starting from `view` (default: empty)."""
    return reduce(apply, records, view or SweepView())


def apply(view: SweepView, record: Record) -> SweepView:
    """The view after the next record."""
    view = replace(view, position=view.position + 1)
    match record:
        case SweepSession():
            return _resumed_by(view, record)
        case Ask():
            return _asked(view, record)
        case Reports():
            return _reported(view, record)
        case Tell():
            return _closed(view, record)
        case End():
            fits = view.end is None and bool(view.sessions)
            return replace(view, end=EndAt(view.position, record)) if fits else view
        case Amend():
            lifted = view.end is not None and view.end.position == record.lifts
            return replace(view, end=None) if lifted else view


def _resumed_by(view: SweepView, session: SweepSession) -> SweepView:
    """Apply the session's flags once, to earlier trials; an End is decided again."""
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
            message="the trial was unfinished, and resume.resumeUnfinished is false",
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
        fresh |= {"told_after": 0, "ended_at": 0}
        return replace(trial, state="Open", opening=trial.opening + 1, restarts=0, **fresh)
    return trial


def _asked(view: SweepView, ask: Ask) -> SweepView:
    if ask.trial != view.asked or not view.sessions:
        return view
    twins = (
        trial.number for trial in view.trials.values() if same_params(trial.params, ask.params)
    )
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
    for number, reports in groupby(record.reports, key=lambda report: report.trial):
        if number in trials:
            trials[number], count = on_reports(trials[number], reports, count=count)
    counted = view.position if record.active > 0 else view.counted_at
    active = view.active + max(0.0, record.active)
    return replace(view, trials=trials, reports=count, active=active, counted_at=counted)


def _closed(view: SweepView, tell: Tell) -> SweepView:
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
        ended_at=view.position,
    )
    return replace(view, trials={**view.trials, tell.trial: ended})


def on_reports(
    trial: TrialView, reports: Iterable[TrialReport], *, count: int = 0
) -> tuple[TrialView, int]:
    """The trial after these reports of it, in order; unchanged if all are late or old. And the
    number of the sweep's reports that have counted by then; `count` had counted before.

    Pass all reports at once, since each call copies the trial's whole curve.
    """
    heard, fresh = dict(trial.heard), list[TrialReport]()
    for report in reports:
        late = report.incarnation != trial.incarnation or not trial.open
        if not late and report.seq > heard.get(report.attempt, 0):
            heard[report.attempt] = report.seq
            fresh.append(report)
    if not fresh:  # usual for repeated reports: avoids the long copies
        return trial, count
    resumed, curve, order = dict(trial.resumed), dict(trial.curve), dict(trial.order)
    for place, report in enumerate(fresh, start=count + 1):
        curve.setdefault((report.attempt, report.step), float(report.value))
        order.setdefault(report.step, place)
        if report.attempt != 0:
            resumed.setdefault(report.attempt, report.resumed)
    after = replace(trial, heard=heard, resumed=resumed, curve=curve, order=order)
    return after, count + len(fresh)


def attempted(trial: TrialView, *, attempt: int, resumed: int) -> TrialView:
    """The trial with this attempt resumed from step `resumed`; attempt 0: unchanged."""
    if attempt == 0 or attempt in trial.resumed:
        return trial
    return replace(trial, resumed={**trial.resumed, attempt: resumed})


@dataclass(frozen=True)
class OwnValue:
    """The value that counts for a trial."""

    value: float
    step: int


@dataclass(frozen=True)
class Best:
    """A ranked trial, with the value that counts for it."""

    trial: TrialView
    own: OwnValue


def own_value(trial: TrialView, objective: Objective) -> OwnValue | None:
    """The value that counts for the trial now; None: no report of it survived.

    With `best` a value that is not a number counts only if there is no other.
    """
    results = trial.results
    return own_of(results, objective) if results else None


def own_of(results: Mapping[int, float], objective: Objective) -> OwnValue:
    """The value that counts for a trial with these results, at least one."""
    last = max(results)
    best = objective.best(results.values()) if objective.value == "best" else None
    if best is None:
        return OwnValue(results[last], last)
    return OwnValue(best, min(step for step, value in results.items() if value == best))


def best(view: SweepView, objective: Objective) -> Best | None:
    """The best trial, the lowest number among equals; failed, diverged and skipped ones are left
    out. An open trial counts with its reports so far.
    """
    return next(iter(ranked(view, objective)), None)


def ranked(view: SweepView, objective: Objective) -> list[Best]:
    """The trials that count, the best first."""
    sign = 1 if objective.goal == "minimize" else -1
    found = [
        Best(trial, own)
        for trial in view.trials.values()
        if trial.state in ("Open", "Succeeded", "Stopped")
        and (own := standing(trial, objective)) is not None
    ]
    # Sorting keeps the order of equals.
    return sorted(found, key=lambda ranking: sign * ranking.own.value)


def standing(trial: TrialView, objective: Objective) -> OwnValue | None:
    """The value that counts for a trial, ended or not; None: none, or not a number."""
    own = own_value(trial, objective) if trial.open else None
    if trial.value is not None:
        own = OwnValue(trial.value, trial.step)
    return None if own is None or math.isnan(own.value) else own
