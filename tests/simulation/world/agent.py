"""An agent as the protocol shows it, on virtual time.

Layer: simulation. What is to be done about an order, and which calls are voted for, follows from
the agent's own rules. Level-triggered: `reconcile` is called after every answer and change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.world.buddies import SimBuddy
from tests.simulation.world.carrying import SimCarrying
from tests.simulation.world.processes import Training
from tests.simulation.world.recording import SimRecording
from tests.simulation.world.saving import SimBallotBox, SimVotes
from tests.simulation.world.staging import SimStaging
from trainrun.agent import desired_state
from trainrun.agent.desired_state import ActualState, DesiredState
from trainrun.agent.training.tally import Tally
from trainrun.contract.agent_state import (
    Damaged,
    Notice,
    Offer,
    Phase,
    Problem,
    ProcessExit,
    Rechecked,
    Resolution,
    SaveVote,
    Suspect,
)
from trainrun.contract.answer import Answer, Exit, Hold, Recheck, ResolveRequest, Start

if TYPE_CHECKING:
    from tests.simulation.world.agent_surroundings import AgentSurroundings

LEAVES_AFTER = 0.3
"""Seconds after SIGTERM that an agent without work has gone."""

RESOLVE_AGAIN = 1.0
"""Seconds until a store that was away is asked again."""

KILLED = ProcessExit(rank=0, signal=9)
"""By somebody; the rank is filled in."""

STOPPED = ProcessExit(rank=0, signal=9, ordered=True)
"""By the agent, on order."""


class SimAgent:
    """One incarnation of an agent."""

    def __init__(
        self, world: AgentSurroundings[SimAgent], *, name: str, slot: int, created_for: int
    ) -> None:
        self.world = world
        self.name = name
        self.id = f"{world.rng.getrandbits(32):08x}"
        self.slot = slot
        self.created_for = created_for
        local = world.config.processes_per_worker
        self.ranks = tuple(range(slot * local, (slot + 1) * local))
        self.alive = True
        self.silent = False
        self.unheard = False
        """It was silent at some time, so that it may have been given up."""
        self.sequence = 0
        self.desired = DesiredState()
        self.generation = 0
        """Of the store's folder: where it reads and writes; 0: not known."""
        self.wrong_keys = False
        """The store does not take its keys, whatever happens to its Secret."""
        self.training: Training | None = None
        self.staging = SimStaging()
        self.carrying = SimCarrying()
        self.buddy = SimBuddy()
        self.heard = 0.0
        """When the operator answered last."""
        self._new_votes()
        self.notice: tuple[Notice, float] | None = None
        self.resolution: Resolution | None = None
        self.damaged: Damaged | None = None
        self.suspect: Suspect | None = None
        self.recheck: Recheck | None = None
        self.rechecked: Rechecked | None = None
        self.recording = SimRecording(store=world.store)
        self.started: list[int] = []
        self.metrics: dict[str, object] = {}
        self.problems: tuple[Problem, ...] = ()
        self.fatal: Problem | None = None
        self._ask_store_at = 0.0
        self._looks: set[float] = set()

    # ------------------------------------------------------------------ what it says

    @property
    def attempt(self) -> int:
        """The attempt that was started last."""
        return self.desired.attempt

    @property
    def computes(self) -> bool:
        """Some of its processes lives."""
        return self.training is not None and self.training.alive

    @property
    def phase(self) -> Phase:
        """What a heartbeat says that it does."""
        return desired_state.phase(self.desired, self._actual, self.world.clock.now)

    @property
    def news(self) -> tuple[object, ...]:
        """What is told at once when an answer has changed it."""
        told = self.desired.acknowledged, self.desired.offer, self.recording.done
        return self.phase, self.vote, self.resolution, self.attempt, *told

    @property
    def _actual(self) -> ActualState:
        alive = self.computes or self.world.trainer.busy(self)
        flush = self.desired.flush
        owes_commit = self.world.trainer.owes_commit
        if self.desired.in_place:
            uploading = self.carrying.owes(self, flush)
        else:
            uploading = self.staging.owes(flush) or any(owes_commit(self, step) for step in flush)
            uploading = uploading or self.buddy.owes(flush, self.desired.stand_in)
        return ActualState(alive=alive, stopped=not alive, uploading=uploading)

    # ------------------------------------------------------------------ what it is told

    def apply(self, answer: Answer) -> None:
        """Take the operator's answer; it may come twice, late, and in any order."""
        before, self.desired = (
            self.desired,
            desired_state.answered(self.desired, answer, self.world.clock.now),
        )
        if self.desired is before:
            return
        if isinstance(answer.order, Hold):
            for seconds in answer.order.deadlines:
                self._look_again(seconds + 0.01)
        self.generation = answer.generation or self.generation
        self._follow()
        self._read_again(answer.recheck)
        self.recording.want(answer.story)
        self.reconcile()

    def _look_again(self, seconds: float) -> None:
        """Once, however many answers say so: each look is told, and has an answer."""
        moment = round(self.world.clock.now + seconds, 1)
        if moment in self._looks:
            return
        self._looks.add(moment)

        def look() -> None:
            self._looks.discard(moment)
            self.changed()

        self.world.clock.after(seconds, look)

    def changed(self) -> None:
        """Something has changed: do what follows from it, and tell it."""
        if self.alive:
            self.reconcile()
            self.world.send(self)

    def terminated(self, grace: float) -> None:
        """SIGTERM: it goes when nothing is left to do; what is left is killed after the grace."""
        if self.notice is None:
            self.notice = (Notice(reason="SIGTERM", remaining=grace), self.world.clock.now)
        self.changed()
        self.world.clock.after(LEAVES_AFTER, self._leave_if_idle)

    def _leave_if_idle(self) -> None:
        if not self.alive:
            return
        if self.phase == "Idle":
            self.world.agent_left(self, code=143)
        else:
            self.world.clock.after(LEAVES_AFTER, self._leave_if_idle)

    def reconcile(self) -> None:
        """Do what is to be done now."""
        for task in desired_state.to_do(self.desired, self._actual, self.world.clock.now):
            self._do(task)

    def _do(self, task: desired_state.Task) -> None:
        match task:
            case desired_state.Terminate():
                self.world.trainer.terminated(self)
            case desired_state.Stop():
                self.end_processes(STOPPED)
                if not self.world.trainer.busy(self):
                    self.reconcile()
            case desired_state.Flush():
                self._flush(task.steps, in_place=task.in_place)
                self.buddy.upload(self, task.steps, task.stand_in)
            case desired_state.GiveUp():
                self.staging.uploads_only = ()
            case desired_state.OfferPort():
                offer = Offer(attempt=task.attempt, address=self.name, port=20000 + task.attempt)
                self.desired = desired_state.offered(self.desired, offer)
            case desired_state.Resolve():
                if task.request is not None:
                    self._resolve(task.request)
            case desired_state.Begin():
                self._launch(task.order)
            case desired_state.Leave():
                self._leave(task.order)

    def _flush(self, steps: tuple[int, ...], *, in_place: bool) -> None:
        for step in steps:
            self._learn(step)
        if in_place:
            self.carrying.describe(self, steps)
            return
        for step in self.staging.flush(steps):
            self.world.trainer.upload_later(self, self.attempt, step)

    def _launch(self, order: Start) -> None:
        self.world.check_start(self, order)
        self.carrying.begin(self, order)
        self.desired = desired_state.started(self.desired, order.attempt)
        self.started.append(order.attempt)
        self.staging, self.buddy = SimStaging(), SimBuddy()
        self.resolution = self.damaged = self.suspect = None
        self.training = Training(order=order, ranks=self.ranks)
        self.tally.close()
        self._new_votes(workers=order.workers)
        self.world.trainer.started(self)
        self._follow()  # the same answer may already tell of others' checkpoints

    def _resolve(self, request: ResolveRequest) -> None:
        now = self.world.clock.now
        if desired_state.settled(self.resolution, request) or now < self._ask_store_at:
            return
        self.resolution = self.world.resolve(self, request)
        if self.resolution.outcome == "Resolved" and not request.proof:
            self.generation = self.resolution.generation
        if not desired_state.settled(self.resolution, request):
            self._ask_store_at = now + RESOLVE_AGAIN
            self.world.clock.after(RESOLVE_AGAIN, self.changed)

    def _leave(self, order: Exit) -> None:
        if not self.alive:
            return
        self.end_processes(STOPPED)
        if order.succeeded and self.slot == 0:
            self.world.finish()
        self.world.agent_left(self, code=order.code)

    def _follow(self) -> None:
        answer = self.desired.of_attempt
        if answer is None:
            return
        self.staging.keeps = answer.settings is not None and answer.settings.upload_every > 0
        self.staging.drop(answer.drop)
        for entry in answer.steps:
            self._learn(entry.step)
        for step in self.staging.order(answer.upload):
            self.world.trainer.upload_later(self, self.attempt, step)
        self.buddy.follow(self, answer)
        if answer.save is not None and isinstance(answer.order, Start):
            self.votes.apply(answer.save)

    def _learn(self, step: int) -> None:
        """A worker without files joins a step that others brought files for."""
        if self.training is not None and self.staging.lacks(step):
            self.staging.join(step)
            self.passes()

    def _read_again(self, order: Recheck | None) -> None:
        """What another node reads wrongly."""
        if order != self.recheck:
            self.recheck = order
            if order is not None:
                self.world.clock.after(self.world.rng.uniform(0.1, 2.0), lambda: self._read(order))

    def _read(self, order: Recheck) -> None:
        if not self.alive or self.recheck != order:
            return
        good = self.world.reads_well(self, order.id)
        if not good:
            self.world.set_aside(self, order.id)
        self.rechecked = Rechecked(recheck=order, good=good, message="" if good else "wrong")
        self.changed()

    # ------------------------------------------------------------------ saving on notice

    @property
    def vote(self) -> SaveVote:
        """On the call at which all ranks save."""
        return self.votes.vote

    def tick(self) -> None:
        """Called about once a second: what only time changes."""
        self.recording.tick()
        told, now = self.desired.of_attempt, self.world.clock.now
        if self.alive and told is not None and isinstance(told.order, Start):
            self.tally.tick(now, silent=now - self.heard)

    def may_call(self, rank: int) -> bool:
        """Whether a rank gets beyond its next call of should_save()."""
        assert self.training is not None
        return self.votes.may_call(self.training.calls[rank])

    def call_should_save(self, rank: int) -> bool:
        """One call of a rank; True: it is asked to save."""
        training = self.training
        assert training is not None
        training.calls[rank] += 1
        save = self.votes.called(training.calls[rank])
        if save:
            training.saving.add(rank)
        return save

    def _new_votes(self, *, workers: int = 0) -> None:
        """Of the attempt that is started last."""
        world = self.world
        self.votes = SimVotes(
            clock=world.clock,
            living=lambda: self.computes,
            ended_well=lambda: self.training is not None and self.training.ended_well,
            committed=lambda call: world.save_committed(self, call),
            news=lambda: world.send(self),
        )
        box = SimBallotBox(store=world.store, rng=world.rng, slot=self.slot)
        self.tally = Tally(
            attempt=self.attempt, slot=self.slot, workers=workers, votes=self.votes, box=box
        )

    # ------------------------------------------------------------------ processes and uploads

    def bring(self, rank: int, step: int) -> None:
        """A rank has files for a step."""
        if self.training is not None:
            self.staging.bring(rank, step, after_save=rank in self.training.saving)

    def passes(self) -> None:
        """Ranks have done a step or ended well: upload in the background what is complete now."""
        if self.training is not None:
            for step in self.staging.completed(self.training.passed, self.world.clock.now):
                self.world.trainer.upload_later(self, self.attempt, step)

    def end_process(self, rank: int, end: ProcessExit) -> None:
        """One process of the worker ends, now."""
        training = self.training
        if training is not None and rank in training.living:
            end = replace(end, rank=rank, ordered=end.ordered or training.terminated)
            training.exits[rank] = (end, self.world.clock.now)
            self.passes()

    def end_processes(self, end: ProcessExit) -> None:
        """All processes of the worker that live end, now."""
        for rank in self.training.living if self.training is not None else ():
            self.end_process(rank, end)
