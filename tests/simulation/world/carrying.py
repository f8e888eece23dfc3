"""What a simulated worker holds of checkpoints that are on the disks: described, then carried.

Layer: simulation. An attempt starts from the disks; its agents upload their parts meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from tests.simulation.world.agent_surroundings import AgentSurroundings
    from tests.simulation.world.staging import SimStaging
    from trainrun.contract.answer import Start

TAKES = 0.1, 2.0
"""Seconds for which an upload goes on."""
SUMS = 0.0, 0.4
"""Seconds for which it sums its files."""
LOOKS = 0.5
"""Seconds between two looks of slot 0's agent whether all parts are stored."""


class Carrier(Protocol):
    """An agent that holds such parts, or copies of those of others."""

    world: AgentSurroundings[Any]
    alive: bool
    slot: int
    staging: SimStaging

    @property
    def attempt(self) -> int:
        """The attempt that was started last."""

    def changed(self) -> None:
        """Something has changed."""


@dataclass(slots=True, kw_only=True)
class SimCarrying:
    """Of one agent."""

    described: set[int] = field(default_factory=set)
    """Steps of the attempt that runs, or has ended."""
    ordered: tuple[int, ...] = ()
    point: CheckpointId | None = None
    """What its attempt started from, if that was on the disks."""
    uploaded: bool = False
    committed: CheckpointId | None = None
    commit_at: float = 0.0

    def holds(self, agent: Carrier) -> tuple[CheckpointId, ...]:
        """As a heartbeat tells it."""
        steps = {*self.described, *(s for s in self.ordered if _stored(agent, s))}
        found = {CheckpointId(attempt=agent.attempt, step=step) for step in steps}
        return tuple(sorted(found | ({self.point} if self.point is not None else set())))

    def owes(self, agent: Carrier, steps: tuple[int, ...]) -> bool:
        """Whether one of these has still to be described."""
        return any(agent.staging.owes([step]) for step in steps if step not in self.described)

    def describe(self, agent: Carrier, steps: tuple[int, ...]) -> None:
        """Sum these, and say so in the store."""
        new, self.ordered = [step for step in steps if step not in self.ordered], steps
        agent.staging.uploads_only = ()
        for step in new:
            self._describe_later(agent, agent.attempt, step)

    def _describe_later(self, agent: Carrier, attempt: int, step: int) -> None:
        world = agent.world

        def describe() -> None:
            if not agent.alive or agent.attempt != attempt or step not in self.ordered:
                return
            if not world.store.available:
                self._describe_later(agent, attempt, step)
                return
            world.store.describe(CheckpointId(attempt=attempt, step=step), slot=agent.slot)
            self.described.add(step)
            agent.changed()

        world.clock.after(world.rng.uniform(*SUMS), describe)

    def begin(self, agent: Carrier, order: Start) -> None:
        """An attempt starts; called before anything of the one before is forgotten."""
        point = order.resume if order.staged else None
        if point is None or point != self.point:
            held = point is not None and point in self.holds(agent)
            self.uploaded = point is not None and held and _stored(agent, point.step)
            self.point, self.committed = point if held else None, None
            if self.point is not None:
                self._upload_later(agent, self.point, order.workers)
        self.described, self.ordered = set(), ()

    def _upload_later(self, agent: Carrier, point: CheckpointId, workers: int) -> None:
        world = agent.world
        seconds = LOOKS if self.uploaded else world.rng.uniform(*TAKES)
        world.clock.after(seconds, lambda: self._upload(agent, point, workers))

    def _upload(self, agent: Carrier, point: CheckpointId, workers: int) -> None:
        world = agent.world
        if not agent.alive or self.point != point or self.committed is not None:
            return
        if world.store.available:
            world.store.put_part(point, slot=agent.slot, workers=workers)
            self.uploaded = True
            if agent.slot > 0:
                return
            if world.store.commit(point):
                world.committed(point)
                self.committed, self.commit_at = point, world.clock.now
                agent.changed()
                return
        self._upload_later(agent, point, workers)


def _stored(agent: Carrier, step: int) -> bool:
    entry = agent.staging.steps.get(step)
    return entry is not None and entry.uploaded
