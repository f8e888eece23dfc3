"""How many workers fit into the simulated cluster, over all runs that share it.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Room:
    """Places for workers."""

    capacity: int | None = None
    """None: there is always room."""
    taken: set[tuple[str, str]] = field(default_factory=set)
    """Run and name of the workers that have a place."""

    def take(self, run: str, worker: str) -> bool:
        """A place for this worker, if there is one."""
        if self.capacity is not None and len(self.taken) >= self.capacity:
            return False
        self.taken.add((run, worker))
        return True

    def free(self, run: str, worker: str) -> None:
        """The worker needs its place no longer."""
        self.taken.discard((run, worker))
