"""What the log of a simulated sweep says at each position: the judge's own books.

Layer: simulation. Read by rules of its own, not by the fold, which is among what is judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from trainrun.sweep.records import Amend, Ask, End, Record, Reports, SweepSession, Tell

T = TypeVar("T")


class ByPosition(Generic[T]):
    """Something that changes with positions of the log."""

    def __init__(self, first: T) -> None:
        self._at: list[int] = [0]
        self._values: list[T] = [first]

    def set(self, position: int, value: T) -> None:
        """From this position on."""
        self._at.append(position)
        self._values.append(value)

    def at(self, position: int) -> T:
        """As it was once the record at this position was read."""
        return self._values[bisect_right(self._at, position) - 1]

    @property
    def now(self) -> T:
        """As it is."""
        return self._values[-1]


@dataclass(frozen=True)
class TrialEntry:
    """A trial at a position."""

    state: str = ""
    opening: int = 0
    incarnation: int = 1
    value: str = ""
    """That it was told with."""

    @property
    def open(self) -> bool:
        """Its run should exist."""
        return self.state == "Open"


@dataclass
class SweepLedger:
    """Of one log."""

    log: list[Record] = field(default_factory=list)
    params: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """By trial."""
    trials: dict[int, ByPosition[TrialEntry]] = field(default_factory=dict)
    sessions: ByPosition[tuple[SweepSession, ...]] = field(default_factory=lambda: ByPosition(()))
    ends: ByPosition[End | None] = field(default_factory=lambda: ByPosition(None))
    """The End that stands there and that nothing has lifted."""
    active: ByPosition[float] = field(default_factory=lambda: ByPosition(0.0))
    """Seconds of work that were counted."""
    ever_ended: bool = False

    def entry(self, trial: int, position: int | None = None) -> TrialEntry:
        """A trial as it was at this position, by default as it is; empty: it has no number yet."""
        history = self.trials.get(trial)
        if history is None:
            return TrialEntry()
        return history.now if position is None else history.at(position)

    @property
    def newest(self) -> SweepSession | None:
        """The session that may write."""
        return self.sessions.now[-1] if self.sessions.now else None

    def enter(self, record: Record) -> None:
        """The next record, which fits."""
        self.log.append(record)
        position = len(self.log)
        match record:
            case SweepSession():
                self._take_up(position, record)
            case Ask():
                self.params[record.trial] = dict(record.params)
                self.trials[record.trial] = ByPosition(TrialEntry())
                opened = TrialEntry("Open", record.first, record.first)
                self.trials[record.trial].set(position, opened)
            case Tell():
                before = self.entry(record.trial)
                told = TrialEntry(record.state, before.opening, before.incarnation, record.value)
                self.trials[record.trial].set(position, told)
            case Reports():
                self.active.set(position, self.active.now + record.active)
            case End():
                self.ends.set(position, record)
                self.ever_ended = True
            case Amend():
                self.ends.set(position, None)

    def _take_up(self, position: int, session: SweepSession) -> None:
        self.sessions.set(position, (*self.sessions.now, session))
        self.ends.set(position, None)
        for history in self.trials.values():
            was = history.now
            if was.state == "Open" and not session.resume_unfinished:
                history.set(position, TrialEntry("Skipped", was.opening, was.incarnation))
            elif was.state == "Errored" and (session.resume_errored or session.restart_errored):
                again = was.incarnation + session.restart_errored
                history.set(position, TrialEntry("Open", was.opening + 1, again))
