"""How long the steps of each rank take, and for which part of them it is busy.

Layer: agent, bookkeeping on the monotonic clock. Where ranks wait for each other in each step, all
steps take equally long: then the time for which a rank computes, or waits for a CPU, tells who
works and who waits for others, if waiting takes no CPU. Medians over laps, a lap being some seconds
in which a step has ended: an evaluation, a checkpoint or a hang makes one lap strange, and does not
count. Invariant: no lap has a time in which the gang is excused from making steps.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainrun.contract.agent_state import Pace

LAPS = 18
"""That are kept of a rank: three minutes, where a step takes ten seconds or less."""
FEWEST = 6
"""Laps without which nothing is told."""


@dataclass(slots=True)
class _RankPace:
    """One rank, since its last lap."""

    step: int
    at: float
    """When it reported this step."""
    begun: int
    """The step at the beginning of the lap."""
    begun_at: float
    spent: float | None = None
    """Seconds for which it had been busy when the lap began; None: not known."""
    spent_at: float = 0.0
    """When that was read."""
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=LAPS))
    """Seconds of a step, of each lap."""
    busy: deque[float] = field(default_factory=lambda: deque(maxlen=LAPS))


@dataclass(slots=True)
class Pacing:
    """Of one attempt."""

    _ranks: dict[int, _RankPace] = field(default_factory=dict)

    def stepped(self, rank: int, step: int, now: float) -> None:
        """A rank has reported a step."""
        known = self._ranks.get(rank)
        if known is None:
            self._ranks[rank] = _RankPace(step=step, at=now, begun=step, begun_at=now)
        elif step > known.step:
            known.step, known.at = step, now

    def look(self, busy: Mapping[int, float], now: float, *, excused: bool) -> None:
        """`busy`: by rank the seconds for which its processes have computed or waited for a CPU."""
        for rank, known in self._ranks.items():
            used = busy.get(rank)
            if known.step == known.begun and not excused:
                continue  # its lap goes on
            if known.spent is not None and used is not None and not excused:
                known.steps.append((known.at - known.begun_at) / (known.step - known.begun))
                known.busy.append(max(used - known.spent, 0.0) / (now - known.spent_at))
            known.begun, known.begun_at = known.step, known.at
            known.spent, known.spent_at = None if excused else used, now

    def paces(self, ranks: tuple[int, ...]) -> tuple[Pace | None, ...]:
        """Of these ranks; None where too little is known. Empty: nothing is known of any."""
        found = tuple(map(self._pace, ranks))
        return found if any(found) else ()

    def _pace(self, rank: int) -> Pace | None:
        known = self._ranks.get(rank)
        if known is None or len(known.steps) < FEWEST:
            return None
        step, busy = statistics.median(known.steps), statistics.median(known.busy)
        return Pace(step=round(step, 4), busy=round(busy, 3))
