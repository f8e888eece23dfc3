"""Several trainings instead of one: processes of a run that never meet.

Layer: core; pure. Certain where two launchers have each made a rank 0, and where each process is
alone in MPI; where nobody was seen to open the master port it may be meant. Unknown is not failed:
nothing is said where one agent does not tell, or where ranks meet in a way of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.view import View

SEPARATE = "SeparateTrainings"
"""Type of the condition, and the reason of the verdict."""
NEVER_MET: Literal["NeverMet"] = "NeverMet"
"""Reason of a success that may be none."""
Reason = Literal["", "TwoLeaders", "AloneInMpi", "NeverMet"]
LATE = 60.0
"""Seconds of an attempt after which a group should have been made; imports and data take time."""
MEANT = "set workers.independentRanks: true if that is meant"


def met(view: View, status: TrainRunStatus) -> bool:
    """Whether the ranks have met in this attempt or in one before."""
    told = (agent.meeting for agent in view.agents if agent is not None)
    return status.met or any(
        it is not None and (it.known or it.elsewhere or it.placed) for it in told
    )


def separate(view: View) -> tuple[Reason, str]:
    """Why the processes of the newest attempt are separate trainings; empty: nobody says so."""
    meetings = [agent.meeting for agent in view.agents if agent is not None]
    told = [it for it in meetings if it is not None]
    config = view.config
    if len(told) < config.replicas or config.independent_ranks:
        return "", ""
    if any(it.known or it.elsewhere for it in told):
        return "", ""
    number = config.world_size
    leaders = sum(len(it.leaders) for it in told)
    if leaders > 1:
        by = next((f", started by {it.launcher}" for it in told if it.launcher), "")
        return "TwoLeaders", (
            f"{leaders} of the {number} processes have a rank 0 of their own{by}: these "
            "are separate trainings, which write the same files. Let the command itself begin with "
            f"torchrun or python, without a shell or script that starts a launcher, or {MEANT}"
        )
    if leaders or met(view, view.status):
        return "", ""
    if all(it.mpi for it in told):
        return "AloneInMpi", (
            f"each of the {number} processes has loaded MPI without mpirun, so each is rank 0 of 1 "
            "and trains alone. Make the group by torch.distributed's env://, or run mpirun in one "
            f"worker of one process (command: [bash, -c, mpirun -np {number} ...]), or {MEANT}"
        )
    port = view.record.master_port if view.record is not None else 0
    return NEVER_MET, (
        f"none of the {number} processes has opened MASTER_PORT ({port}) or called trainrun, so "
        "each may train alone and write the same files. Let the script make its group from the "
        f"environment (init_process_group with env://), or {MEANT}"
    )


def warning(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where there is nothing to tell."""
    known = view.status.condition(SEPARATE)
    kept = ("", "") if known is None else (known.reason, known.message)
    if view.all_done or view.status.finished:
        return kept  # the verdict tells
    if view.running is None:
        return "", ""
    if any(agent is None for agent in view.agents):
        return kept
    reason, message = separate(view)
    ages = [agent.spawned or 0.0 for agent in view.agents if agent is not None]
    late = reason == "TwoLeaders" or min(ages, default=0.0) >= LATE
    return (reason, message) if late else ("", "")
