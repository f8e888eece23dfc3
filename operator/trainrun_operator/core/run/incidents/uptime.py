"""Whether a gang that reports nothing has trained: its processes were up for long enough.

Layer: core. A script that never calls `trainrun.report()` and goes on from a folder of its own
shows nothing else. Once a step of the run is known, steps alone tell what was done.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.view import View, max_step

if TYPE_CHECKING:
    from trainrun.contract.agent_state import AgentState
    from trainrun_operator.api.run.status import TrainRunStatus

TRAINED = timedelta(minutes=1)
"""A process that has been up for so long, and reports nothing, has trained."""


def process_trained(view: View, agent: AgentState, *, ended: float) -> bool:
    """Whether a process of this agent had trained when it ended, so many seconds ago."""
    up = (agent.spawned or 0.0) - ended
    return timedelta(seconds=up) >= TRAINED and not reports(view)


def gang_trained(view: View) -> bool:
    """Whether the newest attempt had trained when the first of its processes failed, or until now.

    Where no agent of it is left, its start record tells when it began.
    """
    record = view.record
    if record is None or reports(view):
        return False
    known = (*filter(None, view.agents), *view.last_words.values())
    since_start = view.observation.now - record.time
    return min(map(up_for, known), default=since_start) >= TRAINED


def up_for(agent: AgentState) -> timedelta:
    """How long the processes of its attempt were up when the first of them failed, or are now."""
    failed = (end.age for end in agent.exits if end.failed)
    return timedelta(seconds=(agent.spawned or 0.0) - max(failed, default=0.0))


def shows_steps(status: TrainRunStatus) -> bool:
    """Whether the status tells of a step or a checkpoint that the run itself has reported."""
    return (
        status.checkpoint is not None
        or status.progress.step is not None
        or status.reached is not None
        or any(incident.lost_steps is not None for incident in status.incidents)
    )


def reports(view: View) -> bool:
    """Somebody has heard of a step or a checkpoint of this run."""
    record = view.record
    return (
        shows_steps(view.status)
        or (record is not None and record.resume_point is not None)
        or any(max_step(agent) is not None for agent in view.agents)
    )
