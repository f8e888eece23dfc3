"""What a log means: every trial and what became of it, as of one position.

Layer: pure. Made by `trainrun.sweep.fold` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainrun.sweep.records import End, SweepSession, TrialState
    from trainrun.sweep.space import Scalar


@dataclass(frozen=True)
class ReportedAt:
    """What a trial has reported first at a step."""

    step: int
    value: float
    order: int
    """Among all reports of the sweep."""


@dataclass(frozen=True)
class TrialView:
    """One trial: parameters that never change, and one or more openings."""

    number: int
    params: Mapping[str, Scalar]
    state: TrialState = "Open"
    opening: int = 1
    """Counts how often it was opened; each opening has a TrainRun of its own and is told once."""
    incarnation: int = 1
    """Counts how often it began from nothing; each incarnation has a folder of its own."""
    heard: Mapping[int, int] = field(default_factory=dict)
    """For each attempt of this incarnation the newest report in the log."""
    resumed: Mapping[int, int] = field(default_factory=dict)
    """For each attempt that is known of the step that it went on from."""
    curve: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """What was reported, by attempt and step, in the order of the log."""
    order: Mapping[int, int] = field(default_factory=dict)
    """For each step the place of its first report among all reports of the sweep, from 1."""
    earlier: tuple[tuple[ReportedAt, ...], ...] = ()
    """What each earlier incarnation had reported: verdicts about others went by it, and stay."""
    told_after: int = 0
    """Reports of the sweep that came before its end, once it has ended."""
    told_at: int = 0
    """Position of the record that told its end, once one has."""
    value: float | None = None
    """Its own, once it has ended and has one."""
    step: int = 0
    """Where that was reported."""
    reason: str = ""
    message: str = ""
    restarts: int = 0
    duplicate_of: int | None = None
    """The first trial with the same parameters."""
    fallback: str = ""
    """Why its parameters were drawn by chance although another sampler was wanted."""

    @property
    def open(self) -> bool:
        """Whether its run should exist."""
        return self.state == "Open"

    @property
    def first(self) -> int:
        """Its first incarnation: greater than 1 where folders of its number were in use already, by
        a trial that the log does not know."""
        return self.incarnation - len(self.earlier)

    @cached_property
    def values(self) -> dict[int, float]:
        """For each step what was reported first: what verdicts go by. A restart repeats steps, and
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
        return tuple(sorted(found, key=lambda it: it.order))

    @property
    def results(self) -> dict[int, float]:
        """For each step what the surviving attempts reported: what results go by. What an attempt
        reported beyond the step that a later one went on from has never been, as far as the
        trained weights are concerned."""
        found: dict[int, float] = {}
        for (attempt, step), value in sorted(self.curve.items()):
            later = (at for it, at in self.resumed.items() if it > attempt)
            if step <= min(later, default=step):
                found[step] = value
        return found


@dataclass(frozen=True)
class EndAt:
    """An End, and where it stands in the log."""

    position: int
    record: End


@dataclass(frozen=True)
class SweepView:
    """A sweep as its log tells it."""

    position: int = 0
    """Of the newest record; 0: the log is empty."""
    sessions: tuple[SweepSession, ...] = ()
    trials: Mapping[int, TrialView] = field(default_factory=dict)
    """By number, from 0, in order and without gaps."""
    study: Mapping[str, Any] = field(default_factory=dict)
    """What the sampler has to know of itself."""
    reports: int = 0
    """That counted."""
    active: float = 0.0
    """Seconds that were worked."""
    counted_at: int = 0
    """Position of the newest record that counted such seconds."""
    end: EndAt | None = None

    @property
    def asked(self) -> int:
        """Trials that have parameters."""
        return len(self.trials)

    def count(self, *states: TrialState) -> int:
        """Trials in one of these states."""
        return sum(trial.state in states for trial in self.trials.values())

    def holds(self, uid: str, token: int) -> bool:
        """Whether this session has been: it need not be the newest one."""
        return any((it.uid, it.token) == (uid, token) for it in self.sessions)

    def led_by(self, uid: str, token: int) -> bool:
        """Whether this session is the newest one: the only one that may write."""
        newest = self.sessions[-1:]
        return any((it.uid, it.token) == (uid, token) for it in newest)
