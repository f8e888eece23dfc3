"""A worker object of the simulated cluster, and what an API server would tell of it.

Layer: worlds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.observation import Waiting, WorkerFact

if TYPE_CHECKING:
    from trainrun.protocol import Notice
    from trainrun_operator.core.observation import WorkerLoss, WorkerPhase
    from trainrun_operator.worlds.simulated.agent import SimAgent


@dataclass(slots=True)
class SimWorker:
    """A worker object and what runs in it."""

    name: str
    slot: int
    created_for: int
    template_hash: str
    created: float
    agent: SimAgent
    phase: WorkerPhase = "Pending"
    exit_code: int | None = None
    loss: WorkerLoss | None = None
    lost_at: float = 0.0
    present: bool = True
    notice_known: bool = False
    deleting: bool = False
    dark: bool = False
    """Its node is dead: whoever deletes the worker gets no confirmation from there."""
    suspect_node: str = ""
    homeless_since: float | None = None
    """Since when it has found no room."""

    def fact(self, now: float) -> WorkerFact:
        """What the world can know at this moment, the agent aside."""
        notice: Notice | None = self.agent.state_notice() if self.notice_known else None
        loss = self.loss
        if loss is not None:
            loss = replace(loss, age=timedelta(seconds=now - self.lost_at))
        return WorkerFact(
            name=self.name,
            slot=self.slot,
            created_for=self.created_for,
            template_hash=self.template_hash,
            phase=self.phase,
            deleting=self.deleting,
            node="" if self.phase == "Pending" else f"node-{self.name}",
            age=timedelta(seconds=now - self.created),
            exit_code=self.exit_code,
            loss=loss,
            waiting=self._waiting(now),
            suspect_node=self.suspect_node,
            notice=notice,
        )

    def _waiting(self, now: float) -> Waiting | None:
        if self.phase != "Pending":
            return None
        if self.homeless_since is None:
            since = timedelta(seconds=now - self.created)
            return Waiting(kind="Starting", message="it is being started", since=since)
        since = timedelta(seconds=now - self.homeless_since)
        return Waiting(kind="Unschedulable", message="no node has room", since=since)
