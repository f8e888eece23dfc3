"""How long the processes of an attempt have owed a step, and the long sections that they are in.

Layer: agent, pure bookkeeping on the monotonic clock. Invariants: nothing is owed while a process
waits for its agent (a checkpoint to read, room in a full backlog, the outcome of a vote) or is in a
long section; what ends such a time begins the count anew, and so does every report. A transfer
that never ends excuses nobody for ever. An agent that stood still itself knows nothing: what was
said meanwhile it has not read yet. The slowest step is one that was owed and came: not the first of
an attempt, which imports and compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.contract.agent_state import LongSection
from trainrun.contract.messages import SectionBegun

LATE = 5.0
"""Seconds without a tick after which the agent, or its machine, has stood still."""

LONGEST_WAIT = 4 * 3600.0
"""Seconds for which waiting for the agent excuses from a step: a checkpoint of 1 TB is read or
stored in half of that at 140 MB/s. What takes longer hangs, in a store or a file system."""


@dataclass(slots=True, kw_only=True)
class StepClock:
    """Of one attempt."""

    excused: Callable[[], bool] = bool
    """Whether some process waits for something that is none of its doing."""
    away: Callable[[], bool] = bool
    """Whether the store is known to be away, which is told and waited for without end."""
    slowest: float = 0.0
    """Seconds for which a step was owed at most before it came; 0: nobody knows."""
    _reported: bool = False
    _since: float = 0.0
    _ticked: float = 0.0
    _free: float = 0.0
    """When last nobody waited for the agent, or it was known for what."""
    _waiting: int = 0
    _sections: dict[tuple[int, int], tuple[SectionBegun, float]] = field(default_factory=dict)
    """By rank and number, with when each began."""

    def start(self, now: float) -> None:
        """The processes are started."""
        self._since = self._ticked = self._free = now

    def tick(self, now: float) -> None:
        """Called about once a second."""
        gap = now - self._ticked
        if not self._waits() or self.away():
            self._free = now
        if gap > LATE:
            self._since = now
            # The processes have most likely stood still as well: it is no time of theirs.
            for key, (section, since) in self._sections.items():
                self._sections[key] = section, since + gap
        self._ticked = now

    def stepped(self, now: float) -> None:
        """A process has reported."""
        owed = self.owes(now)
        if self._reported and owed is not None:
            self.slowest = max(self.slowest, owed)
        self._reported = True
        self.moved(now)

    def moved(self, now: float) -> None:
        """A process has reported, or shown otherwise that it works."""
        self._since = now

    def waits(self) -> None:
        """A process begins to wait for its agent."""
        self._waiting += 1

    def goes_on(self, now: float) -> None:
        """It has waited, or has gone."""
        self._waiting -= 1
        self._since = now

    def begun(self, rank: int, section: SectionBegun, now: float) -> None:
        """A rank is in a long section."""
        self._sections[rank, section.number] = (section, now)

    def ended(self, rank: int, number: int, now: float) -> None:
        """It has left it."""
        if self._sections.pop((rank, number), None) is not None:
            self._since = now

    def left(self, rank: int, now: float) -> None:
        """Its process has ended, wherever it was."""
        for key in [key for key in self._sections if key[0] == rank]:
            self.ended(*key, now)

    def owes(self, now: float) -> float | None:
        """Seconds for which a step has been owed; None: none is, or nobody knows."""
        if self._sections or now - self._ticked > LATE:
            return None
        if not self._waits():
            return max(now - self._since, 0.0)
        late = now - max(self._since, self._free) - LONGEST_WAIT
        return late if late > 0 else None

    def _waits(self) -> bool:
        return self._waiting > 0 or self.excused()

    def section(self, now: float) -> LongSection | None:
        """The open section whose time is over first, or has been over longest."""
        until = min(now, self._ticked + LATE)
        found = [
            LongSection(
                rank=rank, name=begun.name, timeout=begun.seconds, lasts=max(until - since, 0.0)
            )
            for (rank, _), (begun, since) in sorted(self._sections.items())
        ]
        return min(found, key=lambda it: it.timeout - it.lasts, default=None)
