"""What must hold at every moment of every simulated life.

Layer: worlds. The judge knows the truth (what really died, what was really committed) and compares
it with what the operators write and what the agents are told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.protocol import CheckpointId, Start
from trainrun_operator.api.status import IDENTITY_LENGTH
from trainrun_operator.core.answers import start_order
from trainrun_operator.core.plan import DeleteWorker
from trainrun_operator.core.view import worker_name

if TYPE_CHECKING:
    from trainrun_operator.api.status import Incident, StartRecord, TrainRunStatus
    from trainrun_operator.core.observation import Observation
    from trainrun_operator.core.plan import Plan
    from trainrun_operator.worlds.simulated.agent import SimAgent
    from trainrun_operator.worlds.simulated.world import SimWorld


MAX_STATUS = 16 * 1024
"""Bytes that a status may have."""


class Judge:
    """Collects every violation with the virtual time at which it happened."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.mistakes: list[str] = []
        self.records: dict[int, StartRecord] = {}
        self.settled: dict[int, Incident] = {}
        self.losses: set[int] = set()
        """Attempts in which something really was lost while they ran."""
        self.victims: set[tuple[int, int]] = set()
        """Workers, by slot and creation, that something has happened to."""
        self.ended_uncounted: set[int] = set()
        self.commits: dict[CheckpointId, float] = {}
        self.claims: dict[int, tuple[float, CheckpointId | None]] = {}
        self.saves: dict[int, int] = {}
        self.verdict: str | None = None
        self.heartbeats_lost = world.weather.loss > 0

    def _wrong(self, what: str) -> None:
        self.mistakes.append(f"at {self.world.clock.now:.2f} s: {what}")

    # ------------------------------------------------------------------ the written status

    def status_written(self, old: TrainRunStatus, new: TrainRunStatus, *, transition: bool) -> None:
        """Every accepted write, in order."""
        self._counters_only_grow(old, new)
        self._start_record(new)
        self._incidents(old, new)
        self._verdict_stays(old, new)
        if new.json_size() >= MAX_STATUS:
            self._wrong(f"a status of {new.json_size()} bytes was written")
        if not transition and _durable(old) != _durable(new):
            self._wrong("a write for display changed what decisions are based on")

    def _counters_only_grow(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        pairs = (
            ("failures.counted", old.failures.counted, new.failures.counted),
            ("failures.preemptions", old.failures.preemptions, new.failures.preemptions),
            ("attempt", old.attempt, new.attempt),
            ("restarts", old.restarts, new.restarts),
        )
        for name, before, after in pairs:
            if after < before:
                self._wrong(f"{name} went down from {before} to {after}")

    def _start_record(self, new: TrainRunStatus) -> None:
        record = new.start_record
        if record is None:
            return
        known = self.records.setdefault(record.attempt, record)
        if known != record:
            self._wrong(f"attempt {record.attempt} has two start records")
        claim = self.claims.get(record.attempt)
        point = record.resume_point
        told = CheckpointId(attempt=point.attempt, step=point.step) if point else None
        if claim is None or claim[1] != told:
            self._wrong(f"start record {record.attempt} hands out {told}, the store has {claim}")

    def _incidents(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        for incident in new.incidents[-2:]:
            known = self.settled.get(incident.attempt)
            if known is None:
                self.settled[incident.attempt] = incident
            elif (known.cause, known.budget, known.counted) != (
                incident.cause,
                incident.budget,
                incident.counted,
            ):
                self._wrong(f"the settled incident of attempt {incident.attempt} changed")
        charged = [i for i in self.settled.values() if i.counted]
        counted = sum(1 for i in charged if i.budget == "failures")
        preempted = sum(1 for i in charged if i.budget == "preemptions")
        if (new.failures.counted, new.failures.preemptions) != (counted, preempted):
            self._wrong(f"{new.failures} does not match the incidents {sorted(self.settled)}")
        ending = new.ending
        if ending is not None and ending.kind != "Incident" and old.ending is None:
            self.ended_uncounted.add(ending.attempt)

    def _verdict_stays(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        if old.finished and (
            old.is_true("Complete") != new.is_true("Complete")
            or old.is_true("Failed") != new.is_true("Failed")
            or old.start_record != new.start_record
        ):
            self._wrong("a finished run did not stay finished")
        if new.is_true("Failed") and not old.finished:
            failed = new.condition("Failed")
            self.verdict = failed.reason if failed is not None else ""
            limit = self.world.config.max_failures
            if self.verdict == "MaxFailuresExceeded" and new.failures.counted != limit + 1:
                self._wrong(f"failed with {new.failures.counted} counted and a limit of {limit}")
        used = new.failures.counted
        limit = self.world.config.max_failures
        if limit >= 0 and used > limit and not new.finished:
            self._wrong(f"{used} failures counted, {limit} allowed, and the run goes on")

    # ------------------------------------------------------------------ plans and orders

    def plan_made(self, observation: Observation, plan: Plan) -> None:
        """Before a plan is acted on."""
        if plan.transition and (plan.actions or plan.answers):
            self._wrong("a plan changes the status and acts in one pass")
        if observation.status.finished and any(
            isinstance(answer.order, Start) for answer in plan.answers.values()
        ):
            self._wrong("a finished run starts something")
        self._roster_stays(observation, plan)

    def _roster_stays(self, observation: Observation, plan: Plan) -> None:
        """A worker of a running attempt is deleted only after an incident has ended the attempt."""
        status = observation.status
        record = status.start_record
        if record is None or status.ending is not None or status.finished:
            return
        working = {
            worker_name(self.world.config, slot=slot, created_for=number)
            for slot, number in enumerate(record.roster)
        }
        for action in plan.actions:
            if isinstance(action, DeleteWorker) and action.name in working:
                self._wrong(f"{action.name} is deleted while attempt {record.attempt} runs")

    def started(self, agent: SimAgent, order: Start) -> None:
        """An agent accepts a start order."""
        record = self.records.get(order.attempt)
        if record is None:
            self._wrong(f"attempt {order.attempt} was ordered without a start record")
        elif start_order(record) != replace(order, source=None):
            self._wrong(f"an order of attempt {order.attempt} differs from its start record")
        elif (record.roster[agent.slot], record.identity(agent.slot)) != (
            agent.created_for,
            agent.id[:IDENTITY_LENGTH],
        ):
            self._wrong(f"{agent.name} started attempt {order.attempt} and is not in its roster")
        if order.attempt in agent.started:
            self._wrong(f"{agent.name} started attempt {order.attempt} twice")

    def save_committed(self, agent: SimAgent, call: int) -> None:
        """The call answered with yes is the same on every rank of an attempt."""
        known = self.saves.setdefault(agent.attempt, call)
        if known != call:
            self._wrong(f"attempt {agent.attempt} saves at calls {known} and {call}")
        for peer in self.world.gang(agent.attempt):
            lives = peer.training is not None and peer.training.alive
            if lives and call not in (peer.vote.prepared, peer.vote.committed):
                self._wrong(f"{agent.name} saves at call {call}, {peer.name} has not prepared it")

    # ------------------------------------------------------------------ the store

    def committed(self, checkpoint: CheckpointId) -> None:
        """A manifest was written."""
        self.commits.setdefault(checkpoint, self.world.clock.now)

    def resolved(self, attempt: int, resume: CheckpointId | None) -> None:
        """The store handed out a resume point."""
        now = self.world.clock.now
        known = self.claims.setdefault(attempt, (now, resume))
        if known[1] != resume:
            self._wrong(f"attempt {attempt} resolved to {known[1]} and to {resume}")
        if known[0] != now:
            return
        store = self.world.store
        entry = store.checkpoints.get(resume) if resume is not None else None
        if resume is not None and (
            entry is None or resume in store.bad or len(entry.parts) < entry.workers
        ):
            self._wrong(f"attempt {attempt} resumes from {resume}, which is incomplete or damaged")
        if resume is not None and self._was_left_behind(resume, attempt):
            self._wrong(f"attempt {attempt} resumes from {resume}, which is fenced")
        newest = self._newest_effective(attempt)
        if newest is not None and (resume is None or resume < newest):
            self._wrong(f"attempt {attempt} resumes from {resume} although {newest} was committed")

    def _newest_effective(self, attempt: int) -> CheckpointId | None:
        """Committed before any later attempt claimed something older, and not damaged."""
        return max(
            (
                c
                for c, at in self.commits.items()
                if c not in self.world.store.bad
                and not any(
                    c.attempt < later < attempt and claimed <= at
                    for later, (claimed, _) in self.claims.items()
                )
                and not self._was_left_behind(c, attempt)
            ),
            default=None,
        )

    def _was_left_behind(self, checkpoint: CheckpointId, attempt: int) -> bool:
        """An attempt between it and this one has started from something older."""
        return any(
            checkpoint.attempt < later < attempt and (point is None or point < checkpoint)
            for later, (_, point) in self.claims.items()
        )

    # ------------------------------------------------------------------ the truth

    def real_loss(self, agent: SimAgent) -> None:
        """Something of a worker is lost now; it counts if the worker's attempt is running."""
        self.victims.add((agent.slot, agent.created_for))
        status = self.world.status
        running = status.start_record is not None and status.ending is None
        if running and agent.attempt == status.attempt and not status.finished:
            self.losses.add(agent.attempt)

    def _had_victim(self, attempt: int) -> bool:
        """A worker of its roster, or one that was to be in it, was struck before it started."""
        record = self.records.get(attempt)
        return record is None or bool(self.victims & set(enumerate(record.roster)))

    def closing(self) -> list[str]:
        """All violations, and what can only be said at the end."""
        final = self.world.status
        for attempt, incident in sorted(self.settled.items()):
            # A network that swallows heartbeats makes silence that nobody planned.
            real = attempt in self.losses or self.heartbeats_lost or self._had_victim(attempt)
            if incident.counted and not real:
                self._wrong(f"attempt {attempt} is charged with {incident.cause}; nothing was lost")
        for attempt in sorted(self.losses):
            last = attempt == final.attempt
            seen = attempt in self.settled or attempt in self.ended_uncounted
            if not seen and not last:
                self._wrong(f"the loss in attempt {attempt} was forgotten")
        starts = len(self.records)
        ended = len([a for a in self.records if a in self.settled or a in self.ended_uncounted])
        if starts - ended > 1:
            self._wrong(f"{starts} attempts were started and only {ended} have ended")
        return self.mistakes


def _durable(status: TrainRunStatus) -> tuple[object, ...]:
    return (
        status.attempt,
        status.start_record,
        status.ending,
        status.save_asked,
        status.fruitless,
        status.restarts,
        status.failures.counted,
        status.failures.preemptions,
        status.incident is None,
        status.finished,
    )
