"""The simulated cluster: workers, a bad network, a store, operators, and faults on virtual time.

Layer: worlds. Everything random comes from one seed. `mistakes` collects every violation of an
invariant with the moment it happened; tests ask that it stays empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.protocol import Notice, Resolution, Start
from trainrun_operator.api.status import TrainRunStatus
from trainrun_operator.core.causes import Cause
from trainrun_operator.core.observation import WorkerLoss
from trainrun_operator.worlds.simulated.agent import SimAgent
from trainrun_operator.worlds.simulated.clock import Clock
from trainrun_operator.worlds.simulated.invariants import Judge
from trainrun_operator.worlds.simulated.operator import SimOperator
from trainrun_operator.worlds.simulated.room import Room
from trainrun_operator.worlds.simulated.store import SimStore
from trainrun_operator.worlds.simulated.training import TrainingLoop
from trainrun_operator.worlds.simulated.worker import SimWorker

if TYPE_CHECKING:
    import random

    from trainrun_operator.core.config import RunConfig
    from trainrun_operator.core.observation import Observation, RefusedReason, WorkerFact
    from trainrun_operator.core.plan import CreateWorker, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the network is."""

    loss: float = 0.0
    """Probability that a message is lost."""
    duplicate: float = 0.0
    """Probability that a message comes twice."""
    delay: float = 0.05
    """Longest ordinary delay of a message in seconds; messages overtake each other."""


@dataclass
class SimWorld:
    """One life of one run."""

    config: RunConfig
    rng: random.Random
    total_steps: int = 24
    save_every: int = 3
    step_seconds: float = 1.0
    weather: Weather = Weather()
    clock: Clock = field(default_factory=Clock)
    store: SimStore = field(default_factory=SimStore)
    status: TrainRunStatus = field(default_factory=TrainRunStatus)
    workers: dict[str, SimWorker] = field(default_factory=dict)
    operators: list[SimOperator] = field(default_factory=list)
    gone: list[SimWorker] = field(default_factory=list)
    """Workers whose names were used again."""
    room: Room = field(default_factory=Room)
    refusing: RefusedReason | None = None
    """Creations are refused, for this reason."""
    hang_on_loss: bool = False
    """Processes whose peer is gone hang instead of failing."""

    def __post_init__(self) -> None:
        """Start with one operator and no workers."""
        self.judge = Judge(self)
        self.training = TrainingLoop(self)
        self._version = 0
        self._previous = (self.status, self.config)
        self._born = 0
        self.add_operator()

    # ------------------------------------------------------------------ status

    def read_run(self, *, stale: bool) -> tuple[TrainRunStatus, RunConfig, int]:
        """Status, spec and the version that a write must name: one object, stale as a whole."""
        if stale:
            return *self._previous, self._version - 1
        return self.status, self.config, self._version

    def write_status(self, status: TrainRunStatus, *, version: int, transition: bool) -> bool:
        """A guarded write; False: somebody else was faster."""
        if version != self._version:
            return False
        self.judge.status_written(self.status, status, transition=transition)
        self._previous, self.status = (self.status, self.config), status
        self._version += 1
        return True

    # ------------------------------------------------------------------ operators

    def add_operator(self) -> SimOperator:
        """Another incarnation, with nothing but the status."""
        self._born += 1
        operator = SimOperator(self, name=f"operator-{self._born}")
        self.operators.append(operator)
        self.judge.heartbeats_lost |= len(self.operators) > 1  # each hears a part of them
        operator.wake()
        return operator

    def crash_operator(self, operator: SimOperator, *, back_after: float = 3.0) -> None:
        """It dies where it stands; another one starts later."""
        if operator.alive:
            operator.alive = False
            self.operators.remove(operator)
            if not self.operators:
                self.clock.after(back_after, self._replace_operator)

    def _replace_operator(self) -> None:
        if not self.operators:
            self.add_operator()

    def check_plan(self, observation: Observation, plan: Plan) -> None:
        """Let the judge look at a plan before it is acted on."""
        self.judge.plan_made(observation, plan)

    # ------------------------------------------------------------------ workers

    def worker_facts(self) -> tuple[WorkerFact, ...]:
        """What an API server would tell, in no particular order."""
        present = [w for w in self.workers.values() if w.present]
        self.rng.shuffle(present)
        return tuple(worker.fact(self.clock.now) for worker in present)

    def create_worker(self, action: CreateWorker) -> None:
        """Idempotent by name; it runs after a while."""
        there = self.workers.get(action.name)
        if self.refusing is not None or (there is not None and there.present):
            return
        if there is not None:
            self.gone.append(there)
        agent = SimAgent(self, name=action.name, slot=action.slot, created_for=action.created_for)
        self.workers[action.name] = worker = SimWorker(
            name=action.name,
            slot=action.slot,
            created_for=action.created_for,
            template_hash=action.template_hash,
            created=self.clock.now,
            agent=agent,
        )
        self.clock.after(self.rng.uniform(0.1, 2.0), lambda: self._run(worker))

    def _run(self, worker: SimWorker) -> None:
        if not worker.present or worker.phase != "Pending":
            return
        if not self.room.take(self.config.uid, worker.name):
            if worker.homeless_since is None:
                worker.homeless_since = self.clock.now
                self._wake_all()
            self.clock.after(self.rng.uniform(0.5, 2.0), lambda: self._run(worker))
            return
        worker.phase = "Running"
        self._beat(worker.agent)
        self._wake_all()

    def delete_worker(self, name: str, *, force: bool = False) -> None:
        """What runs in it dies; the object goes, once its node has confirmed it."""
        worker = self.workers.get(name)
        if worker is None:
            return
        self._end_agent(worker.agent)
        if worker.dark and not force:
            worker.deleting = True
        else:
            worker.present = False
            worker.phase = "Ended"
        self._wake_all()

    def agent_left(self, agent: SimAgent, *, code: int) -> None:
        """The agent ended by itself."""
        worker = self.workers[agent.name]
        agent.alive = False
        self.room.free(self.config.uid, agent.name)
        if worker.agent is agent and worker.phase != "Ended":
            worker.phase, worker.exit_code = "Ended", code
            self._wake_all()

    def _end_agent(self, agent: SimAgent) -> None:
        agent.end_processes(signal=9)
        agent.alive = False
        self.room.free(self.config.uid, agent.name)

    def _wake_all(self) -> None:
        for operator in self.operators:
            operator.wake(self.rng.uniform(0.0, 0.2))

    def gang(self, attempt: int) -> list[SimAgent]:
        """All agents that ever started this attempt, dead ones too."""
        known = (*self.workers.values(), *self.gone)
        return [w.agent for w in known if w.agent.attempt == attempt]

    # ------------------------------------------------------------------ network

    def _beat(self, agent: SimAgent) -> None:
        """The agent's loop: it asks again every second, and at once when it has news."""
        if not agent.alive:
            return
        self.send(agent)
        self.clock.after(1.0, lambda: self._beat(agent))

    def send(self, agent: SimAgent) -> None:
        """One heartbeat to one of the operators, over this weather."""
        if not agent.alive or agent.silent or not self.operators:
            return
        state = agent.state()
        operator = self.rng.choice(self.operators)
        for _ in range(2 if self.rng.random() < self.weather.duplicate else 1):
            if self.rng.random() >= self.weather.loss:
                self.clock.after(
                    self.rng.uniform(0.001, self.weather.delay),
                    lambda: self._arrive(operator, agent, state),
                )

    def _arrive(self, operator: SimOperator, agent: SimAgent, state: object) -> None:
        if operator.alive:
            operator.hear(state)  # type: ignore[arg-type]
            self.push_answer(operator, agent.name)

    def push_answer(self, operator: SimOperator, name: str) -> None:
        """The answer that a waiting agent gets, over this weather."""
        worker, answer = self.workers.get(name), operator.answers.get(name)
        if worker is None or worker.phase == "Pending" or answer is None:
            return  # nobody waits for one
        if self.rng.random() < self.weather.loss:
            return
        agent = worker.agent
        delay = self.rng.uniform(0.001, self.weather.delay)
        self.clock.after(delay, lambda: self._tell(agent, answer))

    def _tell(self, agent: SimAgent, answer: object) -> None:
        if agent.alive and not agent.silent:
            before = (agent.phase, agent.vote, agent.offer, agent.resolution, agent.attempt)
            agent.obey(answer)  # type: ignore[arg-type]
            if (agent.phase, agent.vote, agent.offer, agent.resolution, agent.attempt) != before:
                self.send(agent)

    # ------------------------------------------------------------------ store

    def resolve(self, agent: SimAgent, attempt: int) -> Resolution:
        """An agent claims the resume point of an attempt."""
        resolution = self.store.resolve(attempt)
        if resolution.outcome == "Resolved":
            self.judge.resolved(attempt, resolution.resume)
        if resolution.outcome == "Unavailable":
            self.clock.after(1.0, lambda: self.send(agent))
        return resolution

    def check_start(self, agent: SimAgent, order: Start) -> None:
        """An agent is about to start an attempt."""
        self.judge.started(agent, order)

    def save_committed(self, agent: SimAgent, call: int) -> None:
        """A worker's ranks will be told to save at this call."""
        self.judge.save_committed(agent, call)

    # ------------------------------------------------------------------ faults

    def kill_process(self, agent: SimAgent, *, oom: bool = False) -> None:
        """A training process dies."""
        if agent.training is not None and agent.training.alive:
            self.judge.real_loss(agent)
            agent.end_processes(signal=9, oom=oom)
            self.send(agent)

    def raise_exception(self, agent: SimAgent) -> None:
        """The script fails."""
        if agent.training is not None and agent.training.alive:
            self.judge.real_loss(agent)
            agent.end_processes(code=1, exception="ValueError: bad batch")
            self.send(agent)

    def lose_node(self, worker: SimWorker, *, known_after: float) -> None:
        """Power loss: everything is gone at once, and the world learns of it later."""
        if worker.phase == "Ended" or not worker.present:
            return
        self.judge.real_loss(worker.agent)
        self._end_agent(worker.agent)
        self.clock.after(known_after, lambda: self._node_known(worker))

    def _node_known(self, worker: SimWorker) -> None:
        if worker.present:
            worker.loss = WorkerLoss(
                cause=Cause.NODE_LOST, message=f"node of {worker.name} is gone"
            )
            worker.lost_at, worker.phase = self.clock.now, "Ended"
            self._wake_all()

    def darken(self, worker: SimWorker, *, suspected_after: float) -> None:
        """Power loss of which nobody learns more than that the node is not heard any more."""
        if worker.phase != "Running" or not worker.present or worker.dark:
            return
        self.judge.real_loss(worker.agent)
        self._end_agent(worker.agent)
        worker.dark = True
        self.clock.after(suspected_after, lambda: self._suspect(worker))

    def _suspect(self, worker: SimWorker) -> None:
        worker.suspect_node = "NotReady"
        self._wake_all()

    def evict(self, worker: SimWorker, *, grace: float) -> None:
        """Somebody deletes the worker; it leaves within the grace and its object goes."""
        if worker.phase != "Running" or worker.agent.notice is not None or not worker.agent.alive:
            return
        worker.deleting = worker.notice_known = True
        worker.agent.notice = (Notice(reason="deleted", remaining=grace), self.clock.now)
        self.judge.real_loss(worker.agent)
        self.send(worker.agent)
        self._wake_all()
        self.clock.after(grace, lambda: self.delete_worker(worker.name))

    def preempt(self, worker: SimWorker, *, grace: float, known: bool) -> None:
        """A notice, and the end after the grace."""
        if worker.phase != "Running" or worker.agent.notice is not None or not worker.agent.alive:
            return
        worker.agent.notice = (Notice(reason="reclaimed", remaining=grace), self.clock.now)
        worker.notice_known = known
        self.judge.real_loss(worker.agent)
        self.send(worker.agent)
        self._wake_all()
        self.clock.after(grace, lambda: self._reclaim(worker))

    def _reclaim(self, worker: SimWorker) -> None:
        if worker.phase == "Running" and worker.present:
            self._end_agent(worker.agent)
            worker.phase, worker.exit_code = "Ended", 143
            worker.loss = WorkerLoss(cause=Cause.PREEMPTED, message=f"{worker.name} was reclaimed")
            worker.lost_at = self.clock.now
            self._wake_all()

    def vanish(self, worker: SimWorker) -> None:
        """Somebody deletes the worker by hand."""
        if worker.present and worker.phase != "Ended":
            self.judge.real_loss(worker.agent)
            self.delete_worker(worker.name)

    def silence(self, agent: SimAgent, seconds: float) -> None:
        """Its messages get lost both ways for a while; its processes go on."""
        self.judge.real_loss(agent)
        agent.silent = True
        self.clock.after(seconds, lambda: self._unsilence(agent))

    def _unsilence(self, agent: SimAgent) -> None:
        agent.silent = False

    def damage(self) -> None:
        """The newest checkpoint rots; nobody knows before it is read."""
        newest = self.store.newest()
        if newest is not None:
            self.store.checkpoints[newest].damaged = True

    def suspend(self, seconds: float) -> None:
        """The user suspends the run for a while."""
        self._edit(suspend=True)
        self.clock.after(seconds, lambda: self._edit(suspend=False))

    def edit_template(self) -> None:
        """The user edits the pod template."""
        self._edit(template_hash=f"t{self.clock.now}")

    def _edit(self, **changes: object) -> None:
        self._previous = (self.status, self.config)
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]
        self._version += 1
        self._wake_all()

    def store_away(self, seconds: float) -> None:
        """Nothing can be read or written for a while."""
        self.store.available = False
        self.clock.after(seconds, self._store_back)

    def _store_back(self) -> None:
        self.store.available = True

    # ------------------------------------------------------------------ living

    def live(self, seconds: float) -> None:
        """Let time pass until the run is over, or so many virtual seconds are."""
        while self.clock.now < seconds and not self.over() and self.clock.step():
            pass

    def over(self) -> bool:
        """The run has its verdict and nobody is left."""
        return self.status.finished and all(w.phase == "Ended" for w in self.workers.values())
