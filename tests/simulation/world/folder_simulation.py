"""One life of a run whose script nobody changed: it reports nothing, and saves into its folder.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.world.own_folder import SimFolder, StoredFolder
from tests.simulation.world.own_saves import SimScript
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.training import TrainingLoop
from trainrun.contract.agent_state import Problem

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from trainrun.contract.checkpoint_id import CheckpointId

LOOKS = 0.5
"""Seconds between two looks at a folder."""


@dataclass
class FolderSimulation(Simulation):
    """Of one worker, whose first rank saves."""

    script: SimScript = field(default_factory=SimScript)
    stored_folders: dict[CheckpointId, StoredFolder] = field(default_factory=dict)
    """What the agents have taken."""

    def __post_init__(self) -> None:
        """Nothing is saved yet."""
        super().__post_init__()
        self.reports = self.asks = False
        self.trainer = FolderLoop(self)

    def wrong(self, what: str) -> None:
        """A promise is broken."""
        self.judge.wrong(what)

    def staged(self, agent: SimAgent, step: int) -> None:
        """The agent has taken a save as this step."""
        agent.bring(agent.ranks[0], step)
        agent.passes()
        agent.changed()

    def refused(self, agent: SimAgent, why: str) -> None:
        """The agent ends the run: the script has started over."""
        agent.fatal = Problem(type="ResumeIgnored", reason="ResumeIgnored", message=why)
        agent.changed()


class FolderLoop(TrainingLoop):
    """Its processes, with the folder of each worker."""

    world: FolderSimulation

    def __init__(self, world: FolderSimulation) -> None:
        super().__init__(world)
        self._folders: dict[str, SimFolder] = {}
        """By the agent's identity."""

    def of(self, agent: SimAgent) -> SimFolder:
        """The folder of its worker."""
        return self._folders.setdefault(agent.id, SimFolder(world=self.world, agent=agent))

    def busy(self, agent: SimAgent) -> bool:
        """Its folder is still being looked at."""
        return self.of(agent).busy

    def started(self, agent: SimAgent) -> None:
        """The folder is put back before the processes start."""
        training, folder = agent.training, self.of(agent)
        assert training is not None
        resume = training.order.resume
        if resume is None or self.world.reads_well(agent, resume):
            folder.excused |= resume is not None and self._set_aside(agent, resume)
            training.begin_at(folder.restore(agent.attempt, resume))
            self._look_later(agent, agent.attempt)
        super().started(agent)

    def _set_aside(self, agent: SimAgent, resume: CheckpointId) -> bool:
        """Something newer is known to be bad, or is tried to do without."""
        store = self.world.store
        return bool(store.bad) or agent.attempt in store.trials or resume in store.unloadable

    def _look_later(self, agent: SimAgent, attempt: int) -> None:
        def look() -> None:
            folder, training = self.of(agent), agent.training
            if agent.alive and agent.attempt == attempt and training is not None:
                folder.excused |= not self.world.store.available
                if folder.busy:
                    folder.tick(training)
                self._look_later(agent, attempt)

        self.world.clock.after(LOOKS, look)

    def _step(self, agent: SimAgent, rank: int) -> None:
        training = agent.training
        assert training is not None
        before = training.steps[rank]
        super()._step(agent, rank)
        step = training.steps[rank]
        if rank == 0 and step > before:
            last = step == self.world.last_step
            if last or training.terminated:  # it saves, and then it ends
                self.of(agent).save(training, step, at_once=True)
            elif step % self.world.save_every == 0:
                self.of(agent).save(training, step)
