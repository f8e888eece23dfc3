"""What can go wrong in the simulated cluster, on virtual time.

Layer: simulation. Each fault tells the judge what is really lost by it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.world.agent import KILLED
from tests.simulation.world.surroundings import TroubledCluster
from trainrun.contract.agent_state import Notice, ProcessExit
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerLoss

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.processes import Training
    from tests.simulation.world.worker import SimWorker

OWN = {
    "trainrun.FatalError": Cause.FATAL_ERROR,
    "trainrun.RetryError": Cause.RETRY_ERROR,
    "trainrun.AgentRefused": Cause.STORAGE_ERROR,
}
"""Exceptions of the worker library: each names its cause."""


class FaultyCluster(TroubledCluster):
    """A cluster in which things go wrong when they are asked to."""

    # ------------------------------------------------------------------ processes and agents

    def kill_process(self, agent: SimAgent, *, oom: bool = False) -> None:
        """A training process dies."""
        rank = self._one_of(agent)
        if rank is not None:
            cause = Cause.OUT_OF_MEMORY if oom else Cause.APP_ERROR
            self.judge.struck(agent, cause, lasting=False)
            agent.end_process(rank, replace(KILLED, oom=oom))
            self.send(agent)

    def raise_exception(self, agent: SimAgent, text: str = "ValueError: bad batch") -> None:
        """The script fails."""
        rank = self._one_of(agent)
        if rank is not None:
            self.judge.struck(agent, *causes_of(text), lasting=False)
            agent.end_process(rank, ProcessExit(rank=rank, code=1, exception=text))
            self.send(agent)

    def hang(self, agent: SimAgent) -> None:
        """A rank does nothing any more, and its process lives."""
        rank = self._one_of(agent)
        if rank is not None and agent.training is not None:
            self.judge.struck(agent, Cause.HUNG, lasting=False)
            agent.training.hung.add(rank)

    def stall(self, agent: SimAgent, seconds: float, *, watched: bool) -> None:
        """A rank does nothing for a while, and goes on; `watched`: it may be taken for a hang."""
        rank, training = self._one_of(agent), agent.training
        if rank is None or training is None:
            return
        if watched:
            self.judge.struck(agent, Cause.HUNG, lasting=False, takes=seconds)
        else:
            self.judge.disturbed(seconds)
        training.hung.add(rank)
        self.clock.after(seconds, lambda: self.release(agent, training, rank))

    def release(self, agent: SimAgent, training: Training, rank: int) -> None:
        """A rank that has hung goes on, unless its attempt is over."""
        if agent.alive and agent.training is training and rank in training.hung:
            training.hung.remove(rank)
            self.trainer.goes_on(agent, rank)

    def leave_early(self, agent: SimAgent) -> None:
        """The script of one rank ends well, before the others do."""
        rank = self._one_of(agent)
        if rank is not None:
            self.trainer.leave(agent, rank)

    def finish_early(self) -> None:
        """All ranks find after one more step that the training is complete, and say so."""
        gang = self.gang(self.status.attempt)
        steps = [a.training.step for a in gang if a.training is not None and a.training.alive]
        if steps and self.finished_at is None:
            self.says_finished = True
            self.finished_at = min(self.total_steps, max(steps) + 1)

    def _one_of(self, agent: SimAgent) -> int | None:
        """A rank of a worker whose process lives."""
        living = agent.training.living if agent.training is not None else ()
        return self.rng.choice(living) if living else None

    def silence(self, agent: SimAgent, seconds: float) -> None:
        """Its messages get lost both ways for a while; its processes go on."""
        self.judge.struck(agent, Cause.SILENT, takes=seconds)
        agent.silent = True
        self.clock.after(seconds, lambda: self._unsilence(agent))

    def _unsilence(self, agent: SimAgent) -> None:
        agent.silent = False

    # ------------------------------------------------------------------ workers and nodes

    def lose_node(self, worker: SimWorker, *, known_after: float) -> None:
        """Power loss: everything is gone at once, and the world learns of it later."""
        if worker.phase == "Ended" or not worker.present:
            return
        self.judge.struck(worker.agent, Cause.NODE_LOST, Cause.SILENT, takes=known_after)
        self.end_agent(worker.agent)
        self.clock.after(known_after, lambda: self._node_known(worker))

    def _node_known(self, worker: SimWorker) -> None:
        if worker.present:
            self._tell_lost(worker, Cause.NODE_LOST, f"node of {worker.name} is gone")

    def darken(self, worker: SimWorker, *, suspected_after: float) -> None:
        """Power loss of which nobody learns more than that the node is not heard any more."""
        if worker.phase != "Running" or not worker.present or worker.dark:
            return
        self.judge.struck(worker.agent, Cause.NODE_LOST, Cause.SILENT, takes=suspected_after)
        self.end_agent(worker.agent)
        worker.dark = True
        self.clock.after(suspected_after, lambda: self._suspect(worker))

    def _suspect(self, worker: SimWorker) -> None:
        worker.suspect_node = "NotReady"
        self.changed()

    def evict(self, worker: SimWorker, *, grace: float) -> None:
        """Somebody deletes the worker; it leaves within the grace and its object goes."""
        if self._notify(worker, Notice(reason="deleted", remaining=grace)):
            worker.deleting = worker.notice_known = True
            self.changed()
            self.clock.after(grace, lambda: self._evicted(worker))

    def _evicted(self, worker: SimWorker) -> None:
        if self.grace:
            self.remove(worker)
        else:
            self.delete_worker(worker.name)

    def quarantine(self, worker: SimWorker) -> None:
        """Its node is not to be used any more; nobody takes the worker away."""
        worker.quarantined = "its node is quarantined"
        self.judge.struck(worker.agent, Cause.PREEMPTED)
        self.changed()

    def preempt(self, worker: SimWorker, *, grace: float, known: bool) -> None:
        """A notice, and the end after the grace."""
        if self._notify(worker, Notice(reason="reclaimed", remaining=grace)):
            worker.notice_known = known
            self.changed()
            self.clock.after(grace, lambda: self._reclaim(worker))

    def _notify(self, worker: SimWorker, notice: Notice) -> bool:
        if worker.phase != "Running" or worker.agent.notice is not None or not worker.agent.alive:
            return False
        worker.agent.notice = (notice, self.clock.now)
        self.judge.struck(worker.agent, Cause.PREEMPTED, takes=notice.remaining or 0.0)
        self.send(worker.agent)
        return True

    def _reclaim(self, worker: SimWorker) -> None:
        if worker.phase == "Running" and worker.present:
            worker.exit_code = 143
            self._end(worker, Cause.PREEMPTED, f"{worker.name} was reclaimed")

    def end_by_kubelet(self, worker: SimWorker, cause: Cause, *, grace: float = 0.0) -> None:
        """The kubelet ends all of it and says why then: its node, or it alone, has run short.

        For the node that is Evicted; for what it used beyond its own limits, Terminated, and a
        failed start if several of a slot end so before they take part. `grace`: seconds from
        SIGTERM to SIGKILL.
        """
        if worker.phase != "Running" or not worker.present:
            return
        idle = cause is Cause.TERMINATED and worker.agent.training is None
        causes = (cause, Cause.START_FAILED) if idle else (cause,)
        self.judge.struck(worker.agent, *causes, takes=grace)
        message = f"{worker.name} was evicted by its node"
        worker.last_words = WorkerLoss(cause=cause, message=message)
        if grace:
            worker.agent.terminated(self.config.grace.total_seconds())
        self.clock.after(grace, lambda: self._killed(worker))

    def tell_to_end(self, worker: SimWorker) -> None:
        """SIGTERM, and SIGKILL after the grace, as for a probe that fails: nobody says why."""
        if worker.phase == "Running" and worker.present and worker.agent.notice is None:
            grace = self.config.grace.total_seconds()
            idle = (Cause.START_FAILED,) if worker.agent.training is None else ()
            self.judge.struck(worker.agent, Cause.TERMINATED, *idle, takes=grace)
            worker.agent.terminated(grace)
            self.clock.after(grace, lambda: self._killed(worker))

    @abstractmethod
    def has_told(self, agent: SimAgent) -> bool:
        """Whether whoever leads has heard of the notice that this agent has had."""

    def _killed(self, worker: SimWorker) -> None:
        if worker.present and worker.phase == "Running":
            if worker.last_words is None and not self.has_told(worker.agent):
                self.judge.struck(worker.agent, Cause.UNKNOWN)  # nobody may ever hear of SIGTERM
            self.end_agent(worker.agent)
            self.agent_left(worker.agent, code=137)

    def interrupt(self) -> None:
        """What a laptop's next leader finds: all workers have died with the one before."""
        ended = self.status.ending is not None or self.status.finished
        for worker in [w for w in self.workers.values() if w.present]:
            if ended:  # the attempt has, for a reason that may not be known yet
                self.judge.struck(worker.agent, Cause.UNKNOWN)
                self.end_agent(worker.agent)
                worker.phase = "Ended"
            else:
                self.judge.struck(worker.agent, Cause.INTERRUPTED)
                self._end(worker, Cause.INTERRUPTED, "the process that led the run ended")

    def _end(self, worker: SimWorker, cause: Cause, message: str) -> None:
        self.end_agent(worker.agent)
        self._tell_lost(worker, cause, message)

    def _tell_lost(self, worker: SimWorker, cause: Cause, message: str) -> None:
        worker.loss = WorkerLoss(cause=cause, message=message)
        worker.lost_at, worker.phase = self.clock.now, "Ended"
        self.changed()

    def vanish(self, worker: SimWorker) -> None:
        """Somebody deletes the worker by hand."""
        if worker.present and worker.phase != "Ended":
            self.judge.struck(worker.agent, Cause.PREEMPTED, takes=self.grace)
            self.delete_worker(worker.name)


def causes_of(text: str) -> tuple[Cause, ...]:
    """What operators may make of a process that ends with this exception."""
    if (own := OWN.get(text.partition(":")[0])) is not None:
        return (own,)
    clash = "address already in use" in text.lower()
    return (Cause.RENDEZVOUS_FAILED, Cause.APP_ERROR) if clash else (Cause.APP_ERROR,)
