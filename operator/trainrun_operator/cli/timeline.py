"""What each rank did when, as one line of characters per rank.

Layer: cli. Recorded from the passes; drawn at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainrun_operator.cli.wording import RankState, rank_states
from trainrun_operator.runtime.news import Passed, RunNews

SIGNS: dict[RankState, str] = {
    "absent": " ",
    "waiting": "·",
    "starting": "s",
    "training": "=",
    "leaving": "!",
    "done": "✓",
    "dead": "x",
}

LEGEND = "s starting   = training   ! told to leave   x lost   · waiting   ✓ done"

URGENCY: dict[RankState, int] = {
    "dead": 6,
    "leaving": 5,
    "starting": 4,
    "training": 3,
    "done": 2,
    "waiting": 1,
    "absent": 0,
}
"""When several states fall into one column the most telling one is drawn."""


@dataclass(frozen=True, slots=True)
class _Change:
    at: float
    state: RankState


class Timeline:
    """Records the states of all ranks."""

    def __init__(
        self, *, replicas: int, per_worker: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_worker = per_worker
        self._clock = clock
        self._began = clock()
        self._ranks: list[list[_Change]] = [[] for _ in range(replicas * per_worker)]

    def emit(self, news: RunNews) -> None:
        """Note every change of a rank's state."""
        if not isinstance(news, Passed):
            return
        now = self._clock() - self._began
        newest = {}
        for worker in sorted(news.workers, key=lambda worker: worker.created_for):
            newest[worker.slot] = worker
        for slot, worker in newest.items():
            states = rank_states(worker, status=news.plan.status, per_worker=self._per_worker)
            for local_rank, state in enumerate(states):
                self._note(slot * self._per_worker + local_rank, now, state)

    def _note(self, rank: int, now: float, state: RankState) -> None:
        if rank >= len(self._ranks):
            return
        changes = self._ranks[rank]
        if not changes or changes[-1].state != state:
            changes.append(_Change(now, state))

    def rows(self, *, width: int) -> Iterator[str]:
        """For each rank what it did, in `width` characters for the whole time."""
        end = max(self._clock() - self._began, 0.001)
        for changes in self._ranks:
            yield _row(changes, end, width)

    def draw(self, *, width: int = 64) -> Iterator[str]:
        """One line per rank, a ruler and the legend."""
        for rank, row in enumerate(self.rows(width=width)):
            yield f"rank {rank:<3} |{row}|"
        last = f"{self._clock() - self._began:.0f} s"
        yield f"         0{' ' * (width - len(last))}{last}"
        yield f"         {LEGEND}"


def _row(changes: list[_Change], end: float, width: int) -> str:
    column = end / width
    cells: list[RankState] = ["absent"] * width
    for i, change in enumerate(changes):
        until = changes[i + 1].at if i + 1 < len(changes) else end
        first = min(int(change.at / column), width - 1)
        last = max(first, min(int(until / column), width - 1))
        for cell in range(first, last + 1):
            # A state that only touches its last column leaves that to its successor.
            touched = cell == last and last > first and i + 1 < len(changes)
            if not touched and URGENCY[change.state] >= URGENCY[cells[cell]]:
                cells[cell] = change.state
    return "".join(SIGNS[cell] for cell in cells)
