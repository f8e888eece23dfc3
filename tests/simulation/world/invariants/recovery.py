"""Healthy workers are kept, and once nothing hinders a run any more it soon goes on.

Layer: simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world.invariants.explained import NODE_EVIDENCE
from trainrun_operator.core.run.boundary import DeleteWorker

if TYPE_CHECKING:
    from tests.simulation.world.invariants.case import Case
    from tests.simulation.world.worker import SimWorker
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.boundary import Observation, Plan

SOON = 30.0
"""Seconds in which a gang is gathered, where nothing hinders it."""


class Recovery:
    """Judges deletions, and the time that it takes to start again."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._waits = 0.0
        """Seconds that the attempt to come is meant to wait."""
        self._timed: set[int] = set()

    def planned(self, observation: Observation, plan: Plan) -> None:
        """Before a plan is acted on."""
        status, world = observation.status, self._case.world
        leaving = world.config.suspend or status.finished or status.placement is not None
        if leaving or self._case.heartbeats_lost or status != world.status:
            return
        for action in plan.actions:
            worker = world.workers.get(action.name) if isinstance(action, DeleteWorker) else None
            if worker is not None and self._is_healthy(worker) and not self._is_spare(worker):
                self._case.wrong(f"{worker.name} is deleted, and nothing has happened to it")

    def _is_healthy(self, worker: SimWorker) -> bool:
        """It could take part in the next attempt."""
        config, record = self._case.world.config, self._case.world.status.start_record
        struck = any(
            (s.slot, s.created_for) == (worker.slot, worker.created_for) for s in self._case.strikes
        )
        struck = struck or self._is_on_an_avoided_node(worker)
        in_place = worker.slot < config.replicas and (
            record is None or worker.created_for >= record.roster[worker.slot]
        )
        made, now = (worker.template_hash, worker.storage), (config.template_hash, config.storage)
        seen = worker.agent.resolution
        only_looks = seen is not None and seen.outcome == "Looked"
        return _lives(worker) and made == now and in_place and not struck and not only_looks

    def _is_spare(self, worker: SimWorker) -> bool:
        """It was made while an older one of its slot was not heard, and that one is well again."""
        here = [w for w in self._case.world.workers.values() if w.slot == worker.slot]
        return any(w.created_for < worker.created_for and _lives(w) for w in here)

    def _is_on_an_avoided_node(self, worker: SimWorker) -> bool:
        """A rule says that the run restarts without the node of an incident."""
        return any(
            i.action == "RestartAvoidingNode" and i.node == f"node-{worker.name}"
            for i in self._case.world.status.all_incidents
        )

    def status(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        """A status was written."""
        case, record = self._case, new.start_record
        ending = new.ending
        if ending is not None:
            until = (ending.not_before, ending.grace_until)  # its processes may ignore SIGTERM
            pauses = [(time - ending.time).total_seconds() for time in until if time is not None]
            self._waits = max(pauses, default=self._waits)
        if record is None or record.attempt in self._timed:
            return
        self._timed.add(record.attempt)
        ended = case.ended_at.get(record.attempt - 1, 0.0)
        waits = max(self._waits, self._is_told_which_node(new, record.attempt - 1))
        quiet = case.now - max(ended + waits, min(case.disturbed_until, case.now))
        self._waits = 0.0
        stayed_away = old.placement is not None  # for minutes, whoever else needs the room
        if quiet > SOON and not stayed_away and not case.heartbeats_lost:
            case.wrong(f"attempt {record.attempt} starts after {quiet:.0f} s without any trouble")

    def _is_told_which_node(self, status: TrainRunStatus, ended: int) -> float:
        """Seconds for which a rule that asks for another node may wait until that one is known."""
        longest = self._case.world.config.heartbeat_timeout.total_seconds() + NODE_EVIDENCE
        asked = {i.attempt for i in status.incidents if i.action == "RestartAvoidingNode"}
        return longest if ended in asked else 0.0


def _lives(worker: SimWorker) -> bool:
    return worker.phase == "Running" and worker.agent.alive and not worker.deleting
