"""Whether the processes of an attempt do anything: by the CPU and I/O that they use.

Layer: agent, bookkeeping on the monotonic clock. It tells a gang that waits for nothing from one
that computes, loads or writes without a step; it is no sign of progress, since some waits take CPU.
Invariant: of a time in which the agent stood still nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainrun.agent.processes.usage import Usage, usage_of

INTERVAL = 10.0
"""Seconds between two looks."""
LATE = 3 * INTERVAL
"""Seconds without a look after which the agent, or its machine, has stood still."""
LITTLE_CPU = 0.05
"""Part of a core that a process which waits may use: its timers, and what watches it."""
LITTLE_IO = 64 * 1024
"""Bytes a second likewise."""


@dataclass(slots=True, kw_only=True)
class Activity:
    """Of one attempt."""

    usage: Callable[[int], Usage | None] = usage_of
    """Of the process with this pid, and of its descendants."""
    _since: float = 0.0
    _looked: float = 0.0
    _known: bool = False
    """What a look has found."""
    _seen: dict[int, Usage] = field(default_factory=dict)
    """By rank, at the last look."""

    def start(self, now: float) -> None:
        """The processes are started."""
        self._since = self._looked = now

    @property
    def busy(self) -> dict[int, float]:
        """By rank, the seconds for which it had computed, or waited for a CPU, at the last look."""
        return {rank: used.cpu + used.delayed for rank, used in self._seen.items()}

    def look(self, pids: Mapping[int, int], now: float) -> bool:
        """See what they have used, if it is time; `pids`: by rank, of those that live."""
        passed = now - self._looked
        if passed < INTERVAL:
            return False
        found = {rank: self.usage(pid) for rank, pid in pids.items()}
        seen = {rank: used for rank, used in found.items() if used is not None}
        if passed > LATE or self._works(seen, passed):
            self._since = now
        self._known = bool(seen)
        self._seen, self._looked = seen, now
        return True

    def quiet(self, now: float) -> float | None:
        """Seconds for which none of them has done anything; None: nobody knows."""
        if not self._known or now - self._looked > LATE:
            return None
        return max(now - self._since, 0.0)

    def _works(self, seen: Mapping[int, Usage], seconds: float) -> bool:
        nothing = Usage()
        for rank, used in seen.items():
            before = self._seen.get(rank, nothing)
            cpu, io = used.cpu - before.cpu, used.io - before.io
            if cpu > LITTLE_CPU * seconds or io > LITTLE_IO * seconds:
                return True
        return False
