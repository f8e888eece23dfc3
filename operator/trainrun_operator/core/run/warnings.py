"""Warnings about a gang that trains: they are conditions, cost nothing and end nothing.

Layer: core; pure. Each gives a reason and a message, both empty where all is well. Unknown is not
wrong: there is no new warning while an agent does not report, and an operator that cannot judge (a
new leader, or one that waits for a silent agent) keeps the current one. A hang is reported once,
and again when it has lasted twice as long. CodeDiffers stays until all workers of an attempt have
shown the same files. Separate trainings are certain where two launchers have each made a rank 0, or
each process is alone in MPI; where no process was seen to open the master port, it may be intended.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainrun.contract.agent_state import AgentState, Pace
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.drain import ASK_MORE
from trainrun_operator.core.run.gang import roster
from trainrun_operator.core.run.incidents import evidence
from trainrun_operator.core.run.incidents.hangs import (
    HUNG,
    KNOWN_BY_OUTPUT,
    KNOWN_BY_USE,
    can_judge,
    hang_of,
    learned_hang,
    named,
    suspected_hang,
)
from trainrun_operator.core.run.incidents.losses import Loss
from trainrun_operator.core.run.view import View, counted, done

REMEDIES = {
    "NoStep": "wrap what takes long without a step in trainrun.long_section(); "
    "spec.health.progressTimeout, or hangPolicy: Restart, would end the attempt",
    "NoOutput": "spec.health.progressTimeout would end the attempt",
    "NoWork": "check what its processes wait for; a script that calls trainrun.report() can be "
    "watched by spec.health.progressTimeout and firstStepTimeout",
    "SectionTooLong": "spec.health.hangPolicy: Restart, or progressTimeout, would end the attempt",
}
"""By the reason of the condition."""


def standing_still(view: View) -> tuple[str, str]:
    """Reason and message of the condition Hung; empty where there is nothing to report."""
    if view.running is None or view.all_done:
        return "", ""
    if hang_of(view) is not None or learned_hang(view) is not None:
        return "", ""  # the incident reports it
    loss = suspected_hang(view)
    if loss is not None and evidence.stage_of(view, loss) == "Act":
        reason, loss = _reason(view, loss), evidence.explained(view, loss)
        where = f" (worker {loss.worker} on node {loss.node})" if loss.worker else ""
        return reason, f"{loss.message}{where}. Only observed: {REMEDIES[reason]}"
    return ("", "") if loss is None and can_judge(view) else _current(view, HUNG)


def _current(view: View, kind: str) -> tuple[str, str]:
    """Reason and message of the condition in the status; empty where it is absent."""
    condition = view.status.condition(kind)
    return ("", "") if condition is None else (condition.reason, condition.message)


def _reason(view: View, loss: Loss) -> str:
    if loss.known_by == KNOWN_BY_USE:
        return "NoWork"
    if loss.known_by == KNOWN_BY_OUTPUT:
        return "NoOutput"
    in_section = any(agent.section is not None for agent in view.heard)
    return "SectionTooLong" if in_section else "NoStep"


SEPARATE = "SeparateTrainings"
"""Type of the condition, and the reason of the verdict."""
NEVER_MET: Literal["NeverMet"] = "NeverMet"
"""Reason of a success that may be a failure."""
Reason = Literal["", "TwoLeaders", "AloneInMpi", "NeverMet"]
LATE = 60.0
"""Seconds after which ranks should have formed a group; imports and data take time."""
MEANT = "set workers.independentRanks: true if this is intended"


def have_met(view: View, status: TrainRunStatus) -> bool:
    """Whether the ranks have connected to each other, in this attempt or an earlier one."""
    meetings = (agent.meeting for agent in view.heard)
    return status.met or any(
        meeting is not None and (meeting.known or meeting.elsewhere or meeting.placed)
        for meeting in meetings
    )


def separate(view: View) -> tuple[Reason, str]:
    """Why the processes of the newest attempt are separate trainings; empty: no evidence."""
    meetings = [agent.meeting for agent in view.heard if agent.meeting is not None]
    config = view.config
    if len(meetings) < config.replicas or config.independent_ranks:
        return "", ""
    if any(meeting.known or meeting.elsewhere for meeting in meetings):
        return "", ""
    number = config.world_size
    leaders = sum(len(meeting.leaders) for meeting in meetings)
    if leaders > 1:
        by = next(
            (f", started by {meeting.launcher}" for meeting in meetings if meeting.launcher), ""
        )
        return "TwoLeaders", (
            f"{leaders} of the {number} processes have a rank 0 of their own{by}: these "
            "are separate trainings, which write the same files. Start the command with torchrun "
            f"or python, without a shell or script that starts a launcher, or {MEANT}"
        )
    if leaders or have_met(view, view.status):
        return "", ""
    if all(meeting.mpi for meeting in meetings):
        return "AloneInMpi", (
            f"each of the {number} processes has loaded MPI without mpirun, so each is rank 0 of 1 "
            "and trains alone. Create the group with torch.distributed's env://, or run mpirun in "
            f"one worker of one process (command: [bash, -c, mpirun -np {number} ...]), or {MEANT}"
        )
    port = view.record.master_port if view.record is not None else 0
    return NEVER_MET, (
        f"none of the {number} processes has opened MASTER_PORT ({port}) or called trainrun, so "
        "each may train alone and write the same files. Let the script create its group from the "
        f"environment (init_process_group with env://), or {MEANT}"
    )


def trains_apart(view: View) -> tuple[str, str]:
    """Reason and message of the condition; empty where there is nothing to report."""
    current = _current(view, SEPARATE)
    if view.all_done or view.status.finished:
        return current  # the verdict reports it
    if view.running is None:
        return "", ""
    if None in view.agents:
        return current
    reason, message = separate(view)
    ages = [agent.spawned or 0.0 for agent in view.heard]
    late = reason == "TwoLeaders" or min(ages, default=0.0) >= LATE
    return (reason, message) if late else ("", "")


CODE_DIFFERS = "CodeDiffers"
"""Type of the condition."""

FEW = 4
"""Most files, and workers, that a message names."""

REMEDY = (
    "Give changed code a new name in workers.template (of the ConfigMap, of the image), so that "
    "all workers are replaced"
)


def code_differs(view: View) -> tuple[str, str]:
    """Reason and message of the condition; empty where all known files are the same."""
    agents = _compared(view)
    reporting = [agent for agent in agents if agent is not None and agent.code]
    codes = Counter(agent.code for agent in reporting)
    if len(codes) > 1 and not view.status.finished:
        usual = codes.most_common(1)[0][0]
        alike = next(agent for agent in reporting if agent.code == usual)
        return "FilesDiffer", _message(
            view, alike, [agent for agent in reporting if agent.code != usual]
        )
    unknown = any(agent is None or agent.code is None for agent in agents)
    keeps = view.workers and (unknown or view.status.finished)
    return _current(view, CODE_DIFFERS) if keeps else ("", "")


def _compared(view: View) -> tuple[AgentState | None, ...]:
    """By slot, the agents of the running attempt, else those that wait for the next one."""
    if view.running is not None:
        return view.agents
    chosen = roster.choose(view)
    return tuple(w.agent if w is not None and roster.is_ready(view, w) else None for w in chosen)


def _message(view: View, alike: AgentState, others: Sequence[AgentState]) -> str:
    usual = set(alike.code or ())
    differing = {file.path for agent in others for file in usual ^ set(agent.code or ())}
    has = "has" if len(others) == view.config.processes_per_worker == 1 else "have"
    return (
        f"{_who(view, others)} {has} a different {_few(sorted(differing))} than "
        f"{_who(view, [alike])}: the ranks of one attempt run different code. {REMEDY}"
    )


def _who(view: View, agents: Sequence[AgentState]) -> str:
    per = view.config.processes_per_worker
    ranks = [rank for agent in agents for rank in range(agent.slot * per, (agent.slot + 1) * per)]
    noun = "worker" if len(agents) == 1 else "workers"
    return f"{named(ranks)} ({noun} {_few([agent.worker for agent in agents])})"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")


CONTAINER_FAILED = "ContainerFailed"
"""Type of the condition."""


def container_failure(view: View) -> tuple[str, str]:
    """Reason and message if a container next to the training failed: of the lowest slot, and in how
    many others.

    Ignores the pods of replaced workers, which are kept for their logs.
    """
    kept = [w for w in view.workers if w.phase != "Ended" or w in view.roster]
    found = [worker.container_failure for worker in kept if worker.container_failure]
    if not found:
        return "", ""
    others = f"; the same in {counted(len(found) - 1, 'other worker')}" if len(found) > 1 else ""
    return "NonZeroExit", f"{found[0]}{others}"


STRAGGLER = "Straggler"
"""Type of the condition."""

FACTOR, NO_MORE = 1.5, 1.25
"""Factor at which a rank becomes a straggler, and below which it stops being one."""

WORKS = 0.5
"""Least part of the time that a rank is busy if others wait for it: below it, the rank itself
mostly waits."""

SHOWN_FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Factors that messages show."""

NEARLY = 1.15
"""A factor that changed by less than this keeps its message."""

SLOW = {
    "SlowSteps": "takes at least {factor:g} times as long for a step as its peers",
    "WorksLonger": (
        "computes, or waits for a CPU, at least {factor:g} times as long in each step as its "
        "peers, which seem to wait for it"
    ),
}
"""By the reason of the condition."""

ADVICE = (
    "check its node (clocks, other load), and what only this rank does. Nothing is restarted for "
    "this"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paced:
    """A rank that reports, and its pace."""

    rank: int
    worker: WorkerFact
    pace: Pace


def straggler(view: View) -> tuple[str, str]:
    """Reason and message of the condition; empty where no rank slows the others down."""
    if view.running is None or view.all_done:
        return "", ""
    current = _current(view, STRAGGLER)
    if not can_judge(view):
        return current
    ranks = _ranks(view)
    if len(ranks) < 2:
        return "", ""
    slow = _found(ranks, "SlowSteps", lambda rank: rank.pace.step, current)
    if slow is None and any(rank.pace.busy >= WORKS for rank in ranks):
        slow = _found(ranks, "WorksLonger", lambda rank: rank.pace.busy, current)
    return slow or ("", "")


def _ranks(view: View) -> list[_Paced]:
    found = []
    for worker in view.roster:
        agent = view.joined(worker)
        if worker is None or agent is None or done(agent):
            continue
        first, left = agent.slot * len(agent.paces), {end.rank for end in agent.exits}
        found += [
            _Paced(rank=rank, worker=worker, pace=pace)
            for rank, pace in enumerate(agent.paces, first)
            if pace is not None and rank not in left
        ]
    return found


def _found(
    ranks: Sequence[_Paced], reason: str, value: Callable[[_Paced], float], current: tuple[str, str]
) -> tuple[str, str] | None:
    """Reason and message if a rank's value is FACTOR times the usual one or more; else None."""
    usual = max(statistics.median_low(map(value, ranks)), 1e-3)
    for rank in ranks:
        factor = value(rank) / usual
        if (
            factor >= NO_MORE
            and current[0] == reason
            and current[1] in _readings(rank, reason, factor)
        ):
            return current
    worst = max(ranks, key=value)
    factor = value(worst) / usual
    return (reason, _slow(worst, reason, factor)) if factor >= FACTOR else None


def _readings(rank: _Paced, reason: str, factor: float) -> set[str]:
    """The messages that a factor close to this one may have produced."""
    nearly = (factor / NEARLY, factor, factor * NEARLY, max(factor, FACTOR))
    return {_slow(rank, reason, value) for value in nearly}


def _slow(rank: _Paced, reason: str, factor: float) -> str:
    shown = max((value for value in SHOWN_FACTORS if value <= factor), default=SHOWN_FACTORS[0])
    worker = rank.worker
    where = f"worker {worker.name} on node {worker.node}"
    return f"rank {rank.rank} ({where}) {SLOW[reason].format(factor=shown)}; {ADVICE}"


SAVE_TOO_LATE = "SaveTooLate"
"""Type of the condition."""

PAUSE, AHEAD = 10.0, 3
"""Seconds without a call of one rank, and how many more calls another one has made by then: ranks
in lockstep cannot be that far apart."""
APART = "while other ranks did: let all ranks call it equally often, also without data (DDP's Join)"

GAP_GROWTH = 1.5
"""The message changes when the gap has grown by this factor."""


def save_too_late(view: View, status: TrainRunStatus) -> str:
    """What a notice would cost; "" where the script would learn of it in time."""
    if view.running is None or view.all_done or view.config.on_notice in ("Signal", "Stop"):
        return ""
    grace = view.config.grace.total_seconds()
    condition = status.condition(SAVE_TOO_LATE)
    if condition is not None and APART in condition.message:
        return condition.message  # their calls cannot match again in this attempt
    if (late := _left_behind(view)) is not None:
        text = f"has not called should_save() for {PAUSE:.0f} s or more (worker {late.worker})"
        return f"a notice would lose {_at_stake(status)}: the script {text} {APART}"
    gaps = {agent.worker: agent.ask_gap for agent in view.heard}
    worker = max(gaps, key=lambda name: gaps[name], default="")
    if not worker or gaps[worker] <= grace:
        # A new leader may lack the agent that showed the gap: then the message stays.
        return condition.message if condition is not None and None in view.agents else ""
    gap = max(grace, 1.0)
    while gap * GAP_GROWTH <= gaps[worker]:
        gap *= GAP_GROWTH
    text = f"has not called should_save() for {gap:.0f} s or more (worker {worker})"
    if condition is not None and text in condition.message:
        return condition.message
    return (
        f"a notice of {grace:.0f} s would lose {_at_stake(status)}: the script {text}; {ASK_MORE}"
    )


def _left_behind(view: View) -> AgentState | None:
    """A worker with a rank that stopped calling while others continue: all save at the same call.

    Reports of agents are up to ten seconds old. So there is no warning where the leading rank may
    itself have paused that long: before its first steps, or in an evaluation of all ranks.
    """
    agents = [agent for agent in view.heard if not done(agent)]
    lead = max(agents, key=lambda agent: agent.save.calls, default=None)
    if lead is None or view.config.independent_ranks or lead.ask_gap > PAUSE:
        return None
    if (lead.first_step or 0.0) <= 2 * PAUSE:
        return None
    most = lead.save.calls
    behind = (
        agent for agent in agents if agent.fewest_calls + AHEAD <= most and agent.ask_pause > PAUSE
    )
    return next(behind, None)


def _at_stake(status: TrainRunStatus) -> str:
    """What was trained since the newest checkpoint, in words."""
    step, saved = status.progress.step, status.checkpoint
    done = (step or 0) - (saved.step if saved is not None else 0)
    return f"{done} steps" if done > 1 else "what was trained since the newest checkpoint"
