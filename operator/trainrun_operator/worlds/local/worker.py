"""One worker of a local run: what is known of it, and its agent while there is one.

Layer: worlds/local. Invariant: an ended worker never runs again; a new one gets a new name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from trainrun.contract.agent_state import Notice
from trainrun.contract.ages import aged
from trainrun_operator.core.run.causes import Cause
from trainrun_operator.core.run.observation import WorkerFact, WorkerLoss
from trainrun_operator.worlds.base import Heard
from trainrun_operator.worlds.local.agent_process import AgentProcess


@dataclass(slots=True, kw_only=True)
class LocalWorker:
    """A process group in a folder of its own."""

    name: str
    slot: int
    created_for: int
    template_hash: str
    folder: Path
    agent: AgentProcess | None = None
    created: float = field(default_factory=time.monotonic)
    ended: bool = False
    exit_code: int | None = None
    _loss: tuple[WorkerLoss, float] | None = None
    _notice: tuple[Notice, float] | None = None

    def lose(self, cause: Cause, message: str) -> None:
        """Remember why it is gone; the first reason stands."""
        if self._loss is None:
            self._loss = (WorkerLoss(cause=cause, message=message), time.monotonic())

    @property
    def stays(self) -> bool:
        """It is there to stay, as far as is known."""
        return not self.ended and self._loss is None and self._notice is None

    def announce(self, notice: Notice) -> None:
        """Remember that it was told to leave."""
        self._notice = (notice, time.monotonic())

    def fact(self, heard: Heard) -> WorkerFact:
        """What the core may know of it."""
        now = time.monotonic()
        return WorkerFact(
            name=self.name,
            slot=self.slot,
            created_for=self.created_for,
            template_hash=self.template_hash,
            phase="Ended" if self.ended else "Running",
            node=self.folder.name,
            age=timedelta(seconds=now - self.created),
            exit_code=self.exit_code,
            loss=self._aged_loss(now),
            notice=self._aged_notice(now),
            agent=heard.state,
            silent_for=heard.silent_for,
            unreadable=heard.unreadable,
        )

    def _aged_loss(self, now: float) -> WorkerLoss | None:
        if self._loss is None:
            return None
        loss, since = self._loss
        return replace(loss, age=timedelta(seconds=now - since))

    def _aged_notice(self, now: float) -> Notice | None:
        if self._notice is None:
            return None
        notice, since = self._notice
        return aged(notice, by=now - since)
