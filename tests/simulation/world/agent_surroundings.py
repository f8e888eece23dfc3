"""What a simulated agent needs of its world.

Layer: simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import random

    from tests.simulation.world.clock import Clock
    from tests.simulation.world.staging import SimStaging
    from tests.simulation.world.store import SimStore
    from trainrun.contract.agent_state import Resolution
    from trainrun.contract.answer import ResolveRequest, Start
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.core.run.config import RunConfig


A_contra = TypeVar("A_contra", contravariant=True)
"""An agent."""


class Trainer(Protocol[A_contra]):
    """What lets an agent's processes work."""

    def started(self, agent: A_contra) -> None:
        """Its processes have been started."""

    def busy(self, agent: A_contra) -> bool:
        """What its processes saved by themselves is still being taken."""

    def terminated(self, agent: A_contra) -> None:
        """Its processes are sent SIGTERM, for the first time or again."""

    def upload_later(self, agent: A_contra, attempt: int, step: int) -> None:
        """The worker's part of a step is on its disk."""

    def owes_commit(self, agent: A_contra, step: int) -> bool:
        """Every part of a step is stored, and this agent is to commit it."""

    def stored(self, checkpoint: CheckpointId) -> None:
        """A part was stored; it may be the last one."""


class Served(Protocol):
    """An agent from which others copy."""

    staging: SimStaging

    @property
    def attempt(self) -> int:
        """The attempt that was started last."""


class AgentSurroundings(Protocol[A_contra]):
    """What an agent needs of its world."""

    config: RunConfig
    rng: random.Random
    clock: Clock
    store: SimStore
    step_seconds: float
    together: bool

    @property
    def trainer(self) -> Trainer[A_contra]:
        """Lets its processes work."""

    def reached(self, address: str, secret: str) -> Served | None:
        """The agent that serves there, if it lives."""

    def send(self, agent: A_contra) -> None:
        """Something changed that the operator waits for."""

    def resolve(self, agent: A_contra, request: ResolveRequest) -> Resolution:
        """Claim the resume point of an attempt in the store."""

    def reads_well(self, agent: A_contra, checkpoint: CheckpointId) -> bool:
        """Whether what it reads of a checkpoint is what was written."""

    def set_aside(self, agent: A_contra, checkpoint: CheckpointId) -> None:
        """Record that a checkpoint is damaged."""

    def finish(self) -> None:
        """Mark the storage finished."""

    def check_start(self, agent: A_contra, order: Start) -> None:
        """It is about to start an attempt."""

    def committed(self, checkpoint: CheckpointId) -> None:
        """A manifest was written."""

    def save_committed(self, agent: A_contra, call: int) -> None:
        """Its ranks will be told to save at this call."""

    def agent_left(self, agent: A_contra, *, code: int) -> None:
        """It has ended by itself."""
