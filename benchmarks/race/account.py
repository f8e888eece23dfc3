"""What the time of one side of the race went into, from the trail of its rank 0.

The parts sum to the whole: useful steps, steps done again, saves for which the training stood
still, restarts, and what steps took longer than usual, beside uploads and preloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.peers.compare import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Of one stretch of time; in seconds, but for the steps."""

    seconds: float
    useful: int
    """Steps, each counted once, up to the last one that its training goes on from."""
    again: int
    """Steps that were done again."""
    restart: float
    """Without a step: from the last one before a kill to the first one after it."""
    stall: float
    """In which saving kept the training from its next step."""
    usual: float
    """Of a step: the median of those without a save before them."""

    @property
    def per_minute(self) -> float:
        """Useful steps."""
        return self.useful / self.seconds * 60.0

    @property
    def rework(self) -> float:
        """Steps done again, at their usual length."""
        return self.again * self.usual

    @property
    def slower(self) -> float:
        """What steps took beyond their usual length; may be below 0 by a step or two."""
        known = self.useful * self.usual + self.rework + self.restart + self.stall
        return self.seconds - known

    def __add__(self, other: Account) -> Account:
        """Both stretches as one."""
        whole = self.seconds + other.seconds
        usual = (self.usual * self.seconds + other.usual * other.seconds) / whole
        return Account(
            seconds=whole,
            useful=self.useful + other.useful,
            again=self.again + other.again,
            restart=self.restart + other.restart,
            stall=self.stall + other.stall,
            usual=usual,
        )


def account(all_starts: Sequence[Start], *, seconds: float) -> Account:
    """Of so many seconds since rank 0's first step; `all_starts`: oldest first."""
    starts = [start for start in all_starts if start.rank == 0]
    begun = next(entry for entry in starts[0].steps if "step" in entry)
    until = begun["time"] + seconds
    rows = [_until(start, until) for start in starts if start.began["time"] <= until]
    steps = [[entry for entry in row if "step" in entry] for row in rows]
    last, again, restart = begun, 0, 0.0
    usual = median(_lengths(rows))
    for start, row in zip(starts, steps, strict=False):
        if not row:
            continue  # it was killed, or the time was over, before its first step
        if row[0] is not begun:
            again += last["step"] - start.began["resumed"]
            restart += max(row[0]["time"] - last["time"] - usual, 0.0)
        last = row[-1]
    reached = last["step"]
    if not steps[-1]:  # the time ends within a restart
        again += reached - starts[len(steps) - 1].began["resumed"]
        restart += until - last["time"]
        reached = starts[len(steps) - 1].began["resumed"]
    return Account(
        seconds=seconds,
        useful=reached - begun["step"],
        again=again,
        restart=restart,
        stall=sum(entry.get("stalled", 0.0) for row in rows for entry in row),
        usual=usual,
    )


def _until(start: Start, moment: float) -> list[dict[str, Any]]:
    return [entry for entry in start.steps if entry["time"] <= moment]


def _lengths(rows: Sequence[Sequence[dict[str, Any]]]) -> list[float]:
    """Of all steps that follow another step at once."""
    pairs = (pair for row in rows for pair in pairwise(row))
    return [b["time"] - a["time"] for a, b in pairs if "step" in a and "step" in b]
