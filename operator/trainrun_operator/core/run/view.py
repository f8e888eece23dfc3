"""The view of one pass: the ordered observation, with the questions that all stages ask.

Layer: core. Made once per pass; every stage of the planner takes it as its first argument.
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
"""Peers that miss at most this many steps of average length still count as stepping."""

A_MOMENT = timedelta(milliseconds=10)
"""Added to a deadline, so that the pass comes after it."""

MASS_SILENCE_FACTOR = 3
"""Heartbeat timeouts to wait if most agents are silent at once: then the fault is likely ours."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The observation and the configuration of one pass."""

    observation: Observation
    config: RunConfig
    cached: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Answers to questions marked with `once`."""

    @property
    def status(self) -> TrainRunStatus:
        """The status as last written."""
        return self.observation.status

    @property
    def record(self) -> StartRecord | None:
        """The start record of the newest attempt, running or ended; None: it has not started."""
        return self.status.start_record

    @property
    def running(self) -> StartRecord | None:
        """The start record of the newest attempt, unless it was given up; None: no attempt runs.

        An attempt that ended with the verdict still has it: see `state` for that difference.
        """
        return None if self.status.ending is not None else self.status.start_record

    @property
    def next_attempt(self) -> int:
        """The number that the next attempt gets."""
        return self.status.attempt + 1

    @cached_property
    def highest_attempt(self) -> int:
        """The highest attempt that an agent has started, or that we have ordered one to start.

        Above that of the status, the status is stale, and our write conflicts; or an older status
        was restored, and the attempt that the agents run is unknown to us and starts again.
        """
        attempts = (worker.agent.attempt for worker in self.workers if worker.agent is not None)
        return max((self.observation.ordered, *attempts))

    @cached_property
    def workers(self) -> tuple[WorkerFact, ...]:
        """All workers in a fixed order, whatever the order in the observation."""
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
        """The newest attempt's worker of each slot; None: its object is gone."""
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
        """It is the worker that was started, not a later one of the same name."""
        if worker.agent is None:
            return True
        return worker.agent.agent.startswith(record.identity(worker.slot))

    @cached_property
    def agents(self) -> tuple[AgentState | None, ...]:
        """For each slot of the roster its agent's state, if it has joined the newest attempt."""
        return tuple(self.joined(worker) for worker in self.roster)

    @cached_property
    def heard(self) -> tuple[AgentState, ...]:
        """The agents that have joined, in the order of slots."""
        return tuple(agent for agent in self.agents if agent is not None)

    @property
    def ever_heard(self) -> tuple[AgentState, ...]:
        """The same, and the last states of agents that are gone."""
        return (*self.heard, *self.last_words.values())

    @cached_property
    def last_words(self) -> Mapping[int, AgentState]:
        """By slot, the last state of agents of the newest attempt whose workers have vanished."""
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
        """Why no worker can be made from the current spec; "": one can."""
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
        """Its agent has been silent for too long, and no fault of ours explains that."""
        if not self._quiet(worker):
            return False
        timeouts = MASS_SILENCE_FACTOR if self._mostly_quiet else 1
        return self._beyond(worker, timeouts) and not self._overtaken(worker)

    def is_cut_off(self, worker: WorkerFact) -> bool:
        """Neither it nor its node answers: no order can reach it, and no result can arrive."""
        if not worker.suspect_node or worker.phase == "Ended":
            return False
        if worker.agent is not None:
            return self.is_silent(worker)
        all_overdue = all(self.is_overdue(other) for other in self._listened)
        timeouts = MASS_SILENCE_FACTOR if all_overdue else 1
        limit = timeouts * self.config.heartbeat_timeout
        return worker.age > limit and self._beyond(worker, timeouts)

    def is_unreachable(self, worker: WorkerFact) -> bool:
        """Its node can no longer end it."""
        known = worker.loss is not None and worker.loss.unreachable
        return known or self.is_cut_off(worker)

    @cached_property
    def _listened(self) -> tuple[WorkerFact, ...]:
        return tuple(w for w in self.workers if w.phase == "Running" and w.agent is not None)

    @cached_property
    def _mostly_quiet(self) -> bool:
        """Most agents are silent without explanation, or all are."""
        # A common fault silences each agent since its own last heartbeat.
        quiet = [w for w in self._listened if self.is_overdue(w)]
        unexplained = [w for w in quiet if not w.suspect_node]
        return len(quiet) == len(self._listened) or 2 * len(unexplained) > len(self._listened)

    @property
    def next_silence(self) -> timedelta:
        """Until a worker that answers now counts as silent, if it sends nothing more: a pass is due
        then, since silence wakes no pass."""
        limit, listening = self.config.heartbeat_timeout, self.observation.listening_for
        silences = (min(w.silent_for, listening) for w in self._listened)
        left = (limit - silence for silence in silences if silence <= limit)
        return min(left, default=limit) + A_MOMENT

    def _quiet(self, worker: WorkerFact) -> bool:
        return worker.agent is not None and self._beyond(worker)

    def is_unknown(self, worker: WorkerFact) -> bool:
        """It has run for longer than this operator listens, without a heartbeat: it may have called
        the previous operator, so its silence proves nothing."""
        never_heard = worker.agent is None and not worker.unreadable
        return never_heard and worker.ran_for > self.observation.listening_for

    @property
    def unheard(self) -> tuple[WorkerFact, ...]:
        """Workers of the running attempt whose agents have been silent for too long."""
        there = (w for w in self.roster if w is not None and self.running is not None)
        return tuple(
            w
            for w in there
            if w.phase == "Running" and self._beyond(w) and (self._quiet(w) or self.is_unknown(w))
        )

    def is_overdue(self, worker: WorkerFact) -> bool:
        """Its heartbeat is late: agents send one at least every third of the timeout."""
        return self._beyond(worker, 0.5)

    def is_unreadable(self, worker: WorkerFact) -> bool:
        """Its agent has sent a heartbeat recently, which cannot be read."""
        return bool(worker.unreadable) and not self._beyond(worker)

    def _beyond(self, worker: WorkerFact, timeouts: float = 1) -> bool:
        """It has been silent for longer than this many heartbeat timeouts."""
        limit = timeouts * self.config.heartbeat_timeout
        return min(worker.silent_for, self.observation.listening_for) > limit

    def _overtaken(self, worker: WorkerFact) -> bool:
        """Its peers' steps still advance beyond its last one: it must be computing with them.

        Not if its node is silent, too: ranks need not depend on each other, and independent ones
        would keep a dead worker forever.
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
        """It has reported a step recently: a peer that is ahead but stands still proves nothing.

        Recently: within the heartbeat timeout, or within a few steps where these take longer.
        """
        if agent is None or agent.stepped is None:
            return False
        slow = min(SLOW_STEPS * self._step_time(agent), self.config.start_timeout)
        limit = max(self.config.heartbeat_timeout, slow)
        return timedelta(seconds=agent.stepped) <= limit

    def _step_time(self, agent: AgentState) -> timedelta:
        """The average duration of its steps in this attempt."""
        point = self.running.resume_point if self.running is not None else None
        begin = point.step if point is not None else 0
        took = max((agent.first_step or 0.0) - (agent.stepped or 0.0), 0.0)
        return timedelta(seconds=took) / max((max_step(agent) or 0) - begin - 1, 1)

    @cached_property
    def speaker(self) -> AgentState | None:
        """The agent whose progress is the run's: of the lowest slot that answers."""
        # min() is stable: the lowest slot wins among those that answer, else among all.
        there = [w for w in self.roster if w is not None and self.joined(w) is not None]
        return self.joined(min(there, key=self._quiet, default=None))


def once(question: Callable[[View], T]) -> Callable[[View], T]:
    """Cache the answer to a question about the whole gang for the rest of the pass."""

    @wraps(question)
    def answer(view: View) -> T:
        if question not in view.cached:
            view.cached[question] = question(view)
        return cast("T", view.cached[question])

    return answer


def max_step(agent: AgentState | None) -> int | None:
    """The highest step that the worker's processes reported in their attempt."""
    steps = [step for step in agent.steps if step is not None] if agent is not None else []
    return max(steps, default=None)


def notice_of(worker: WorkerFact) -> Notice | None:
    """The notice that the worker will be taken away, from the world or from its agent."""
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
    """` (and 2 other workers)`, after the name of the first of `number`; "": there is one."""
    return f" (and {counted(number - 1, 'other worker')})" if number > 1 else ""
