"""Which checkpoint the workers of the next attempt hold on their disks.

Layer: core.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun.contract.agent_state import AgentState
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.core.run import steps
from trainrun_operator.core.run.gang.roster import choose
from trainrun_operator.core.run.incidents import repeats
from trainrun_operator.core.run.view import View


def held(view: View) -> CheckpointId | None:
    """The newest checkpoint that every worker of the next attempt holds; None: there is none.

    Not one that attempts died of: the next one may have to do without it.
    """
    agents = [worker.agent if worker is not None else None for worker in choose(view)]
    there = [agent for agent in agents if agent is not None]
    first = there[0].holds if there and len(there) == len(agents) else ()
    tried = repeats.to_try(view)
    return max((c for c in first if c != tried and held_by(there, c)), default=None)


def held_by(agents: Iterable[AgentState], point: CheckpointId | None) -> bool:
    """Whether each of these agents holds it."""
    return all(point in agent.holds for agent in agents)


def must_upload(view: View) -> bool:
    """The next attempt was to start from the workers' disks, and cannot."""
    ending = view.status.ending
    if ending is None or not ending.in_place:
        return False
    kept = view.roster == choose(view) and steps.in_place(view, ending.flush)
    return not kept or view.config.suspend or view.config.upload_every is None
