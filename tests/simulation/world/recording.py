"""How a simulated agent stores the run's story: each chapter once, while the store answers.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world.store import SimStore
    from trainrun.contract.answer import StoryEntry


@dataclass(slots=True, kw_only=True)
class SimRecording:
    """Of one agent."""

    store: SimStore
    done: tuple[int, ...] = ()
    """Numbers of what it is told now that are stored."""
    _told: tuple[StoryEntry, ...] = ()

    def want(self, entries: tuple[StoryEntry, ...]) -> None:
        """Store these."""
        self._told, self.done = entries, ()
        self.tick()

    def tick(self) -> None:
        """Try again what the store has not taken."""
        if self.store.available and len(self.done) < len(self._told):
            for entry in self._told:
                self.store.record(entry.number, entry.text)
            self.done = tuple(entry.number for entry in self._told)
