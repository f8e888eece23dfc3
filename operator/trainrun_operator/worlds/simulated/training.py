"""The training in the simulated world: a collective loop, its checkpoints and their uploads.

Layer: worlds. A step is done when every process of the attempt takes part in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.protocol import CheckpointId, Damaged

if TYPE_CHECKING:
    from trainrun_operator.worlds.simulated.agent import SimAgent
    from trainrun_operator.worlds.simulated.world import SimWorld


class TrainingLoop:
    """What the processes of all workers do."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world

    def started(self, agent: SimAgent) -> None:
        """Processes are up after a while, and read the checkpoint that they were handed."""
        attempt = agent.attempt
        training = agent.training
        assert training is not None
        resume = training.order.resume
        if resume is not None and self.world.store.checkpoints[resume].damaged:
            self.world.store.bad.add(resume)
            agent.damaged = Damaged(id=resume, message="the checksum of model.pt is wrong")
            self.world.send(agent)
            return
        self.world.clock.after(
            self.world.rng.uniform(0.5, 1.5), lambda: self._advance(agent, attempt)
        )

    def _advance(self, agent: SimAgent, attempt: int) -> None:
        """One step of one worker's processes, if its peers allow it."""
        training = agent.training
        if not agent.alive or training is None or not training.alive or agent.attempt != attempt:
            return
        self.world.clock.after(self.world.step_seconds, lambda: self._advance(agent, attempt))
        if agent.vote.calls < training.step and not agent.may_call():
            return
        peers = self.world.gang(attempt)
        if len(peers) < training.order.workers or any(not _takes_part(p) for p in peers):
            self._peer_is_gone(agent, peers)
            return
        if any(p.training is not None and p.training.step < training.step for p in peers):
            return
        self._step(agent)

    def _peer_is_gone(self, agent: SimAgent, peers: list[SimAgent]) -> None:
        lost = any(p.training is not None and not _takes_part(p) for p in peers)
        if lost and not self.world.hang_on_loss and self.world.rng.random() < 0.5:
            agent.end_processes(code=1, exception="RuntimeError: Connection reset by peer")
            self.world.send(agent)

    def _step(self, agent: SimAgent) -> None:
        training = agent.training
        assert training is not None
        if not agent.may_call():
            return
        save = agent.call_should_save()
        if training.step < self.world.total_steps:
            training.step += 1
            training.last_step = self.world.clock.now
            training.first_step = training.first_step or training.last_step
        step = training.step
        if step % self.world.save_every == 0 or step == self.world.total_steps or save:
            if step not in agent.staged and step not in agent.dropped:
                agent.stage(step, brought=agent.slot == 0 or step % 2 == 0)
            self.world.send(agent)
        if save and self.world.rng.random() < 0.5:
            agent.end_processes(code=0, yielded=True)
            self.world.send(agent)
        elif step >= self.world.total_steps:
            agent.end_processes(code=0)
            self.world.send(agent)

    def upload_later(self, agent: SimAgent, attempt: int, step: int) -> None:
        """Upload a part after a while, again and again while the store is away."""
        self.world.clock.after(
            self.world.rng.uniform(0.1, 2.0),
            lambda: self._upload(agent, attempt=attempt, step=step),
        )

    def _upload(self, agent: SimAgent, *, attempt: int, step: int) -> None:
        if not agent.alive or agent.attempt != attempt or step not in agent.staged:
            return
        if not self.world.store.available:
            self.upload_later(agent, attempt, step)
            return
        training = agent.training
        assert training is not None
        checkpoint = CheckpointId(attempt=attempt, step=step)
        self.world.store.put_part(checkpoint, slot=agent.slot, workers=training.order.workers)
        agent.uploaded(attempt, step)
        self._commit(checkpoint)
        self.world.send(agent)

    def _commit(self, checkpoint: CheckpointId) -> None:
        if self.world.store.commit(checkpoint):
            self.world.judge.committed(checkpoint)
            for agent in self.world.gang(checkpoint.attempt):
                newest = agent.committed is None or agent.committed < checkpoint
                if agent.alive and newest:
                    agent.committed = checkpoint
                    agent.staged = {
                        s: e for s, e in agent.staged.items() if s > checkpoint.step or e.after_save
                    }
                    agent.flushing &= set(agent.staged)


def _takes_part(agent: SimAgent) -> bool:
    """Its processes live, or have ended well."""
    if agent.training is None or not agent.alive:
        return False
    return agent.training.alive or any(end.code == 0 for end, _ in agent.exits)
