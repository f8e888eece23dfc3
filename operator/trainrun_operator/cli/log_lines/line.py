"""What `trainrun logs` shows: lines, and what is missing of them; and of which it was asked for.

Layer: cli; pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a training process."""

    attempt: int | None
    """None: not known, since the beginning of its worker's output is gone."""
    rank: int
    text: str
    worker: str = ""
    time: datetime | None = None
    """When it came, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Lines that are not there, and why."""

    attempt: int | None
    text: str
    worker: str = ""


Shown = Line | Gap
Show = Callable[[Shown], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines."""

    ranks: frozenset[int] = frozenset()
    """Empty: those of all."""
    attempt: int | None = None
    """None: of all attempts."""
    tail: int | None = None
    """At most so many of each rank in each attempt, the last ones; None: all that there are."""

    def has(self, attempt: int | None, ranks: Iterable[int]) -> bool:
        """Whether lines of one of these ranks in this attempt are wanted."""
        if self.attempt is not None and attempt != self.attempt:
            return False
        return not self.ranks or not self.ranks.isdisjoint(ranks)

    def last(self, lines: Iterable[Line]) -> list[Line]:
        """The wanted ones of these, which are in the order in which they came."""
        kept = (line for line in lines if self.has(line.attempt, [line.rank]))
        if self.tail is None:
            return list(kept)
        # Only what is shown is kept in memory: a rank may have printed gigabytes.
        ends: dict[tuple[int | None, int], deque[tuple[int, Line]]] = {}
        for number, line in enumerate(kept):
            end = ends.setdefault((line.attempt, line.rank), deque(maxlen=self.tail))
            end.append((number, line))
        found = sorted(chain.from_iterable(ends.values()), key=lambda item: item[0])
        return [line for _, line in found]

    def within(self, most: int) -> Wanted:
        """The same, and no more than so many of each rank."""
        return replace(self, tail=most if self.tail is None else min(self.tail, most))
