"""Brings the worker to the state that the operator's last answer orders: hold, start or exit.

Layer: agent. Takes tasks from `desired_state` and carries them out with real processes, uploads and
files. `reconcile` is called after every answer, every process exit
and every change of an upload; calling it again changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent import background, desired_state
from trainrun.agent.attempt import Attempt
from trainrun.agent.attempt_context import AttemptContext
from trainrun.agent.attempt_parts import put_together
from trainrun.agent.checkpoints.buddy import Buddy
from trainrun.agent.checkpoints.carried import (
    HEAD_START,
    CarriedPart,
    carried_part,
    held_checkpoint,
)
from trainrun.agent.checkpoints.fetching import Prefetching, Rechecking
from trainrun.agent.checkpoints.resolving import Ownership, Resolving
from trainrun.agent.checkpoints.run_artifacts import LogKeeping, Recording
from trainrun.agent.checkpoints.staged import MORE_ROOM, Step
from trainrun.agent.code import Code
from trainrun.agent.desired_state import ActualState, DesiredState, Task
from trainrun.agent.evidence.gathering import EvidenceCollector
from trainrun.agent.processes.launches import expected, pick_port, ranks_of
from trainrun.agent.processes.procfs import children_of
from trainrun.agent.processes.spawn import kill_group
from trainrun.agent.termination_message import last_lines
from trainrun.contract.agent_state import Committed, Offer, Phase
from trainrun.contract.answer import Answer, Exit, Hold, RunSettings, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import CodeFile

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class WorkerSupervisor:
    """The agent's desired state, and the parts that reach it."""

    around: AttemptContext
    resolving: Resolving
    prefetching: Prefetching
    rechecking: Rechecking
    recording: Recording
    logs: LogKeeping
    gathering: EvidenceCollector
    code: Code
    ownership: Ownership
    leave: Callable[[Exit], None]
    """Starts the agent's shutdown."""
    buddy: Buddy
    attempt: Attempt | None = None
    carried: CarriedPart | None = None
    """Of the attempt's resume point, if it was on the workers' disks."""
    desired: DesiredState = field(default_factory=DesiredState)
    _swept: int = 0
    """The newest attempt whose processes are all gone."""

    def apply(self, answer: Answer) -> bool:
        """Take the operator's answer; False if it is not new."""
        before, self.desired = (
            self.desired,
            desired_state.answered(self.desired, answer, time.monotonic()),
        )
        if self.desired is before:
            return False
        if self.desired.order != before.order:
            LOG.info("order: %s", answer.order)
        if self.desired.acknowledged != before.acknowledged:
            self.around.news()
        if isinstance(answer.order, Hold):
            for seconds in answer.order.deadlines:
                asyncio.get_running_loop().call_later(seconds + 0.01, self.reconcile)
        self.around.storage.enter(answer.generation)
        self._read_ahead()
        self.rechecking.want(answer.recheck)
        self.recording.want(answer.story)
        self._gather(answer)
        self._take_settings()
        self._take_steps()
        self.reconcile()
        return True

    def reconcile(self) -> None:
        """Carry out the tasks that are due now."""
        for task in desired_state.to_do(self.desired, self._actual, time.monotonic()):
            self._do(task)

    def prepare(self) -> None:
        """While the gang gathers, load standbys for the next attempt and read the code that it
        would run."""
        if self._gathers:
            self.code.look()
            config = self.around.config
            self.around.standbys.prepare(ranks_of(config), lambda: expected(config))

    def release(self) -> None:
        """Orders no longer matter: start nothing more."""
        self.around.standbys.stop()
        self.desired = desired_state.released(self.desired)

    def reaped(self, pid: int, status: int) -> None:
        """A child has ended."""
        if self.attempt is not None:
            self.attempt.processes.reaped(pid, status)
        else:
            self.around.standbys.reaped(pid)

    @property
    def settings(self) -> RunSettings:
        """The settings of the last answer, or of the configuration."""
        answer = self.desired.answer
        settings = answer.settings if answer is not None else None
        return settings if settings is not None else self.around.config.settings

    @property
    def phase(self) -> Phase:
        """The phase of this worker for heartbeats."""
        return desired_state.phase(self.desired, self._actual, time.monotonic())

    def stop(self) -> bool:
        """Kill every process of the attempt; True if none is left, helpers included."""
        attempt = self.attempt
        if attempt is None or self._swept == attempt.number:
            return True
        if attempt.processes.alive:
            attempt.stop()
            return False
        # Orphans of the processes are our children now, whatever session they made.
        left = set(children_of(os.getpid())) - self.around.standbys.pids - {attempt.output.pid}
        if left:
            for pid in left:
                kill_group(pid)
            return False
        if not attempt.folder.ended():
            return False
        self._swept = attempt.number
        self.around.news()  # reconciles, too
        return True

    def keep_lines(self, *, succeeded: bool = False) -> None:
        """Store the last lines of the attempt, whose processes have all ended."""
        attempt = self.attempt
        if attempt is not None:
            self.logs.keep(attempt.number, lambda: last_lines(attempt, succeeded=succeeded))

    @property
    def code_now(self) -> tuple[CodeFile, ...] | None:
        """What the processes run, or would run; None: not read yet."""
        return None if self._gathers and self.code.started else self.code.files

    @property
    def _gathers(self) -> bool:
        return desired_state.gathers(self.desired, self._actual)

    @property
    def _actual(self) -> ActualState:
        attempt = self.attempt
        if attempt is None:
            return ActualState(alive=False, stopped=True, uploading=False)
        return ActualState(
            alive=attempt.alive,
            stopped=self._swept == attempt.number,
            uploading=attempt.uploads.unfinished(self.desired.flush, in_place=self.desired.in_place)
            or self.buddy.owes(self.desired.flush, self.desired.stand_in),
        )

    def _do(self, task: Task) -> None:
        match task:
            case desired_state.Terminate():
                if self.attempt is not None:
                    self.attempt.terminate()
            case desired_state.Stop():
                self.stop()
            case desired_state.Flush():
                self._flush(frozenset(task.steps), in_place=task.in_place)
                self.buddy.stop()
                self.buddy.upload(task.steps, task.stand_in)
            case desired_state.GiveUp():
                self._give_up()
            case desired_state.OfferPort():
                self._offer(task.attempt)
            case desired_state.Resolve():
                self.keep_lines()  # uploads are done
                self.resolving.want(task.request)
            case desired_state.Begin():
                self._launch(task.order)
            case desired_state.Leave():
                self.leave(task.order)

    def _flush(self, steps: frozenset[int], *, in_place: bool) -> None:
        attempt = self.attempt
        if attempt is not None and attempt.uploads.order(steps, in_place=in_place):
            if steps and not in_place and self.carried is not None:
                self.carried.pause()  # what is uploaded now is newer
            background.run(attempt.metrics.write())
            attempt.staged.open(steps, time.monotonic())
            attempt.changed()
            attempt.uploads.hurry()
            self.around.news()

    def _give_up(self) -> None:
        attempt = self.attempt
        if attempt is not None and attempt.uploads.only != frozenset():
            LOG.warning("uploads of attempt %d took too long: given up", attempt.number)
            attempt.uploads.abandon()
        self.buddy.give_up()

    def _offer(self, attempt: int) -> None:
        offer = Offer(attempt=attempt, address=self.around.config.address, port=pick_port())
        self.desired = desired_state.offered(self.desired, offer)
        self.around.news()

    def _launch(self, order: Start) -> None:
        self._carry(order)
        if self.attempt is not None:
            self.keep_lines()
            self.attempt.close()
        self.buddy.clear()
        self.resolving.want(None)
        self.prefetching.only(order.resume)
        LOG.info("starting attempt %d", order.attempt)
        self.desired = desired_state.started(self.desired, order.attempt)
        self.attempt = put_together(order, self.around, self.settings)
        self._take_settings()
        self.attempt.launch()
        self.code.look(started=True)
        self._take_steps()  # the same answer may already list others' checkpoints
        kept = self.carried.directories if self.carried is not None else ()
        background.run(asyncio.to_thread(self.around.folders.forget_below, order.attempt, kept))

    def _carry(self, order: Start) -> None:
        """Keep this worker's part of the resume point if no manifest names it yet."""
        uploads = self.attempt.uploads if self.attempt is not None else None
        self.carried = carried_part(order, self.carried, uploads, news=self.around.news)
        if self.carried is not None:
            self.carried.start(after=HEAD_START)
        self.around.storage.downloads.held = held_checkpoint(order, self.carried)

    @property
    def holds(self) -> tuple[CheckpointId, ...]:
        """Checkpoints from which an attempt can start without the store."""
        found = set(self.attempt.uploads.holds) if self.attempt is not None else set()
        if self.carried is not None and not self.carried.lost:
            found.add(self.carried.checkpoint)
        return tuple(sorted(found))

    def committed(self, now: float) -> Committed | None:
        """The newest commit that this worker knows: of its attempt, else of its resume point."""
        found = self.attempt.uploads.committed_now(now) if self.attempt is not None else None
        if found is None and self.carried is not None:
            return self.carried.committed(now)
        return found

    def staged_part(self, checkpoint: CheckpointId) -> Step | None:
        """This worker's part of a checkpoint of the attempt, if it is complete and on the disk."""
        attempt = self.attempt
        if attempt is None or attempt.number != checkpoint.attempt:
            return None
        waiting = attempt.staged.uploadable()
        return next((part for part in waiting if part.step == checkpoint.step), None)

    def _read_ahead(self) -> None:
        order = self.desired.order
        if isinstance(order, Hold) and order.attempt > self.desired.attempt and order.prefetch:
            self.prefetching.want(order.prefetch)

    def _gather(self, answer: Answer) -> None:
        """Gather evidence of a hang while the operator asks for it."""
        attempt, request = self.attempt, answer.evidence
        if attempt is None or request is None or request.attempt != attempt.number:
            self.gathering.want(None, ())
        else:
            self.gathering.want(request, attempt.subjects())

    def _take_settings(self) -> None:
        self.around.storage.settings = self.settings
        if self.attempt is not None:
            room, keeps = self.settings.max_pending, self.settings.upload_every > 0
            room += (MORE_ROOM + self.settings.buddy) if keeps else 0
            self.attempt.rooms.limit(room)
            self.attempt.uploads.keep = room if keeps else 0

    def _take_steps(self) -> None:
        """Apply what the answer says about checkpoints of our attempt."""
        attempt, answer = self.attempt, self.desired.of_attempt
        if attempt is None or answer is None:
            return
        if answer.committed is not None and answer.committed.attempt == attempt.number:
            attempt.uploads.saw_commit(answer.committed)
            self.buddy.saw_commit(answer.committed)
        for step in answer.drop:
            attempt.uploads.drop(step)
        attempt.hear(answer.steps)
        attempt.staged.order(answer.upload)
        if isinstance(answer.order, Start):
            attempt.voter.apply(answer.save)
            attempt.fetching.source = answer.order.source
            attempt.tasks.apply(answer)
            self.buddy.follow(answer)
        attempt.changed()
        self.around.news()
