"""What a world is: where workers live, and what the reconciler may ask of it.

Layer: worlds. Nothing above knows which world it talks to; nothing in a world decides anything: it
gathers facts and carries out actions, each of which is idempotent by the worker's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from trainrun.contract.agent_state import AgentState
from trainrun.errors import TrainRunError
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.core.run.boundary import Action, Observation
from trainrun_operator.core.run.config import RunConfig


class StatusConflict(TrainRunError):
    """Somebody else has written the status since it was observed: observe again."""


class StatusUnwritable(TrainRunError):
    """The status cannot be written now (disk full, storage gone): nothing is decided meanwhile."""


class StatusRefused(StatusUnwritable):
    """The status is not accepted (no right, not valid), and will not be before somebody helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContact:
    """What was heard of one worker's agent."""

    state: AgentState | None
    """Its last heartbeat; None: never heard."""
    silent_for: timedelta
    """Since that heartbeat, or since we began to listen to it; since the last message that could
    not be read, if that is newer."""
    unreadable: str = ""
    """Why the messages since then cannot be read; "" where there are none."""


class Agents(Protocol):
    """The agents of one run, as the agent server knows them."""

    def contact(self, worker: str) -> AgentContact:
        """What was heard of this worker's agent."""

    @property
    def listening_for(self) -> timedelta:
        """How long agents could be heard without interruption."""

    @property
    def ordered(self) -> int:
        """The highest attempt that an agent was told to start; 0: none."""

    @property
    def last_words(self) -> tuple[AgentState, ...]:
        """Of each slot the last heartbeat of the newest agent whose worker is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The input of one decision."""

    observation: Observation
    config: RunConfig


class World(Protocol):
    """One run's workers and status, wherever they live."""

    @property
    def display_interval(self) -> float:
        """Seconds between two writes of a status that only changed for display."""

    async def observe(self, agents: Agents) -> Seen:
        """Gather the facts of one pass."""

    async def write_status(self, status: TrainRunStatus) -> None:
        """Write the status over the one observed last.

        Raises StatusConflict and StatusUnwritable.
        """

    async def apply(self, action: Action) -> None:
        """Carry out one action; doing it again changes nothing."""
