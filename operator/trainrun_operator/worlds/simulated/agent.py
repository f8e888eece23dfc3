"""An agent and its training processes as the protocol shows them, on virtual time.

Layer: worlds. The training is a collective loop: a step is done when every process of the attempt
takes part in it; when one is gone the others fail with a broken connection, or hang.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from trainrun.protocol import (
    AgentState,
    Answer,
    CheckpointId,
    Committed,
    Damaged,
    Exit,
    Hold,
    Notice,
    Offer,
    Phase,
    ProcessExit,
    Resolution,
    SaveOrder,
    SaveVote,
    StagedStep,
    Start,
)
from trainrun_operator.worlds.simulated.voting import obeyed

if TYPE_CHECKING:
    from trainrun_operator.worlds.simulated.world import SimWorld


@dataclass(slots=True)
class Training:
    """The processes of one worker in one attempt; they live and die together."""

    order: Start
    step: int
    alive: bool = True
    first_step: float | None = None
    last_step: float | None = None
    """When its first and its newest step were done."""


class SimAgent:
    """One incarnation of an agent."""

    def __init__(self, world: SimWorld, *, name: str, slot: int, created_for: int) -> None:
        self.world = world
        self.name = name
        self.id = f"{world.rng.getrandbits(32):08x}"
        self.slot = slot
        self.created_for = created_for
        self.alive = True
        self.silent = False
        self.sequence = 0
        self.attempt = 0
        self.training: Training | None = None
        self.exits: tuple[tuple[ProcessExit, float], ...] = ()
        self.staged: dict[int, StagedStep] = {}
        self.dropped: set[int] = set()
        self.committed: CheckpointId | None = None
        self.vote = SaveVote()
        self.notice: tuple[Notice, float] | None = None
        self.offer: Offer | None = None
        self.resolution: Resolution | None = None
        self.damaged: Damaged | None = None
        self.flushing: set[int] = set()
        self.started: list[int] = []
        self.saving = False

    # ------------------------------------------------------------------ what it says

    @property
    def phase(self) -> Phase:
        """Running while processes live, Flushing while ordered uploads are under way."""
        if self.training is not None and self.training.alive:
            return "Running"
        return "Flushing" if self.flushing else "Idle"

    def state(self) -> AgentState:
        """The next heartbeat."""
        self.sequence += 1
        now = self.world.clock.now
        step = self.training.step if self.training is not None and self._stepped else None
        return AgentState(
            run="run",
            run_uid="uid",
            slot=self.slot,
            worker=self.name,
            created_for=self.created_for,
            agent=self.id,
            sequence=self.sequence,
            node=f"node-{self.name}",
            phase=self.phase,
            attempt=self.attempt,
            exits=tuple(replace(end, age=now - at) for end, at in self.exits),
            steps=(step,) if self.attempt else (),
            first_step=self._since(self.training.first_step if self.training else None),
            stepped=self._since(self.training.last_step if self.training else None),
            staged=tuple(self.staged[step] for step in sorted(self.staged)),
            dropped=tuple(sorted(self.dropped)),
            committed=Committed(id=self.committed) if self.committed is not None else None,
            save=self.vote,
            notice=self.state_notice(),
            offer=self.offer,
            resolution=self.resolution,
            damaged=self.damaged,
        )

    def _since(self, time: float | None) -> float | None:
        return None if time is None else self.world.clock.now - time

    @property
    def _stepped(self) -> bool:
        training = self.training
        if training is None:
            return False
        begin = training.order.resume.step if training.order.resume is not None else 0
        return training.step > begin

    def state_notice(self) -> Notice | None:
        """The notice as it reads now."""
        if self.notice is None:
            return None
        notice, at = self.notice
        age = self.world.clock.now - at
        left = None if notice.remaining is None else max(notice.remaining - age, 0.0)
        return replace(notice, age=age, remaining=left)

    # ------------------------------------------------------------------ what it is told

    def obey(self, answer: Answer) -> None:
        """Apply a desired state; orders may come twice, late, and in any order."""
        order = answer.order
        match order:
            case Start():
                self._start(order)
            case Hold():
                self._hold(order)
            case Exit():
                self._exit(order)
            case _:
                assert_never(order)
        self._follow(answer)

    def _start(self, order: Start) -> None:
        if order.attempt <= self.attempt or self.phase != "Idle":
            return
        self.world.check_start(self, order)
        self.attempt = order.attempt
        self.started.append(order.attempt)
        self.exits, self.staged, self.dropped, self.committed = (), {}, set(), None
        self.vote, self.resolution, self.offer, self.damaged = SaveVote(), None, None, None
        self.saving = False
        begin = order.resume.step if order.resume is not None else 0
        self.training = Training(order=order, step=begin)
        self.world.training.started(self)

    def _hold(self, order: Hold) -> None:
        if order.attempt <= self.attempt:
            return
        wanted = {s for s in order.flush if s in self.staged}
        if self.training is not None and self.training.alive:
            self.end_processes(ordered=True)
            self.staged = {s: e for s, e in self.staged.items() if s in wanted}
        # Also what is left of processes that ended by themselves, after saving on request.
        self.flushing = {s for s in wanted if not self.staged[s].uploaded}
        if order.flush_seconds <= 0:
            self.flushing = set()
        if order.offer and (self.offer is None or self.offer.attempt != order.attempt):
            self.offer = Offer(attempt=order.attempt, address=self.name, port=20000 + order.attempt)
        asked = order.resolve
        stale = self.resolution is None or self.resolution.attempt < order.attempt
        if asked is not None and (stale or not self._settled_resolution()):
            self.resolution = self.world.resolve(self, asked.attempt)

    def _settled_resolution(self) -> bool:
        return self.resolution is not None and self.resolution.outcome != "Unavailable"

    def _exit(self, order: Exit) -> None:
        if self.training is not None and self.training.alive:
            self.end_processes(ordered=True)
        if order.succeeded and self.slot == 0:
            self.world.store.finished = True
        self.world.agent_left(self, code=order.code)

    def _follow(self, answer: Answer) -> None:
        if answer.order.kind != "Start" or answer.order.attempt != self.attempt:
            return
        for step in answer.drop:
            if step in self.staged:
                del self.staged[step]
                self.dropped.add(step)
        for entry in answer.steps:
            self._learn(entry.step)
        if answer.save is not None:
            self._save(answer.save)

    def _learn(self, step: int) -> None:
        """A worker without files joins a step that others brought files for."""
        passed = self.training is not None and self.training.step >= step
        known = step in self.staged or step in self.dropped
        if known or not passed or (self.committed is not None and self.committed.step >= step):
            return
        self.stage(step, brought=False)

    # ------------------------------------------------------------------ saving on notice

    def _save(self, order: SaveOrder) -> None:
        living = self.training is not None and self.training.alive
        before, self.vote = self.vote, obeyed(self.vote, order, living=living)
        if self.vote.committed is not None and before.committed is None:
            self.world.save_committed(self, self.vote.committed)

    def may_call(self) -> bool:
        """Whether its rank gets beyond its next call of should_save()."""
        vote = self.vote
        return vote.prepared is None or vote.calls + 1 < vote.prepared or vote.committed is not None

    def call_should_save(self) -> bool:
        """One call; True: the rank is asked to save."""
        self.vote = replace(self.vote, calls=self.vote.calls + 1)
        self.saving = self.vote.committed is not None and self.vote.calls >= self.vote.committed
        return self.saving

    # ------------------------------------------------------------------ processes and uploads

    def stage(self, step: int, *, brought: bool) -> None:
        """The worker's part of a step is known; upload it in the background."""
        self.staged[step] = StagedStep(
            step=step,
            ranks=(self.slot,) if brought else (),
            complete=True,
            after_save=self.saving,
        )
        self.world.training.upload_later(self, self.attempt, step)

    def uploaded(self, attempt: int, step: int) -> None:
        """The worker's part is in the store."""
        entry = self.staged.get(step)
        if attempt != self.attempt or entry is None:
            return
        self.staged[step] = replace(entry, uploaded=True)
        self.flushing.discard(step)

    def end_processes(
        self,
        *,
        ordered: bool = False,
        code: int | None = None,
        signal: int | None = None,
        exception: str = "",
        oom: bool = False,
        yielded: bool = False,
    ) -> None:
        """All processes of the worker end, now."""
        training = self.training
        if training is None or not training.alive:
            return
        training.alive = False
        end = ProcessExit(
            rank=self.slot,
            code=code,
            signal=9 if ordered else signal,
            exception=exception,
            oom=oom,
            ordered=ordered,
            yielded=yielded,
        )
        self.exits = ((end, self.world.clock.now),)
