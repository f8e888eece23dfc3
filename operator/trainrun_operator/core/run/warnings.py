"""What is told of a gang that trains on: warnings that cost nothing and end nothing.

Layer: core; pure. Each gives a reason and a message, both empty where all is well. Unknown is not
wrong: nothing is said where one agent does not tell, and what was said is taken back by nobody who
cannot judge (a new leader, or one that waits for a silent agent). A gang that stands still is told
of once, and anew where it lasts twice as long. That ranks run different code stays until all
workers of an attempt have shown the same files. Several trainings instead of one are certain where
two launchers have each made a rank 0, and where each process is alone in MPI; where nobody was seen
to open the master port it may be meant.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from trainrun_operator.core.run.gang import roster
from trainrun_operator.core.run.incidents import evidence
from trainrun_operator.core.run.incidents.hangs import (
    HUNG,
    KNOWN_BY_USE,
    judged,
    named,
    suspected_hang,
)
from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainrun.contract.agent_state import AgentState
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.incidents.losses import Loss
    from trainrun_operator.core.run.view import View


REMEDIES = {
    "NoStep": "wrap what takes long without a step in trainrun.long_section(); "
    "spec.health.progressTimeout, or hangPolicy: Restart, would end it",
    "NoWork": "look at what its processes wait for; a script that calls trainrun.report() can be "
    "watched by spec.health.progressTimeout and firstStepTimeout",
    "SectionTooLong": "spec.health.hangPolicy: Restart, or progressTimeout, would end it",
}
"""By the reason of the condition."""


def standing_still(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where there is nothing to tell."""
    if view.running is None or view.all_done:
        return "", ""
    loss = suspected_hang(view)
    if loss is not None:
        reason = _reason(view, loss)
        if evidence.stage_of(view, loss) == "Act":
            loss = evidence.explained(view, loss)
        where = f" (worker {loss.worker} on node {loss.node})" if loss.worker else ""
        return reason, f"{loss.message}{where}. Only observed: {REMEDIES[reason]}"
    known = view.status.condition(HUNG)
    return ("", "") if known is None or judged(view) else (known.reason, known.message)


def _reason(view: View, loss: Loss) -> str:
    if loss.known_by == KNOWN_BY_USE:
        return "NoWork"
    in_section = any(agent is not None and agent.section is not None for agent in view.agents)
    return "SectionTooLong" if in_section else "NoStep"


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


def trains_apart(view: View) -> tuple[str, str]:
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


CODE_DIFFERS = "CodeDiffers"
"""Type of the condition."""

FEW = 4
"""Files, and workers, that are named."""

REMEDY = (
    "Give changed code another name in workers.template (of the ConfigMap, of the image), so that "
    "all workers are made anew"
)


def code_differs(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where all that is known is the same."""
    agents = _compared(view)
    telling = [agent for agent in agents if agent is not None and agent.code]
    codes = Counter(agent.code for agent in telling)
    if len(codes) > 1 and not view.status.finished:
        usual = codes.most_common(1)[0][0]
        alike = next(agent for agent in telling if agent.code == usual)
        return "FilesDiffer", _message(view, alike, [it for it in telling if it.code != usual])
    known = view.status.condition(CODE_DIFFERS)
    unknown = any(agent is None or agent.code is None for agent in agents)
    if known is None or not view.workers or not (unknown or view.status.finished):
        return "", ""
    return known.reason, known.message


def _compared(view: View) -> tuple[AgentState | None, ...]:
    """By slot: of the attempt that runs, else those that wait for the next one."""
    if view.running is not None:
        return view.agents
    chosen = roster.choose(view)
    return tuple(w.agent if w is not None and roster.is_ready(view, w) else None for w in chosen)


def _message(view: View, alike: AgentState, others: Sequence[AgentState]) -> str:
    usual = set(alike.code or ())
    differing = {file.path for it in others for file in usual ^ set(it.code or ())}
    has = "has" if len(others) == view.config.processes_per_worker == 1 else "have"
    return (
        f"{_who(view, others)} {has} another {_few(sorted(differing))} than "
        f"{_who(view, [alike])}: the ranks of one attempt run different code. {REMEDY}"
    )


def _who(view: View, agents: Sequence[AgentState]) -> str:
    per = view.config.processes_per_worker
    ranks = [rank for it in agents for rank in range(it.slot * per, (it.slot + 1) * per)]
    noun = "worker" if len(agents) == 1 else "workers"
    return f"{named(ranks)} ({noun} {_few([it.worker for it in agents])})"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")


CONTAINER_FAILED = "ContainerFailed"
"""Type of the condition."""


def failed_beside(view: View) -> tuple[str, str]:
    """Reason and message where one has ended badly: of the lowest slot, and in how many others.

    Ignores the pods of replaced workers, which are kept for their logs.
    """
    kept = [w for w in view.workers if w.phase != "Ended" or w in view.roster]
    found = [worker.failed_beside for worker in kept if worker.failed_beside]
    if not found:
        return "", ""
    others = f"; likewise in {counted(len(found) - 1, 'other worker')}" if len(found) > 1 else ""
    return "NonZeroExit", f"{found[0]}{others}"
