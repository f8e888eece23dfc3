"""What saves cost a training: by how much a step with a checkpoint takes longer than one without.

Layer: agent, pure bookkeeping on the monotonic clock. It counts whatever holds up the loop: the
copy of the state, writing, and the wait for room. What an asynchronous save does beside the loop
shows only where it slows down the steps that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

RECENT = 32
"""Steps without a checkpoint that one with a checkpoint is compared with."""
FEWEST = 3
"""Without so many nothing is said of a save."""


@dataclass(slots=True)
class _Rank:
    step: int
    at: float
    reported: int = 0
    """Checkpoints."""
    plain: list[float] = field(default_factory=list)
    """Seconds of each recent step without a checkpoint."""
    saves: int = 0
    """Those that were compared with these."""
    seconds: float = 0.0
    """By which they have made their steps longer."""


@dataclass(slots=True)
class SaveCost:
    """Of the ranks of one attempt. Their first steps, which compile, do not count."""

    _ranks: dict[int, _Rank] = field(default_factory=dict)

    def stepped(self, rank: int, step: int, now: float, *, saves: bool) -> None:
        """A rank has reported a step; `saves`: with files, or with a save in progress."""
        known = self._ranks.get(rank)
        if known is None:
            self._ranks[rank] = _Rank(step, now, reported=int(saves))
            return
        known.reported += saves
        steps, seconds = step - known.step, now - known.at
        if saves and len(known.plain) >= FEWEST:
            known.saves += 1
            known.seconds += max(seconds - max(steps, 0) * median(known.plain), 0.0)
        elif steps > 0 and not saves:
            known.plain = [*known.plain[1 - RECENT :], seconds / steps]
        known.step, known.at = max(step, known.step), now

    @property
    def reported(self) -> int:
        """Checkpoints of the rank that has reported most."""
        return max((rank.reported for rank in self._ranks.values()), default=0)

    @property
    def seconds(self) -> float:
        """Per save on average, on the rank where that is longest; 0: not known."""
        measured = (rank.seconds / rank.saves for rank in self._ranks.values() if rank.saves)
        return max(measured, default=0.0)
