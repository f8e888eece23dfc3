"""The training in the simulated world: a collective loop, its checkpoints and their uploads.

Layer: simulation. A step is done when every process of the attempt takes part in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from trainrun.contract.agent_state import Damaged, ProcessExit, Suspect
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_parts import Cause

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.clock import Clock
    from tests.simulation.world.store import SimStore


READ_AGAIN = 30.0
"""Seconds until a checkpoint that reads wrongly is read once more where it does."""

LISTS_AGAIN = 1.0
"""Seconds until the parts of a checkpoint that were not listed are listed again."""

OTHER_REPLICA = 0.3
"""Part of the listings that come from a replica of the store which is up to date."""

STRAGGLING = 0.05
"""Part of a step by which a rank may be later than the others."""


COLLECTIVE_TIMEOUT = 20.0
"""Seconds after which a collective fails in which a rank is missing."""

PORT_IS_TAKEN = "RuntimeError: The server socket has failed to bind: address already in use"
NOBODY_THERE = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms"
SOME_MISSING = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients"
MESH_BROKEN = "RuntimeError: Gloo connectFullMesh failed with Connection reset by peer"

CANNOT_LOAD = ProcessExit(
    rank=0,
    code=1,
    exception="UnpicklingError: invalid load key",
    kinds=("_pickle.UnpicklingError",),
    raised_at="train.py:12",
)
"""Of a script that cannot read what it has saved; the rank is filled in."""

ON_SIGTERM = ProcessExit(rank=0, signal=15)
"""Of a script without a handler; the rank is filled in."""

OnSigterm = Literal["Dies", "Saves", "Ignores"]
"""Without a handler a process ends at once. With one, all ranks end after a step soon, which they
save. Some scripts go on as if nothing had happened."""

BEFORE_OR_AFTER_A_STEP = Cause.RENDEZVOUS_FAILED, Cause.APP_ERROR
"""Where others go on alone, its error may be heard first or their first step."""


class Place(Protocol):
    """What the training needs of its world."""

    rng: random.Random
    clock: Clock
    store: SimStore
    total_steps: int
    save_every: int
    step_seconds: float
    hang_on_loss: bool
    together: bool
    reports: bool
    says_finished: bool
    asks: bool
    on_sigterm: OnSigterm

    @property
    def last_step(self) -> int:
        """The one with which the script ends."""

    def gang(self, attempt: int) -> list[SimAgent]:
        """All agents that ever started this attempt, dead ones too."""

    def reads_well(self, agent: SimAgent, checkpoint: CheckpointId) -> bool:
        """Whether what it reads of a checkpoint is what was written."""

    def send(self, agent: SimAgent) -> None:
        """Something changed that the operator waits for."""

    def apart(self, attempt: int) -> frozenset[int]:
        """Ranks of an attempt that do not find the others."""

    def returns(self, attempt: int) -> bool:
        """Whether the script returns at once in this attempt."""

    def fails(self, agent: SimAgent, *causes: Cause) -> None:
        """A process is about to fail, through no fault of a process that has failed before."""

    def committed(self, checkpoint: CheckpointId) -> None:
        """A manifest was written."""


class TrainingLoop:
    """What the processes of all workers do."""

    def __init__(self, world: Place) -> None:
        self.world = world
        self._last: dict[int, int] = {}
        """The step with which the ranks of an attempt end that have been sent SIGTERM."""

    def busy(self, _agent: SimAgent) -> bool:
        """Nothing is left to be taken of what its processes have saved by themselves."""
        return False

    def started(self, agent: SimAgent) -> None:
        """Processes are up after a while, and read the checkpoint that they were handed."""
        attempt = agent.attempt
        training = agent.training
        assert training is not None
        training.reports = self.world.reports
        training.spawned = training.spawned or self.world.clock.now
        resume = training.order.resume
        if resume is not None and not self.world.reads_well(agent, resume):
            self._suspect(agent, attempt, resume)
            return
        agent.suspect = None
        training.moved = self.world.clock.now
        after = self.world.rng.uniform(0.5, 1.5)
        for rank in training.living:
            self.world.clock.after(after, lambda rank=rank: self._meet(agent, attempt, rank))  # type: ignore[misc]

    def goes_on(self, agent: SimAgent, rank: int) -> None:
        """A rank that has done nothing for some seconds does what it would have done then."""
        training = agent.training
        if training is None or training.moved is None or agent.suspect is not None:
            return  # it has not got that far: it is called once it has its checkpoint
        if training.steps[rank] > training.begin:
            self._advance(agent, agent.attempt, rank)
        else:
            self._meet(agent, agent.attempt, rank)

    def _meet(self, agent: SimAgent, attempt: int, rank: int) -> None:
        """A rank looks for the others; who needs them all waits until all have met."""
        training, apart = agent.training, self.world.apart(attempt)
        if not agent.alive or agent.attempt != attempt or training is None:
            return
        if rank in training.exits or rank in training.hung:
            return
        if training.order.resume in self.world.store.unloadable:
            self.world.fails(agent, Cause.APP_ERROR)
            agent.end_process(rank, CANNOT_LOAD)
            self.world.send(agent)
        elif self.world.returns(attempt):
            self.leave(agent, rank)
        elif rank in apart:
            self._cannot_meet(agent, rank, alone=len(apart) < training.order.world_size)
        elif apart and self.world.together:
            self._wait_for(agent, attempt, rank)
        else:
            self._advance(agent, attempt, rank)

    def _cannot_meet(self, agent: SimAgent, rank: int, *, alone: bool) -> None:
        """It does not find the others, at any time; where some have met, it has none to hang on."""
        if rank == 0 or alone or not self.world.hang_on_loss:
            causes = (Cause.RENDEZVOUS_FAILED,) if self.world.together else BEFORE_OR_AFTER_A_STEP
            self.world.fails(agent, *causes)
            self._fail(agent, rank, PORT_IS_TAKEN if rank == 0 else NOBODY_THERE)

    def _wait_for(self, agent: SimAgent, attempt: int, rank: int) -> None:
        """It has met some, and waits for the others until it learns that they have failed."""
        chance = self.world.rng.random()
        if any(not _takes_part(peer) for peer in self.world.gang(attempt)) and chance < 0.5:
            if self.world.hang_on_loss:
                return
            if chance < 0.25:
                self.world.fails(agent, Cause.RENDEZVOUS_FAILED)
            self._fail(agent, rank, SOME_MISSING if chance < 0.25 else MESH_BROKEN)
            return
        again = self._until_next_step()
        self.world.clock.after(again, lambda: self._meet(agent, attempt, rank))

    def _fail(self, agent: SimAgent, rank: int, exception: str) -> None:
        agent.end_process(rank, ProcessExit(rank=rank, code=1, exception=exception))
        self.world.send(agent)

    def _suspect(self, agent: SimAgent, attempt: int, resume: CheckpointId) -> None:
        """Its processes wait, and it is read again from time to time."""
        message = "the checksum of model.pt is wrong"
        if resume in self.world.store.bad:
            agent.damaged = Damaged(id=resume, message=message)
        else:
            agent.suspect = Suspect(id=resume, files=("model.pt",), message=message)
            self.world.clock.after(READ_AGAIN, lambda: self._again(agent, attempt))
        self.world.send(agent)

    def _again(self, agent: SimAgent, attempt: int) -> None:
        training = agent.training
        if agent.alive and agent.attempt == attempt and training is not None and training.alive:
            self.started(agent)

    def _advance(self, agent: SimAgent, attempt: int, rank: int) -> None:
        """One step of one rank, if its peers allow it."""
        training = agent.training
        if not agent.alive or agent.attempt != attempt or training is None:
            return
        if rank in training.exits or rank in training.hung:
            return
        self.world.clock.after(self._until_next_step(), lambda: self._advance(agent, attempt, rank))
        if training.calls[rank] < training.steps[rank] and not agent.may_call(rank):
            return
        if not self.world.together or not self._waits(agent, rank):
            self._step(agent, rank)

    def _until_next_step(self) -> float:
        """All ranks end a collective step at about the same moment."""
        step = self.world.step_seconds
        return step - self.world.clock.now % step + self.world.rng.uniform(0.0, STRAGGLING) * step

    def _waits(self, agent: SimAgent, rank: int) -> bool:
        """A rank waits for others in a collective, or finds that they have gone."""
        training = agent.training
        assert training is not None
        peers = self.world.gang(agent.attempt)
        if len(peers) < training.order.workers or any(not _takes_part(p) for p in peers):
            self._peer_is_gone(agent, rank, peers)
            return True
        mine, waits = training.steps[rank], False
        for peer in (p.training for p in peers if p.training is not None):
            for other in (r for r, step in peer.steps.items() if step < mine):
                waits = True
                if peer.left(other):
                    self._was_left(agent, rank, *peer.exits[other])
        return waits

    def _peer_is_gone(self, agent: SimAgent, rank: int, peers: list[SimAgent]) -> None:
        lost = any(p.training is not None and not _takes_part(p) for p in peers)
        if lost and not self.world.hang_on_loss and self.world.rng.random() < 0.5:
            self._fail(agent, rank, "RuntimeError: Connection reset by peer")

    def _was_left(self, agent: SimAgent, rank: int, end: ProcessExit, at: float) -> None:
        """A rank that it needs has ended well before it: that ends it, too, sooner or later."""
        training = agent.training
        if end.yielded or training is None or rank in training.exits:
            return
        hangs, waited = self.world.hang_on_loss, self.world.clock.now - at
        if waited > COLLECTIVE_TIMEOUT or (not hangs and self.world.rng.random() < 0.5):
            for peer in self.world.gang(agent.attempt):  # whoever fails first, and is heard first
                self.world.fails(peer, Cause.APP_ERROR)
            self._fail(
                agent,
                rank,
                "RuntimeError: Timed out waiting"
                if hangs
                else "RuntimeError: Connection closed by peer",
            )

    def _step(self, agent: SimAgent, rank: int) -> None:
        training, last = agent.training, self.world.last_step
        assert training is not None
        if training.steps[rank] >= last:  # resumed where nothing is left to do: no report either
            self.leave(agent, rank, finished=self.world.says_finished)
            return
        if not agent.may_call(rank):
            return
        save = self.world.asks and agent.call_should_save(rank)
        training.steps[rank] += 1
        step = training.steps[rank]
        signalled = training.terminated and self._saves_last(agent.attempt, step)
        if self.world.reports:
            self._report(agent, rank, step, save=save or signalled)
        agent.passes()
        if signalled and step < last:
            # Others need it until they have done the step as well.
            code = self.world.rng.choice([0, 143])
            end = replace(ON_SIGTERM, signal=None, code=code)
            self._end_later(agent, (rank,), end, after=self.world.step_seconds / 2)
        elif step >= last or (save and self.world.rng.random() < 0.5):
            self.leave(agent, rank, finished=self.world.says_finished and step >= last)

    def _report(self, agent: SimAgent, rank: int, step: int, *, save: bool) -> None:
        training, last = agent.training, self.world.last_step
        assert training is not None
        if training.first_step is not None and training.moved is not None:
            training.slowest = max(training.slowest, self.world.clock.now - training.moved)
        training.last_step = training.moved = self.world.clock.now
        training.first_step = training.first_step or training.last_step
        if step % self.world.save_every == 0 or step == last or save:
            if rank == 0 or step % 2 == 0:
                agent.bring(rank, step)
            self.world.send(agent)

    def terminated(self, agent: SimAgent) -> None:
        """Its processes are sent SIGTERM, for the first time or again."""
        training = agent.training
        if training is None or training.terminated:
            return
        training.terminated = True
        reached = (p.training.step for p in self.world.gang(agent.attempt) if p.training)
        self._last.setdefault(agent.attempt, max(reached, default=0) + 2)
        if self.world.on_sigterm == "Dies":
            self._end_later(agent, training.living, ON_SIGTERM, after=0.01)

    def _end_later(
        self, agent: SimAgent, ranks: Sequence[int], end: ProcessExit, *, after: float
    ) -> None:
        """These ranks of the attempt that runs now end so, unless something else ends them."""
        attempt = agent.attempt

        def ends() -> None:
            if agent.alive and agent.attempt == attempt:
                for rank in ranks:
                    agent.end_process(rank, end)
                agent.changed()

        self.world.clock.after(after, ends)

    def _saves_last(self, attempt: int, step: int) -> bool:
        """A script that has been sent SIGTERM saves at this step, on all ranks, and ends."""
        return self.world.on_sigterm == "Saves" and step >= self._last[attempt]

    def leave(self, agent: SimAgent, rank: int, *, finished: bool = False) -> None:
        """The script of a rank ends well, after finish() or without it."""
        training = agent.training
        assert training is not None
        if finished:
            training.finished.add(rank)
        yielded = rank in training.saving and not finished
        agent.end_process(rank, ProcessExit(rank=rank, code=0, yielded=yielded))
        self.world.send(agent)
        attempt = agent.attempt
        if rank in self.world.apart(attempt):
            self.world.clock.after(COLLECTIVE_TIMEOUT, lambda: self._give_up_meeting(attempt))

    def _give_up_meeting(self, attempt: int) -> None:
        """Whoever still looks for a rank that has left fails."""
        for agent in self.world.gang(attempt):
            training = agent.training
            if agent.alive and agent.attempt == attempt and training is not None:
                for rank in training.living:
                    if training.steps[rank] <= training.begin:
                        self.world.fails(agent, Cause.RENDEZVOUS_FAILED)
                        self._fail(agent, rank, SOME_MISSING)

    def upload_later(self, agent: SimAgent, attempt: int, step: int) -> None:
        """Upload a part after a while, again and again while the store is away."""
        self.world.clock.after(
            self.world.rng.uniform(0.1, 2.0),
            lambda: self._upload(agent, attempt=attempt, step=step),
        )

    def _upload(self, agent: SimAgent, *, attempt: int, step: int) -> None:
        if not agent.alive or agent.attempt != attempt or not agent.staging.uploads(step):
            return
        if not self.world.store.available:
            self.upload_later(agent, attempt, step)
            return
        training = agent.training
        assert training is not None
        checkpoint = CheckpointId(attempt=attempt, step=step)
        self.world.store.put_part(checkpoint, slot=agent.slot, workers=training.order.workers)
        agent.staging.uploaded(step)
        self._commit(checkpoint)
        agent.changed()

    def _commit_again(self, checkpoint: CheckpointId) -> None:
        """Slot 0's agent looks again whether the listing shows every part."""
        gang = self.world.gang(checkpoint.attempt)
        lead = next((a for a in gang if a.alive and self.owes_commit(a, checkpoint.step)), None)
        if lead is not None:
            current = self.world.rng.random() < OTHER_REPLICA
            self._commit(checkpoint, all_listed=current)
            lead.changed()

    def owes_commit(self, agent: SimAgent, step: int) -> bool:
        """Every part of a step is stored, and this agent is to commit it."""
        checkpoint = CheckpointId(attempt=agent.attempt, step=step)
        committed = agent.staging.committed
        newer = committed is None or committed < checkpoint
        return agent.slot == 0 and newer and self.world.store.uncommitted(checkpoint)

    def stored(self, checkpoint: CheckpointId) -> None:
        """A buddy has stored a part; it may be the last one."""
        self._commit(checkpoint)

    def _commit(self, checkpoint: CheckpointId, *, all_listed: bool = False) -> None:
        if self.world.store.commit(checkpoint, all_listed=all_listed):
            self.world.committed(checkpoint)
            for agent in self.world.gang(checkpoint.attempt):
                if agent.alive and agent.attempt == checkpoint.attempt:
                    agent.staging.saw_commit(checkpoint, self.world.clock.now)
        elif self.world.store.uncommitted(checkpoint):
            self.world.clock.after(LISTS_AGAIN, lambda: self._commit_again(checkpoint))


def _takes_part(agent: SimAgent) -> bool:
    """Its processes live; or all have ended well, and then nobody needs its worker any more."""
    training = agent.training
    if training is None:
        return False
    return all(map(training.left, training.ranks)) or (agent.alive and not training.failed)
