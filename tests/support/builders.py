"""Scenes of a run for tests of the core: `a_run(replicas=3).running(1).with_exit(0, code=1)`.

Frozen data, no mocks: a scene is an observation and a configuration; every method returns a new
scene, `plan` is what the core decides about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic.alias_generators import to_snake

from trainrun.contract.agent_state import (
    AgentState,
    Committed,
    Held,
    Notice,
    Offer,
    Outcome,
    ProcessExit,
    Resolution,
    SaveVote,
)
from trainrun.contract.answer import Answer, Hold
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import StagedStep
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.api.run.status import Condition, ConditionStatus, StartRecord, TrainRunStatus
from trainrun_operator.api.run.status_parts import (
    Cause,
    Ending,
    EndingKind,
    EvidenceAsked,
    Incident,
    SaveAsked,
)
from trainrun_operator.core.run.boundary import (
    NAMELESS,
    Installation,
    NodeStrike,
    Observation,
    Plan,
    Refused,
    WorkerFact,
    WorkerLoss,
)
from trainrun_operator.core.run.causes import BUDGETS, Limits
from trainrun_operator.core.run.config import RunConfig, config_of
from trainrun_operator.core.run.drain import to_flush
from trainrun_operator.core.run.incidents.attribution import incident_of
from trainrun_operator.core.run.incidents.losses import Loss
from trainrun_operator.core.run.planner import decide
from trainrun_operator.core.run.view import View, worker_name

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


BY_DEFAULT = config_of(
    TrainRun.model_validate(
        {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "metadata": {"name": "run", "uid": "uid"},
            "spec": {
                "workers": {
                    "template": {
                        "spec": {"containers": [{"name": "w", "image": "i", "command": ["c"]}]}
                    }
                },
                "storage": {"uri": "s3://bucket"},
            },
        }
    )
)
"""What decisions know of a TrainRun that says nothing but what it must."""


def a_config(**fields: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "name": "run",
        "uid": "uid",
        "replicas": 2,
        "template_hash": "t1",
        "checkpoints_uri": "s3://bucket/run/checkpoints",
    }
    before = fields.pop("limits", BY_DEFAULT.limits)
    return replace(BY_DEFAULT, **limited(defaults | fields, before))


def limited(fields: dict[str, Any], before: Limits) -> dict[str, Any]:
    """`max_failures=1` and its like as what they limit."""
    names = {name: to_snake(budget.field) for name, budget in BUDGETS.items()}
    asked = {name: fields.pop(field) for name, field in names.items() if field in fields}
    limits = {name: limit for name, limit in {**before, **asked}.items() if limit is not None}
    return {**fields, "limits": limits}


NOW = Held(attempt=-1)
"""Stands in a scene for the Hold of now, which an agent that has taken part in nothing yet has."""


def an_agent(slot: int = 0, created_for: int = 1, **fields: Any) -> AgentState:
    """An idle agent that has not taken part in anything yet."""
    defaults: dict[str, Any] = {
        "run": "run",
        "run_uid": "uid",
        "slot": slot,
        "worker": f"run-{slot}-{created_for}",
        "created_for": created_for,
        "agent": f"{slot:02d}{created_for:02d}-identity",
        "sequence": 1,
        "node": f"node-{slot}",
        "held": NOW if not fields.get("attempt") else Held(),
    }
    return AgentState(**(defaults | fields))


def a_worker(slot: int = 0, created_for: int = 1, **fields: Any) -> WorkerFact:
    """A running worker whose idle agent was heard a second ago."""
    defaults: dict[str, Any] = {
        "name": f"run-{slot}-{created_for}",
        "slot": slot,
        "created_for": created_for,
        "template_hash": "t1",
        "phase": "Running",
        "node": f"node-{slot}",
        "age": HOUR,
        "agent": an_agent(slot, created_for),
        "silent_for": seconds(1),
    }
    return WorkerFact(**(defaults | fields))


def a_loss(cause: Cause = Cause.APP_ERROR, **fields: Any) -> Loss:
    defaults: dict[str, Any] = {
        "slot": 0,
        "worker": "run-0-1",
        "message": "rank 0 exited with code 1: ValueError: bad batch",
    }
    return Loss(cause=cause, **(defaults | fields))


def an_incident(cause: Cause = Cause.APP_ERROR, *, attempt: int = 1, **fields: Any) -> Incident:
    loss = a_loss(cause)
    made = incident_of(loss, attempt=attempt, now=BEGIN)
    return replace(made, **fields)


MOST_WRITES = 6
"""Durable decisions that one scene may call for, one after the other."""


def assert_that_it_rests(scene: WorkerObservation, plan: Plan) -> None:
    """Once what the facts call for is written, the same facts call for no other write: else every
    pass would write, and none act. Holds for every scene that is decided about."""
    for _ in range(MOST_WRITES):
        if not plan.transition:
            break
        scene = replace(scene, status=plan.status)
        plan = decide(scene.observation, scene.config)
    assert not plan.transition, f"writes for ever: {plan.reason}: {plan.message}"
    scene = replace(scene, status=plan.status)
    again = decide(scene.observation, scene.config)
    assert not again.transition, f"written, and then: {again.reason}: {again.message}"
    assert again.status == plan.status, "what was written reads otherwise in the next pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObservation:
    """One moment of a run."""

    config: RunConfig
    status: TrainRunStatus
    workers: tuple[WorkerFact, ...] = ()
    now: datetime = BEGIN + HOUR
    listening_for: timedelta = HOUR
    generation: int = 1
    """Of the spec."""
    ordered: int = 0
    last_words: tuple[AgentState, ...] = ()
    ready_since: Mapping[str, datetime] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()
    strikes: tuple[NodeStrike, ...] = ()
    """Of other runs of the namespace."""
    installation: Installation = NAMELESS

    # ------------------------------------------------------------------ what the core makes of it

    @property
    def observation(self) -> Observation:
        return self._observed(self.held)

    def _observed(self, held: Held) -> Observation:
        """Where those agents that have `NOW` have this."""
        return Observation(
            now=self.now,
            generation=self.generation,
            status=self.status,
            workers=self._heard(held),
            listening_for=self.listening_for,
            ordered=self.ordered,
            last_words=self.last_words,
            ready_since=self.ready_since,
            refused=self.refused,
            strikes=self.strikes,
            installation=self.installation,
        )

    def _heard(self, held: Held) -> tuple[WorkerFact, ...]:
        """The workers, with what those have that have `NOW`."""
        return tuple(
            replace(w, agent=replace(w.agent, held=held if not w.agent.attempt else Held()))
            if w.agent is not None and w.agent.held == NOW
            else w
            for w in self.workers
        )

    @property
    def view(self) -> View:
        return View(observation=self.observation, config=self.config)

    @property
    def plan(self) -> Plan:
        plan = decide(self.observation, self.config)
        assert_that_it_rests(self, plan)
        return plan

    def answer(self, slot: int, created_for: int = 1) -> Answer:
        return self.plan.answers[worker_name(self.config, slot=slot, created_for=created_for)]

    def hold(self, slot: int, created_for: int = 1) -> Hold:
        order = self.answer(slot, created_for).order
        assert isinstance(order, Hold), order
        return order

    def after(self, *plans: Plan, passed: float = 0.0) -> WorkerObservation:
        """The scene once these plans' statuses are written, and so many seconds later."""
        status = plans[-1].status if plans else self.plan.status
        workers = tuple(replace(w, age=w.age + seconds(passed)) for w in self.workers)
        return replace(
            self,
            status=status,
            workers=workers,
            now=self.now + seconds(passed),
            listening_for=self.listening_for + seconds(passed),
        )

    # ------------------------------------------------------------------ the run

    def without_backoff(self) -> WorkerObservation:
        """The backoff of the ending is over."""
        ending = self.status.ending
        if ending is None:
            return self
        return self.with_status(ending=replace(ending, not_before=None))

    def with_config(self, **fields: Any) -> WorkerObservation:
        return replace(self, config=replace(self.config, **limited(fields, self.config.limits)))

    def edited(self, **fields: Any) -> WorkerObservation:
        """Its user has changed the spec."""
        return replace(self.with_config(**fields), generation=self.generation + 1)

    def with_status(self, **fields: Any) -> WorkerObservation:
        return replace(self, status=replace(self.status, **fields))

    def seen_by(self, installation: Installation, *, held_by: str = "") -> WorkerObservation:
        """By an operator of this installation; the status names this holder."""
        return replace(self, installation=installation).with_status(holder=held_by)

    def listening(self, number: float) -> WorkerObservation:
        """An operator that can hear agents for so many seconds."""
        return replace(self, listening_for=seconds(number))

    def with_condition(
        self,
        type_: str,
        status: ConditionStatus,
        reason: str,
        *,
        ago: float = 0.0,
        message: str = "",
    ) -> WorkerObservation:
        mark = Condition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=self.now - seconds(ago),
        )
        return self.with_status(conditions=(*self.status.conditions, mark))

    # ------------------------------------------------------------------ attempts

    def asked_for_evidence(self, *, ago: float = 10.0) -> WorkerObservation:
        """It stands still, and its agents were asked so many seconds ago where."""
        asked = EvidenceAsked(attempt=self.status.attempt, number=1, time=self.now - seconds(ago))
        return self.with_status(evidence_asked=asked)

    def running(
        self, attempt: int = 1, *, resume: tuple[int, int] | None = None
    ) -> WorkerObservation:
        """`attempt` runs on all workers; `resume` is (attempt, step)."""
        slots = range(self.config.replicas)
        agents = [
            an_agent(slot, phase="Running", attempt=attempt, steps=(10,), spawned=60.0)
            for slot in slots
        ]
        record = StartRecord(
            attempt=attempt,
            roster=tuple(1 for _ in slots),
            agents="".join(agent.agent[:4] for agent in agents),
            world_size=self.config.world_size,
            resume_point=CheckpointId(attempt=resume[0], step=resume[1]) if resume else None,
            master_addr="10.0.0.1",
            master_port=20000,
            template_hash="t1",
            time=self.now - seconds(60),
        )
        workers = tuple(a_worker(slot, agent=agent) for slot, agent in enumerate(agents))
        begun = self.with_status(attempt=attempt, start_record=record, ending=None)
        return replace(begun, workers=workers)

    def ended(
        self,
        incident: Incident | None = None,
        *,
        kind: EndingKind = "Incident",
        ago: float = 1.0,
        **fields: Any,
    ) -> WorkerObservation:
        """The newest attempt has been given up so many seconds ago; its workers are idle."""
        scene = self.ended_with(incident, kind=kind, ago=ago, **fields)
        for slot in range(self.config.replicas):
            scene = scene.with_agent(slot, phase="Idle")
        return scene

    def ended_with(
        self,
        incident: Incident | None,
        *,
        kind: EndingKind = "Incident",
        ago: float = 1.0,
        **fields: Any,
    ) -> WorkerObservation:
        """The newest attempt has been given up; its workers are as they were."""
        ending = Ending(
            attempt=self.status.attempt, kind=kind, time=self.now - seconds(ago), **fields
        )
        return self.with_status(ending=ending, incident=incident)

    def resolved(
        self,
        resume: tuple[int, int] | None = None,
        *,
        outcome: Outcome = "Resolved",
        offer: bool = True,
        **fields: Any,
    ) -> WorkerObservation:
        """Slot 0's agent has an answer of the store, and offers a port; the others can read it."""
        attempt = self.status.attempt + 1
        found = Resolution(
            attempt=attempt,
            outcome=outcome,
            resume=CheckpointId(attempt=resume[0], step=resume[1]) if resume else None,
            **fields,
        )
        port = Offer(attempt=attempt, address="10.0.0.1", port=20000 + attempt)
        made = port if offer else None
        scene = self.with_agent(0, resolution=found, offer=made, held=self.held)
        if outcome != "Resolved":
            return scene
        read = Resolution(attempt=attempt, outcome=outcome, resume=found.resume)
        workers = tuple(
            replace(w, agent=replace(w.agent, resolution=read)) if w.slot and w.agent else w
            for w in scene.workers
        )
        return replace(scene, workers=workers)

    def proven(
        self,
        slot: int,
        resume: tuple[int, int] | None = None,
        *,
        outcome: Outcome = "Resolved",
        message: str = "",
        age: float = 0.0,
    ) -> WorkerObservation:
        """What the store has told a worker that was to read this resume point."""
        point = CheckpointId(attempt=resume[0], step=resume[1]) if resume else None
        found = Resolution(
            attempt=self.status.attempt + 1,
            outcome=outcome,
            resume=point,
            message=message,
            age=age,
        )
        return self.with_agent(slot, resolution=found)

    def asked_to_save(
        self,
        reason: str = "a notice",
        *,
        ago: float = 5.0,
        writer_rank: int = 0,
        leaving: tuple[int, ...] | None = None,
    ) -> WorkerObservation:
        """Because of notices to the workers of `leaving`: of all slots, unless told otherwise."""
        asked = SaveAsked(
            attempt=self.status.attempt,
            reason=reason,
            time=self.now - seconds(ago),
            writer_rank=writer_rank,
            leaving=tuple(range(self.config.replicas)) if leaving is None else leaving,
        )
        return self.with_status(save_asked=asked)

    # ------------------------------------------------------------------ workers

    def waiting(self) -> WorkerObservation:
        """Every slot has a worker whose agent waits for its first order."""
        return replace(self, workers=tuple(map(a_worker, range(self.config.replicas))))

    def worker(self, slot: int) -> WorkerFact:
        return next(w for w in self.workers if w.slot == slot)

    def plus(self, *workers: WorkerFact) -> WorkerObservation:
        return replace(self, workers=(*self.workers, *workers))

    def refusing(self, *refused: Refused) -> WorkerObservation:
        """The world has refused these creations."""
        return replace(self, refused=refused)

    def without(self, slot: int) -> WorkerObservation:
        """The worker's object is gone."""
        return replace(self, workers=tuple(w for w in self.workers if w.slot != slot))

    def with_worker(self, slot: int, **fields: Any) -> WorkerObservation:
        new = replace(self.worker(slot), **fields)
        return replace(self, workers=tuple(new if w.slot == slot else w for w in self.workers))

    def with_agent(self, slot: int, **fields: Any) -> WorkerObservation:
        """Its agent says this; one that is idle has what it is told now, unless told otherwise."""
        agent = self.worker(slot).agent
        assert agent is not None
        scene = self.with_worker(slot, agent=replace(agent, **fields))
        if fields.get("phase") != "Idle" or "held" in fields:
            return scene
        return scene.with_agent(slot, held=scene.held)

    @property
    def held(self) -> Held:
        """The Hold of now, as an agent tells that it has it."""
        view = View(observation=self._observed(Held()), config=self.config)
        if view.running is not None:
            return Held()
        flush = to_flush(view)
        ending = self.status.ending
        return Held(
            attempt=view.next_attempt,
            number=self.status.resumptions,
            flush=flush,
            in_place=ending is not None and ending.in_place,
        )

    def with_all(self, **fields: Any) -> WorkerObservation:
        """All agents say this."""
        scene = self
        for slot in range(self.config.replicas):
            scene = scene.with_agent(slot, **fields)
        return scene

    def silent(self, slot: int, number: float) -> WorkerObservation:
        """Nothing was heard of its agent for so many seconds."""
        return self.with_worker(slot, silent_for=seconds(number))

    def unheard(self, slot: int) -> WorkerObservation:
        """This operator has never heard its agent."""
        return self.with_worker(slot, agent=None, silent_for=self.listening_for)

    def with_exit(self, slot: int, **fields: Any) -> WorkerObservation:
        """Its process has ended, with exit code 1 unless told otherwise."""
        if not {"signal", "code", "oom"} & set(fields):
            fields["code"] = 1
        if fields.get("oom"):
            fields["signal"] = 9
        end = ProcessExit(**({"rank": slot, "age": 1.0} | fields))
        return self.with_agent(slot, phase="Idle", exits=(end,))

    def all_done(self, **fields: Any) -> WorkerObservation:
        """All processes ended with exit code 0."""
        scene = self
        for slot in range(self.config.replicas):
            scene = scene.with_exit(slot, code=0, **fields)
        return scene

    def lost(self, slot: int, cause: Cause, message: str = "it is gone") -> WorkerObservation:
        """The world knows that the worker is gone."""
        known = WorkerLoss(cause=cause, message=message, age=seconds(2))
        return self.with_worker(slot, phase="Ended", loss=known)

    def noticed(self, slot: int, *, reason: str = "spot", **fields: Any) -> WorkerObservation:
        """The world and its agent were told that the worker will be taken away."""
        notice = Notice(**({"reason": reason, "age": 2.0} | fields))
        return self.with_agent(slot, notice=notice).with_worker(slot, notice=notice)

    def got_sigterm(self, slot: int) -> WorkerObservation:
        """Its agent was told to end, and nobody knows by whom."""
        return self.with_agent(slot, notice=Notice(reason="SIGTERM", age=2.0))

    def staged(self, slot: int, step: int, **fields: Any) -> WorkerObservation:
        """Its agent has files for the step, complete unless told otherwise."""
        agent = self.worker(slot).agent
        assert agent is not None
        entry = StagedStep(**({"step": step, "ranks": (slot,), "complete": True} | fields))
        return self.with_agent(slot, staged=(*agent.staged, entry))

    def staged_by_all(self, step: int, **fields: Any) -> WorkerObservation:
        scene = self
        for slot in range(self.config.replicas):
            scene = scene.staged(slot, step, **fields)
        return scene

    def committed(self, slot: int, step: int, **fields: Any) -> WorkerObservation:
        """Its agent knows that this step of the running attempt is committed."""
        made = CheckpointId(attempt=self.status.attempt, step=step)
        return self.with_agent(slot, committed=Committed(id=made, **fields))

    def voted(self, slot: int, **fields: Any) -> WorkerObservation:
        return self.with_agent(slot, save=SaveVote(**fields))


def a_run(**config: Any) -> WorkerObservation:
    """A run that was accepted an hour ago and has no workers yet."""
    return WorkerObservation(config=a_config(**config), status=TrainRunStatus(start_time=BEGIN))


def a_new_run(**config: Any) -> WorkerObservation:
    """A run that no operator has seen."""
    return WorkerObservation(config=a_config(**config), status=TrainRunStatus())
