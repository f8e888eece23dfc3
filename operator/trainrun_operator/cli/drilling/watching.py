"""Listens to the agents of a run: what its metrics do not tell, and when it has got far enough.

Layer: cli; pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun.contract.agent_state import AgentState


@dataclass(slots=True, kw_only=True)
class Watcher:
    """Hears every heartbeat of one run."""

    until: int | None
    """The step that it is to get to; None: to its third checkpoint."""
    attempt: int
    """The attempt that is to get there."""
    ready: Callable[[], bool]
    """Whether the fault has struck."""
    enough: Callable[[], None]
    """Called once, when it has got there."""
    reached_it: bool = False
    reported: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By attempt and rank the highest step."""
    committed: set[int] = field(default_factory=set)
    """Steps of the first attempt's checkpoints."""
    asked: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)

    def hear(self, state: AgentState) -> None:
        """Take note of what an agent says."""
        if not state.attempt:
            return
        first = state.slot * len(state.steps)
        for rank, step in enumerate(state.steps, start=first):
            if step is not None:
                told = self.reported[state.attempt]
                told[rank] = max(step, told.get(rank, step))
        if state.save.calls:
            self.asked.add(state.attempt)
        if state.rendezvous:
            self.opened.add(state.attempt)
        if state.attempt == 1:
            self.parts |= {s.step for s in state.staged if s.ranks and not s.whole}
            if state.committed is not None:
                self.committed.add(state.committed.id.step)
        if not self.reached_it and state.phase == "Running" and self._has_got_there(state):
            self.reached_it = True
            self.enough()

    def _has_got_there(self, state: AgentState) -> bool:
        if state.attempt < self.attempt or not self.ready():
            return False
        if self.until is None:
            return len(self.committed) >= THIRD
        told = self.reported[state.attempt]
        return bool(told) and told[min(told)] >= self.until


THIRD = 3
"""Two checkpoints to resume from, and as many steps again to compare after that."""
