"""The interface of a world: where workers live, and what the reconciler uses of it.

Layer: worlds. No layer above knows which world it uses; a world decides nothing: it gathers facts
and carries out actions, each idempotent by the worker's name.
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
    """Another process wrote the status since it was observed: observe again."""


class StatusUnwritable(TrainRunError):
    """The status cannot be written now (disk full, storage gone): decide nothing meanwhile."""


class StatusRefused(StatusUnwritable):
    """The status is not accepted (no permission, not valid) until a user intervenes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContact:
    """The last contact with one worker's agent."""

    state: AgentState | None
    """Its last heartbeat; None: none received."""
    silent_for: timedelta
    """Time since that heartbeat, or since we started to listen to it; since the last unreadable
    message, if that is newer."""
    unreadable: str = ""
    """Why the messages since then cannot be read; "" if there are none."""


class Agents(Protocol):
    """The agents of one run, as the agent server tracks them."""

    def contact(self, worker: str) -> AgentContact:
        """The last contact with this worker's agent."""

    @property
    def listening_for(self) -> timedelta:
        """How long we have been able to receive heartbeats without interruption."""

    @property
    def ordered(self) -> int:
        """The highest attempt that an agent was ordered to start; 0: none."""

    @property
    def last_words(self) -> tuple[AgentState, ...]:
        """For each slot the last heartbeat of the newest agent whose worker is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The input of one decision."""

    observation: Observation
    config: RunConfig


class World(Protocol):
    """One run's workers and status, wherever they live."""

    @property
    def display_interval(self) -> float:
        """Seconds between two writes of a status whose changes are for display only."""

    async def observe(self, agents: Agents) -> Seen:
        """Gather the facts of one pass."""

    async def write_status(self, status: TrainRunStatus) -> None:
        """Write the status over the last observed one.

        Raises StatusConflict and StatusUnwritable.
        """

    async def apply(self, action: Action) -> None:
        """Carry out one action; repeating it changes nothing."""
