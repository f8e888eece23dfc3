"""A worker object of the simulated cluster, and what an API server would tell of it.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.simulation.world.heartbeat import stated_notice
from trainrun.contract.agent_state import Notice
from trainrun_operator.core.run.boundary import Pending, WorkerFact

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from trainrun.contract.agent_config import StorageConfig
    from trainrun_operator.core.run.boundary import PendingKind, WorkerLoss, WorkerPhase
    from trainrun_operator.worlds.base import AgentContact


@dataclass(slots=True)
class SimWorker:
    """A worker object and what runs in it."""

    name: str
    slot: int
    created_for: int
    template_hash: str
    storage: StorageConfig
    created: float
    agent: SimAgent
    phase: WorkerPhase = "Pending"
    exit_code: int | None = None
    loss: WorkerLoss | None = None
    lost_at: float = 0.0
    last_words: WorkerLoss | None = None
    """What is told of it once it has ended."""
    running_since: float | None = None
    present: bool = True
    notice_known: bool = False
    deleting: bool = False
    """Somebody has deleted its object, which goes when the worker has ended."""
    dark: bool = False
    """Its node is dead: whoever deletes the worker gets no confirmation from there."""
    suspect_node: str = ""
    quarantined: str = ""
    """Why nothing is to run on its node any more, though nobody takes the worker away."""
    homeless_since: float | None = None
    """Since when it has found no room."""
    lacks: PendingKind = "Starting"
    """What it lacks besides."""
    lacks_since: float = 0.0

    def lack(self, kind: PendingKind, now: float) -> None:
        """Something that it needs to start is missing."""
        if self.lacks != kind:
            self.lacks, self.lacks_since = kind, now

    def fact(self, now: float, contact: AgentContact) -> WorkerFact:
        """What the world can know at this moment, and what was heard of the agent."""
        notice: Notice | None = stated_notice(self.agent) if self.notice_known else None
        if notice is None and self.quarantined:
            notice = Notice(reason=self.quarantined)
        loss = self.loss
        if loss is not None:
            loss = replace(loss, age=timedelta(seconds=now - self.lost_at))
        return WorkerFact(
            name=self.name,
            slot=self.slot,
            created_for=self.created_for,
            template_hash=self.template_hash,
            storage=self.storage,
            phase=self.phase,
            deleting=self.deleting,
            node="" if self.phase == "Pending" else f"node-{self.name}",
            age=timedelta(seconds=now - self.created),
            running_for=self._running_for(now),
            exit_code=self.exit_code,
            loss=loss,
            pending=self._pending(now),
            suspect_node=self.suspect_node,
            notice=notice,
            agent=contact.state,
            silent_for=contact.silent_for,
            unreadable=contact.unreadable,
        )

    def _running_for(self, now: float) -> timedelta | None:
        since = self.running_since
        return None if since is None else timedelta(seconds=now - since)

    def _pending(self, now: float) -> Pending | None:
        if self.phase != "Pending":
            return None
        if self.lacks != "Starting":
            since = timedelta(seconds=now - self.lacks_since)
            return Pending(kind=self.lacks, message="something is missing", since=since)
        if self.homeless_since is None:
            since = timedelta(seconds=now - self.created)
            return Pending(kind="Starting", message="it is being started", since=since)
        since = timedelta(seconds=now - self.homeless_since)
        return Pending(kind="Unschedulable", message="no node has room", since=since)
