"""Whether the processes of an attempt are active, and how fast each rank is.

Layer: agent, bookkeeping on the monotonic clock. Their CPU and I/O use distinguishes a gang that
does nothing from one that computes, loads or writes without a step; it is no sign of progress,
since some waits use CPU. Invariant: nothing is concluded from a time in which the agent was
suspended.

If ranks wait for each other in each step, all steps take equally long; then a rank's time on or
waiting for a CPU shows whether it works or waits for others, unless waiting uses CPU. Medians over
laps, each some seconds in which a step ended, so that one odd lap (an evaluation, a checkpoint, a
hang) does not count. Invariant: no lap includes time in which the gang is excused from steps.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainrun.agent.processes.procfs import Usage, usage_of
from trainrun.contract.agent_state import Pace

INTERVAL = 10.0
"""Seconds between two measurements."""
LATE = 3 * INTERVAL
"""Seconds without a measurement after which the agent, or its machine, was suspended."""
LITTLE_CPU = 0.05
"""Part of a core that a waiting process may use: for its timers and monitoring."""
LITTLE_IO = 64 * 1024
"""Bytes per second that a waiting process may read and write."""


@dataclass(slots=True, kw_only=True)
class Activity:
    """Whether the processes of one attempt are active."""

    usage: Callable[[int], Usage | None] = usage_of
    """Of the process with this pid and its descendants."""
    _since: float = 0.0
    _looked: float = 0.0
    _measured: bool = False
    """The last measurement found a process."""
    _usage: dict[int, Usage] = field(default_factory=dict)
    """By rank, at the last measurement."""

    def start(self, now: float) -> None:
        """The processes were started."""
        self._since = self._looked = now

    @property
    def busy(self) -> dict[int, float]:
        """By rank, the seconds computed or waited for a CPU, at the last measurement."""
        return {rank: used.cpu + used.delayed for rank, used in self._usage.items()}

    def look(self, pids: Mapping[int, int], now: float) -> bool:
        """Measure their use if it is time, and return whether it was; `pids`: by living rank."""
        passed = now - self._looked
        if passed < INTERVAL:
            return False
        found = {rank: self.usage(pid) for rank, pid in pids.items()}
        usage = {rank: used for rank, used in found.items() if used is not None}
        if passed > LATE or self._works(usage, passed):
            self._since = now
        self._measured = bool(usage)
        self._usage, self._looked = usage, now
        return True

    def quiet(self, now: float) -> float | None:
        """Seconds for which all of them have been inactive; None: unknown."""
        if not self._measured or now - self._looked > LATE:
            return None
        return max(now - self._since, 0.0)

    def _works(self, usage: Mapping[int, Usage], seconds: float) -> bool:
        nothing = Usage()
        for rank, used in usage.items():
            before = self._usage.get(rank, nothing)
            cpu, io = used.cpu - before.cpu, used.io - before.io
            if cpu > LITTLE_CPU * seconds or io > LITTLE_IO * seconds:
                return True
        return False


LAPS = 18
"""Laps kept of a rank: three minutes if a step takes ten seconds or less."""
FEWEST = 6
"""Laps needed before a pace is reported."""


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
    """Busy seconds at the beginning of the lap; None: unknown."""
    spent_at: float = 0.0
    """When that was measured."""
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=LAPS))
    """Seconds per step, of each lap."""
    busy: deque[float] = field(default_factory=lambda: deque(maxlen=LAPS))


@dataclass(slots=True)
class Pacing:
    """How long the steps of each rank take, and when it is busy; of one attempt."""

    _ranks: dict[int, _RankPace] = field(default_factory=dict)

    def stepped(self, rank: int, step: int, now: float) -> None:
        """A rank has reported a step."""
        pace = self._ranks.get(rank)
        if pace is None:
            self._ranks[rank] = _RankPace(step=step, at=now, begun=step, begun_at=now)
        elif step > pace.step:
            pace.step, pace.at = step, now

    def look(self, busy: Mapping[int, float], now: float, *, excused: bool) -> None:
        """Close laps; `busy`: by rank, the seconds computed or waited for a CPU."""
        for rank, pace in self._ranks.items():
            used = busy.get(rank)
            if pace.step == pace.begun and not excused:
                continue  # its lap continues
            if pace.spent is not None and used is not None and not excused:
                pace.steps.append((pace.at - pace.begun_at) / (pace.step - pace.begun))
                pace.busy.append(max(used - pace.spent, 0.0) / (now - pace.spent_at))
            pace.begun, pace.begun_at = pace.step, pace.at
            pace.spent, pace.spent_at = None if excused else used, now

    def paces(self, ranks: tuple[int, ...]) -> tuple[Pace | None, ...]:
        """The paces of these ranks; None: too few laps. Empty: too few laps for all ranks."""
        found = tuple(map(self._pace, ranks))
        return found if any(found) else ()

    def _pace(self, rank: int) -> Pace | None:
        pace = self._ranks.get(rank)
        if pace is None or len(pace.steps) < FEWEST:
            return None
        step, busy = statistics.median(pace.steps), statistics.median(pace.busy)
        return Pace(step=round(step, 4), busy=round(busy, 3))
