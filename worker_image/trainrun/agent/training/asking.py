"""How long the processes of an attempt go without asking `should_save()`.

Layer: agent, pure bookkeeping. A notice waits for the next call: evaluation loops and compilations
make none. What is told is never more than what has passed: a call is seen at the look after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

LATE = 5.0
"""Seconds without a look after which the agent, or its machine, has stood still, and so have the
ranks."""


class Counted(Protocol):
    """The calls of one rank."""

    @property
    def calls(self) -> int:
        """How many it has begun."""


@dataclass(slots=True, kw_only=True)
class Asking:
    """Of one worker in one attempt."""

    files: Mapping[int, Counted]
    """By rank."""
    longest: float = 0.0
    """Seconds between two calls of one rank at most, the time since its last one included; 0 while
    no rank has asked, as before its first call."""
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By rank its calls, and when a look first found so many."""
    _looked: float = 0.0

    def look(self, living: tuple[int, ...], now: float, *, stopped: bool) -> None:
        """`now` is on the monotonic clock; `stopped`: ranks may be waiting in a call."""
        nothing_known = stopped or now - self._looked > LATE
        self._looked = now
        for rank in living:
            calls = self.files[rank].calls
            before = self._seen.get(rank)
            if calls == 0:
                continue
            if before is None or nothing_known or calls != before[0]:
                self._seen[rank] = (calls, now)
            else:
                self.longest = max(self.longest, now - before[1])
