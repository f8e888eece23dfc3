"""One pass seen from the core: the observation put in order, with the questions asked everywhere.

Layer: core. Made once per pass; every stage of the planner takes it as its only argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from trainrun.contract.agent_state import AgentState, Notice
from trainrun_operator.api.run.status import StartRecord, TrainRunStatus
from trainrun_operator.core.run.boundary import Observation, WorkerFact
from trainrun_operator.core.run.config import RunConfig

T = TypeVar("T")

STORE_AWAY = "StorageUnavailable"
"""Type of the problem of an agent whose uploads wait for the store."""

SLOW_STEPS = 5
"""So many steps of average length may be missing before peers count as standing still."""

A_MOMENT = timedelta(milliseconds=10)
"""Later than a deadline, so that the pass sees it passed."""

MASS_SILENCE_FACTOR = 3
"""Heartbeat timeouts to wait when most agents are silent at once: then the fault is likely ours."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The observation and the configuration of one pass."""

    observation: Observation
    config: RunConfig
    known: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Answers to questions that are asked `once`."""

    @property
    def status(self) -> TrainRunStatus:
        """The status as last written."""
        return self.observation.status

    @property
    def record(self) -> StartRecord | None:
        """The start record of the newest attempt, whether it runs or has ended."""
        return self.status.start_record

    @property
    def running(self) -> StartRecord | None:
        """The start record of the attempt that should run now; None: a gang is being gathered."""
        return None if self.status.ending is not None else self.status.start_record

    @property
    def next_attempt(self) -> int:
        """The number that the next attempt gets."""
        return self.status.attempt + 1

    @cached_property
    def highest_attempt(self) -> int:
        """The highest attempt that an agent has started, or that we have told one to start.

        Above that of the status: the status is stale, then what we write conflicts; or it was set
        back to an older one, then what the agents run is unknown to us and starts anew.
        """
        told = (worker.agent.attempt for worker in self.workers if worker.agent is not None)
        return max((self.observation.ordered, *told))

    @cached_property
    def workers(self) -> tuple[WorkerFact, ...]:
        """All workers in a fixed order, whatever order the world gave."""
        return tuple(
            sorted(self.observation.workers, key=lambda w: (w.slot, w.created_for, w.name))
        )

    @cached_property
    def roster_names(self) -> tuple[str, ...]:
        """The name of the newest attempt's worker of each slot."""
        creations = self.record.roster if self.record is not None else ()
        return tuple(
            worker_name(self.config, slot=slot, created_for=creation)
            for slot, creation in enumerate(creations)
        )

    @cached_property
    def roster(self) -> tuple[WorkerFact | None, ...]:
        """The newest attempt's worker of each slot; None where its object is gone."""
        if self.record is None:
            return ()
        by_name = {worker.name: worker for worker in self.workers}
        found = map(by_name.get, self.roster_names)
        return tuple(
            worker if worker is not None and self._is_original(worker, self.record) else None
            for worker in found
        )

    @staticmethod
    def _is_original(worker: WorkerFact, record: StartRecord) -> bool:
        """It is the worker that was started, not another one that got its name later."""
        if worker.agent is None:
            return True
        return worker.agent.agent.startswith(record.identity(worker.slot))

    @cached_property
    def agents(self) -> tuple[AgentState | None, ...]:
        """For each slot of the roster its agent's state, if it has joined the newest attempt."""
        return tuple(self.joined(worker) for worker in self.roster)

    @cached_property
    def heard(self) -> tuple[AgentState, ...]:
        """Of `agents` those that have joined, in the order of slots."""
        return tuple(agent for agent in self.agents if agent is not None)

    @property
    def ever_heard(self) -> tuple[AgentState, ...]:
        """The same, and those that are gone."""
        return (*self.heard, *self.last_words.values())

    @cached_property
    def last_words(self) -> Mapping[int, AgentState]:
        """What agents of the newest attempt told last whose workers have vanished, by slot."""
        record, roster = self.record, self.roster
        return {
            agent.slot: agent
            for agent in self.observation.last_words
            if record is not None
            and agent.attempt == self.status.attempt
            and agent.slot < len(roster)
            and roster[agent.slot] is None
            and agent.agent.startswith(record.identity(agent.slot))
        }

    @property
    def template_problem(self) -> str:
        """Why no worker can be made from the spec as it is now; "" where one can."""
        config, record = self.config, self.record
        if config.launch_problem:
            return config.launch_problem
        if record is None or record.world_size == config.world_size:
            return ""
        return (
            f"its command starts {config.world_size} processes, and the run has "
            f"{record.world_size}: the size of a run is fixed"
        )

    @property
    def all_done(self) -> bool:
        """All processes of the newest attempt ended by themselves, with exit code 0."""
        return bool(self.agents) and all(done(agent) for agent in self.agents)

    def joined(self, worker: WorkerFact | None) -> AgentState | None:
        """The agent's state if it runs or ran processes of the newest attempt."""
        agent = worker.agent if worker is not None else None
        return agent if agent is not None and agent.attempt == self.status.attempt else None

    def is_silent(self, worker: WorkerFact) -> bool:
        """Its agent has not been heard for too long, and that is not explained by us."""
        if not self._quiet(worker):
            return False
        timeouts = MASS_SILENCE_FACTOR if self._mostly_quiet else 1
        return self._beyond(worker, timeouts) and not self._overtaken(worker)

    def is_cut_off(self, worker: WorkerFact) -> bool:
        """Neither it nor its node is heard: whatever it waits for there will not come."""
        if not worker.suspect_node or worker.phase == "Ended":
            return False
        if worker.agent is not None:
            return self.is_silent(worker)
        nobody = all(self.is_overdue(other) for other in self._listened)
        timeouts = MASS_SILENCE_FACTOR if nobody else 1
        limit = timeouts * self.config.heartbeat_timeout
        return worker.age > limit and self._beyond(worker, timeouts)

    def is_unreachable(self, worker: WorkerFact) -> bool:
        """Nobody on its node can end it any more."""
        known = worker.loss is not None and worker.loss.unreachable
        return known or self.is_cut_off(worker)

    @cached_property
    def _listened(self) -> tuple[WorkerFact, ...]:
        return tuple(w for w in self.workers if w.phase == "Running" and w.agent is not None)

    @cached_property
    def _mostly_quiet(self) -> bool:
        """Most agents are silent and nothing explains it, or nobody is heard at all."""
        # What silences all at once silences each since its own last call.
        quiet = [w for w in self._listened if self.is_overdue(w)]
        unexplained = [w for w in quiet if not w.suspect_node]
        return len(quiet) == len(self._listened) or 2 * len(unexplained) > len(self._listened)

    @property
    def next_silence(self) -> timedelta:
        """Until a worker that is heard now will have been silent for too long, if it is not heard
        again: a pass is due then, for silence wakes nobody."""
        limit, listening = self.config.heartbeat_timeout, self.observation.listening_for
        silences = (min(w.silent_for, listening) for w in self._listened)
        left = (limit - silence for silence in silences if silence <= limit)
        return min(left, default=limit) + A_MOMENT

    def _quiet(self, worker: WorkerFact) -> bool:
        return worker.agent is not None and self._beyond(worker)

    def is_unknown(self, worker: WorkerFact) -> bool:
        """It has run for longer than this operator listens, and was never heard: whether it has
        called the one before nobody knows, so that its silence says nothing against it."""
        never_heard = worker.agent is None and not worker.unreadable
        return never_heard and worker.ran_for > self.observation.listening_for

    @property
    def unheard(self) -> tuple[WorkerFact, ...]:
        """Workers of the attempt that runs whose agents have not been heard for too long."""
        there = (w for w in self.roster if w is not None and self.running is not None)
        return tuple(
            w
            for w in there
            if w.phase == "Running" and self._beyond(w) and (self._quiet(w) or self.is_unknown(w))
        )

    def is_overdue(self, worker: WorkerFact) -> bool:
        """It should have called: agents do so every third of the timeout at the latest."""
        return self._beyond(worker, 0.5)

    def is_unreadable(self, worker: WorkerFact) -> bool:
        """What its agent says cannot be read, and it has said something lately."""
        return bool(worker.unreadable) and not self._beyond(worker)

    def _beyond(self, worker: WorkerFact, timeouts: float = 1) -> bool:
        """It has not been heard for longer than so many heartbeat timeouts."""
        limit = timeouts * self.config.heartbeat_timeout
        return min(worker.silent_for, self.observation.listening_for) > limit

    def _overtaken(self, worker: WorkerFact) -> bool:
        """Its peers' steps still advance beyond its last one: it must be computing with them.

        Not where its node is not heard either: ranks need not depend on each other, and those that
        do not would keep a dead one for ever.
        """
        own = max_step(worker.agent)
        if own is None or worker.suspect_node or self.running is None or worker not in self.roster:
            return False
        return any(
            (max_step(peer.agent) or 0) > own + 1
            and not self._quiet(peer)
            and self._steps_on(peer.agent)
            for peer in self.roster
            if peer is not None and self.joined(peer) is not None and not done(peer.agent)
        )

    def _steps_on(self, agent: AgentState | None) -> bool:
        """It has reported a step lately: one that is ahead and stands still proves nothing.

        Lately is the heartbeat timeout. Where steps take longer, some of them are waited for.
        """
        if agent is None or agent.stepped is None:
            return False
        slow = min(SLOW_STEPS * self._step_time(agent), self.config.start_timeout)
        limit = max(self.config.heartbeat_timeout, slow)
        return timedelta(seconds=agent.stepped) <= limit

    def _step_time(self, agent: AgentState) -> timedelta:
        """How long its steps took in this attempt, on average."""
        point = self.running.resume_point if self.running is not None else None
        begin = point.step if point is not None else 0
        took = max((agent.first_step or 0.0) - (agent.stepped or 0.0), 0.0)
        return timedelta(seconds=took) / max((max_step(agent) or 0) - begin - 1, 1)

    @cached_property
    def speaker(self) -> AgentState | None:
        """The agent whose progress is the run's: of the lowest slot that can be heard."""
        # min() is stable: the lowest slot wins among those that are heard, else among all.
        there = [w for w in self.roster if w is not None and self.joined(w) is not None]
        return self.joined(min(there, key=self._quiet, default=None))


def once(question: Callable[[View], T]) -> Callable[[View], T]:
    """A question about the whole gang that several stages ask: worked out once in a pass."""

    @wraps(question)
    def answer(view: View) -> T:
        if question not in view.known:
            view.known[question] = question(view)
        return cast("T", view.known[question])

    return answer


def max_step(agent: AgentState | None) -> int | None:
    """The highest step that the worker's processes reported in their attempt."""
    steps = [step for step in agent.steps if step is not None] if agent is not None else []
    return max(steps, default=None)


def notice_of(worker: WorkerFact) -> Notice | None:
    """The notice that the worker is going to be taken away, from the world or from its agent."""
    return worker.notice or (worker.agent.notice if worker.agent is not None else None)


def done(agent: AgentState | None) -> bool:
    """All processes of the worker ended by themselves, with exit code 0."""
    return (
        agent is not None
        and agent.phase != "Running"
        and bool(agent.exits)
        and all(end.well for end in agent.exits)
    )


def worker_name(config: RunConfig, *, slot: int, created_for: int) -> str:
    """`<run>-<slot>-<creation>`: deterministic, so that creating it twice is harmless."""
    return f"{config.name}-{slot}-{created_for}"


def counted(number: int, noun: str) -> str:
    """`1 worker`, `3 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def and_others(number: int) -> str:
    """` (and 2 other workers)`, after the name of the first of so many; "" where it is alone."""
    return f" (and {counted(number - 1, 'other worker')})" if number > 1 else ""
