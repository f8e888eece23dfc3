"""The simulated cluster: the run's object, its workers, their places and the store.

Layer: simulation. This is the truth; what operators see and write of it goes through `SimWorld`,
what agents and operators say to each other through `Simulation`. Everything random comes from one
seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.simulation.world.agent import KILLED, SimAgent
from tests.simulation.world.clock import Clock
from tests.simulation.world.invariants.judge import Judge
from tests.simulation.world.room import Room
from tests.simulation.world.store import SimStore
from tests.simulation.world.training import OnSigterm, TrainingLoop
from tests.simulation.world.weather import Weather
from tests.simulation.world.worker import SimWorker
from trainrun.contract.agent_state import Resolution
from trainrun_operator.api.run.status import TrainRunStatus

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from datetime import datetime

    from trainrun.contract.agent_config import StorageConfig
    from trainrun.contract.agent_state import OwnerLife
    from trainrun.contract.answer import ResolveRequest, Start
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.status_parts import Cause
    from trainrun_operator.core.run.boundary import CreateWorker, Event, RefusedReason
    from trainrun_operator.core.run.config import RunConfig


ASKED_AGAIN = 2.0
"""Seconds after which a worker that found no room is tried again, at the latest."""

ENDS_AT_ONCE = 0.2
"""Seconds after which a worker ends that cannot begin."""

AN_EDIT = 5.0
"""Seconds in which everybody knows of an edit of the spec."""

VERSIONS = 12
"""Versions of the run's object that are kept, for those who see or write an old one."""

StartTrouble = Literal["ImagePull", "ConfigError", "Ends", "Mute"]
"""A worker's image or configuration is missing; it ends before it calls; it never calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRunVersion:
    """The run's object as it was at some time."""

    number: int
    generation: int
    """Of the spec."""
    status: TrainRunStatus
    config: RunConfig


@dataclass
class SimCluster(ABC):
    """All that one run consists of, operators aside."""

    config: RunConfig
    rng: random.Random
    total_steps: int = 24
    save_every: int = 3
    step_seconds: float = 1.0
    weather: Weather = field(default_factory=Weather)
    clock: Clock = field(default_factory=Clock)
    store: SimStore = field(default_factory=SimStore)
    status: TrainRunStatus = field(default_factory=TrainRunStatus)
    workers: dict[str, SimWorker] = field(default_factory=dict)
    gone: list[SimWorker] = field(default_factory=list)
    """Workers whose names were used again."""
    room: Room = field(default_factory=Room)
    wrong_secret: bool = False
    """Workers that are made now are given keys, for ever, that the store does not take."""
    refusing: RefusedReason | None = None
    """Creations are refused, for this reason."""
    quota: int | None = None
    """How many workers may be there; None: any number."""
    grace: float = 0.0
    """Seconds that a worker gets to end when its object is deleted; 0: it is gone at once."""
    hang_on_loss: bool = False
    """Processes whose peer is gone hang instead of failing."""
    reports: bool = True
    """The script says what it does; otherwise nobody hears of its steps."""
    asks: bool = True
    """The script calls should_save() in every step."""
    on_sigterm: OnSigterm = "Dies"
    """What its processes do about SIGTERM."""
    together: bool = True
    """Ranks need each other in every step; else none notices what becomes of the others."""
    says_finished: bool = False
    """The script calls finish() before it ends."""
    finished_at: int | None = None
    """The script has found that it is done with this step."""
    unmet: int = 0
    """In so many attempts to come the ranks do not find each other."""
    unmet_ranks: frozenset[int] = frozenset()
    """Those that do not find the others then; empty: all."""
    returning: int = 0
    """In so many attempts to come the script returns at once, with exit code 0 on every rank."""
    misreading: set[str] = field(default_factory=set)
    """Identities of agents whose nodes read wrongly."""
    told: dict[tuple[datetime, Event], None] = field(default_factory=dict)
    """Events and when they were due, in order; recorded twice, they are kept once."""
    pass_seconds: float = 0.0
    """How long an operator needs to gather the facts of a pass."""
    deleted: bool = False
    """The run's object is gone."""
    start_trouble: StartTrouble | None = None
    """What happens to workers that are to start."""
    watchers: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever something about the run or its workers has changed."""

    def __post_init__(self) -> None:
        """Start without workers."""
        self.judge = Judge(self, heartbeats_lost=self.weather.loss > 0)
        self.trainer = TrainingLoop(self)
        self._version, self._generation = 0, 1
        self._apart: dict[int, frozenset[int]] = {}
        self._returns: dict[int, bool] = {}
        self.versions = deque([self.version], maxlen=VERSIONS)
        """The newest ones of the run's object, oldest first."""

    # ------------------------------------------------------------------ the run's object

    @property
    def version(self) -> SimRunVersion:
        """The run's object."""
        return SimRunVersion(
            number=self._version,
            generation=self._generation,
            status=self.status,
            config=self.config,
        )

    def write_status(self, status: TrainRunStatus, *, version: int, transition: bool) -> bool:
        """A guarded write; False: somebody else was faster."""
        if version != self._version or self.deleted:
            return False
        self.judge.status_written(self.status, status, transition=transition)
        self.status = status
        self._changed_run()
        return True

    def edit(self, config: RunConfig) -> None:
        """The user edits the spec."""
        self.config = config
        self._generation += 1
        self.judge.spec_edited(config.limits)
        self.judge.disturbed(AN_EDIT)
        self._changed_run()

    def _changed_run(self) -> None:
        self._version += 1
        self.versions.append(self.version)
        self.changed()

    def set_back(self, versions: int) -> None:
        """Somebody writes an old status, as from a backup: the one of so many versions ago."""
        self.status = self.versions[-min(versions + 1, len(self.versions))].status
        self.judge.set_back(self.status)
        self.judge.disturbed(AN_EDIT)
        self._changed_run()

    def delete_run(self, *, version: int | None = None) -> None:
        """The run's object goes, and its workers with it; `version`: unless there is another."""
        if not self.deleted and version in (None, self._version):
            self.deleted = True
            self.judge.run_deleted()
            for worker in self.present():
                self.delete_worker(worker.name)

    def tell(self, event: Event, time: datetime) -> None:
        """Record an event."""
        if (time, event) not in self.told:
            self.told[time, event] = None
            self.judge.told(event)

    def changed(self) -> None:
        """Whoever watches the cluster learns of it."""
        for watcher in tuple(self.watchers):
            watcher()

    # ------------------------------------------------------------------ workers

    def present(self) -> list[SimWorker]:
        """The workers that an API server would list, in no particular order."""
        present = [w for w in self.workers.values() if w.present]
        self.rng.shuffle(present)
        return present

    def create_worker(self, action: CreateWorker, storage: StorageConfig) -> None:
        """Idempotent by name; it runs after a while, and uses this storage."""
        there = self.workers.get(action.name)
        if self.deleted or (there is not None and there.present):
            return
        if there is not None:
            self.gone.append(there)
        agent = SimAgent(self, name=action.name, slot=action.slot, created_for=action.created_for)
        agent.wrong_keys = self.wrong_secret
        self.workers[action.name] = worker = SimWorker(
            name=action.name,
            slot=action.slot,
            created_for=action.created_for,
            template_hash=action.template_hash,
            storage=storage,
            created=self.clock.now,
            agent=agent,
        )
        self.changed()
        self.clock.after(self.rng.uniform(0.1, 2.0), lambda: self._run(worker))

    def _run(self, worker: SimWorker) -> None:
        if not worker.present or worker.phase != "Pending":
            return
        if not self.room.take(self.config.uid, worker.name):
            self.judge.disturbed(ASKED_AGAIN)
            if worker.homeless_since is None:
                worker.homeless_since = self.clock.now
                self.changed()
            self.clock.after(self.rng.uniform(0.5, 2.0), lambda: self._run(worker))
            return
        if self.start_trouble is not None:
            self.judge.not_started(worker.agent, self.config.start_timeout.total_seconds())
        if self.start_trouble in ("ImagePull", "ConfigError"):
            worker.lack(self.start_trouble, self.clock.now)
            self.clock.after(ASKED_AGAIN, lambda: self._run(worker))
        else:
            worker.phase, worker.running_since = "Running", self.clock.now
            self._begin(worker.agent)
        self.changed()

    def _begin(self, agent: SimAgent) -> None:
        """What runs in a worker begins, or fails to."""
        if self.start_trouble is None:
            self.agent_runs(agent)
        elif self.start_trouble == "Ends":
            self.clock.after(ENDS_AT_ONCE, lambda: self.agent_left(agent, code=1))

    def delete_worker(
        self, name: str, *, only: SimAgent | None = None, force: bool = False
    ) -> None:
        """What runs in it dies; the object goes, once its node has confirmed it.

        `only`: unless another worker has its name by now.
        """
        worker = self.workers.get(name)
        if worker is None or not worker.present or only not in (None, worker.agent):
            return
        if worker.phase == "Running" and worker.agent.alive and self.grace and not force:
            self._let_end(worker)
            return
        self.end_agent(worker.agent)
        if worker.dark and not force:
            worker.deleting = True
        else:
            worker.present = False
            worker.phase = "Ended"
        self.changed()

    def _let_end(self, worker: SimWorker) -> None:
        """SIGTERM; its end is seen, and then its object goes."""
        if not worker.deleting:
            worker.deleting = worker.notice_known = True
            worker.agent.terminated(self.grace)
            self.clock.after(self.grace, lambda: self.remove(worker))
            self.changed()

    def remove(self, worker: SimWorker) -> None:
        """Its time is over."""
        if not worker.present:
            return
        self.end_agent(worker.agent)
        if worker.phase != "Ended":
            worker.phase, worker.exit_code = "Ended", 137
        self.clock.after(self.rng.uniform(0.1, 1.0), lambda: self._forget(worker))
        self.changed()

    def _forget(self, worker: SimWorker) -> None:
        worker.present = False
        self.changed()

    def end_agent(self, agent: SimAgent) -> None:
        """It dies with all its processes."""
        agent.end_processes(KILLED)
        agent.alive = False
        self.room.free(self.config.uid, agent.name)

    def gang(self, attempt: int) -> list[SimAgent]:
        """All agents that ever started this attempt, dead ones too."""
        known = (*self.workers.values(), *self.gone)
        return [w.agent for w in known if w.agent.attempt == attempt]

    def reached(self, address: str, secret: str) -> SimAgent | None:
        """The agent that serves there, if it lives."""
        agents = (worker.agent for worker in self.workers.values())
        return next((a for a in agents if a.alive and (a.name, a.id) == (address, secret)), None)

    def refusal(self) -> RefusedReason | None:
        """Why no worker can be created now."""
        full = self.quota is not None and len(self.present()) >= self.quota
        refused = self.refusing or ("QuotaExceeded" if full else None)
        if refused is not None:
            self.judge.disturbed(ASKED_AGAIN)
        return refused

    # ------------------------------------------------------------------ what agents do

    @abstractmethod
    def agent_runs(self, agent: SimAgent) -> None:
        """An agent begins to speak."""

    @abstractmethod
    def send(self, agent: SimAgent) -> None:
        """An agent has news."""

    def agent_left(self, agent: SimAgent, *, code: int) -> None:
        """The agent ended by itself."""
        worker = self.workers[agent.name]
        agent.alive = False
        self.room.free(self.config.uid, agent.name)
        if worker.agent is agent and worker.phase != "Ended":
            worker.phase, worker.exit_code = "Ended", code
            worker.loss, worker.lost_at = worker.last_words, self.clock.now
            self.changed()
            if worker.deleting:
                self.clock.after(self.rng.uniform(0.1, 1.0), lambda: self._forget(worker))

    def resolve(self, agent: SimAgent, request: ResolveRequest) -> Resolution:
        """An agent claims the resume point of an attempt, or shows that it can read it."""
        if request.look and self.store.available:
            agents = (worker.agent for worker in self.workers.values())
            beats = any(a.alive and not a.slot and 0 < a.attempt < request.attempt for a in agents)
            owner: OwnerLife = "Moves" if beats else "Still"
            return Resolution(attempt=request.attempt, outcome="Looked", owner=owner)
        resolution = self.store.resolve(
            request, generation=agent.generation, wrong_keys=agent.wrong_keys
        )
        if resolution.outcome == "Misconfigured":
            self.judge.refused(agent, ASKED_AGAIN)
        elif resolution.outcome == "Resolved" and not request.proof:
            self.judge.resolved(request.attempt, resolution.resume)
        return resolution

    def reads_well(self, agent: SimAgent, checkpoint: CheckpointId) -> bool:
        """What an agent reads of a checkpoint is what was written."""
        return agent.id not in self.misreading and not self.store.checkpoints[checkpoint].damaged

    def set_aside(self, agent: SimAgent, checkpoint: CheckpointId) -> None:
        """An agent records that a checkpoint is damaged."""
        self.judge.set_aside(agent, checkpoint)
        self.store.bad.add(checkpoint)

    def finish(self) -> None:
        """An agent marks the storage finished."""
        self.store.finished = True

    @property
    def last_step(self) -> int:
        """The one with which the script ends."""
        return self.total_steps if self.finished_at is None else self.finished_at

    def apart(self, attempt: int) -> frozenset[int]:
        """Ranks of an attempt that do not find the others."""
        if attempt not in self._apart:
            everyone = frozenset(range(self.config.replicas * self.config.processes_per_worker))
            lost = (self.unmet_ranks & everyone) or everyone
            self._apart[attempt] = lost if self.unmet else frozenset()
            self.unmet = max(0, self.unmet - 1)
        return self._apart[attempt]

    def returns(self, attempt: int) -> bool:
        """Whether the script returns at once in this attempt, as if there were nothing to do."""
        if attempt not in self._returns:
            self._returns[attempt] = self.returning > 0
            self.returning = max(0, self.returning - 1)
        return self._returns[attempt]

    def fails(self, agent: SimAgent, *causes: Cause) -> None:
        """A process is about to fail, through no fault of a process that has failed before."""
        self.judge.struck(agent, *causes, lasting=False)

    def committed(self, checkpoint: CheckpointId) -> None:
        """An agent has written a manifest."""
        self.judge.committed(checkpoint)

    def check_start(self, agent: SimAgent, order: Start) -> None:
        """An agent is about to start an attempt."""
        self.judge.started(agent, order)

    def save_committed(self, agent: SimAgent, call: int) -> None:
        """A worker's ranks will be told to save at this call."""
        self.judge.save_committed(agent, call)
