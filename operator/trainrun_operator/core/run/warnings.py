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
    if hang_of(view) is not None or learned_hang(view) is not None:
        return "", ""  # the incident tells
    loss = suspected_hang(view)
    if loss is not None and evidence.stage_of(view, loss) == "Act":
        reason, loss = _reason(view, loss), evidence.explained(view, loss)
        where = f" (worker {loss.worker} on node {loss.node})" if loss.worker else ""
        return reason, f"{loss.message}{where}. Only observed: {REMEDIES[reason]}"
    return ("", "") if loss is None and can_judge(view) else _current(view, HUNG)


def _current(view: View, kind: str) -> tuple[str, str]:
    """Reason and message of the condition, if it is there."""
    condition = view.status.condition(kind)
    return ("", "") if condition is None else (condition.reason, condition.message)


def _reason(view: View, loss: Loss) -> str:
    if loss.known_by == KNOWN_BY_USE:
        return "NoWork"
    in_section = any(agent.section is not None for agent in view.heard)
    return "SectionTooLong" if in_section else "NoStep"


SEPARATE = "SeparateTrainings"
"""Type of the condition, and the reason of the verdict."""
NEVER_MET: Literal["NeverMet"] = "NeverMet"
"""Reason of a success that may be none."""
Reason = Literal["", "TwoLeaders", "AloneInMpi", "NeverMet"]
LATE = 60.0
"""Seconds of an attempt after which a group should have been made; imports and data take time."""
MEANT = "set workers.independentRanks: true if that is meant"


def have_met(view: View, status: TrainRunStatus) -> bool:
    """Whether the ranks have met in this attempt or in one before."""
    meetings = (agent.meeting for agent in view.heard)
    return status.met or any(
        meeting is not None and (meeting.known or meeting.elsewhere or meeting.placed)
        for meeting in meetings
    )


def separate(view: View) -> tuple[Reason, str]:
    """Why the processes of the newest attempt are separate trainings; empty: nobody says so."""
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
            "are separate trainings, which write the same files. Let the command itself begin with "
            f"torchrun or python, without a shell or script that starts a launcher, or {MEANT}"
        )
    if leaders or have_met(view, view.status):
        return "", ""
    if all(meeting.mpi for meeting in meetings):
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
    current = _current(view, SEPARATE)
    if view.all_done or view.status.finished:
        return current  # the verdict tells
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
"""Files, and workers, that are named."""

REMEDY = (
    "Give changed code another name in workers.template (of the ConfigMap, of the image), so that "
    "all workers are made anew"
)


def code_differs(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where all that is known is the same."""
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
    """By slot: of the attempt that runs, else those that wait for the next one."""
    if view.running is not None:
        return view.agents
    chosen = roster.choose(view)
    return tuple(w.agent if w is not None and roster.is_ready(view, w) else None for w in chosen)


def _message(view: View, alike: AgentState, others: Sequence[AgentState]) -> str:
    usual = set(alike.code or ())
    differing = {file.path for agent in others for file in usual ^ set(agent.code or ())}
    has = "has" if len(others) == view.config.processes_per_worker == 1 else "have"
    return (
        f"{_who(view, others)} {has} another {_few(sorted(differing))} than "
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
    """Reason and message where one has ended badly: of the lowest slot, and in how many others.

    Ignores the pods of replaced workers, which are kept for their logs.
    """
    kept = [w for w in view.workers if w.phase != "Ended" or w in view.roster]
    found = [worker.container_failure for worker in kept if worker.container_failure]
    if not found:
        return "", ""
    others = f"; likewise in {counted(len(found) - 1, 'other worker')}" if len(found) > 1 else ""
    return "NonZeroExit", f"{found[0]}{others}"


STRAGGLER = "Straggler"
"""Type of the condition."""

FACTOR, NO_MORE = 1.5, 1.25
"""Times as much as usual that make a straggler, and below which one is none any more."""

WORKS = 0.5
"""Part of the time for which a rank is busy at least if others wait for it: with less it waits
itself most of the time."""

SHOWN_FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Factors that are told."""

NEARLY = 1.15
"""A factor that has changed by less reads as before."""

SLOW = {
    "SlowSteps": "takes at least {factor:g} times as long for a step as its peers",
    "WorksLonger": (
        "computes, or waits for a CPU, at least {factor:g} times as long in each step as its "
        "peers, which seem to wait for it"
    ),
}
"""By the reason of the condition."""

ADVICE = (
    "look at its node (clocks, other load), and at what only this rank does. Nothing is ended for "
    "it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paced:
    """One that reports, and how it works."""

    rank: int
    worker: WorkerFact
    pace: Pace


def straggler(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where no rank holds the others up."""
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
    """The reason and the message, if some rank has so much more than most of the others."""
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
    """What may have been said of it when its factor was nearly this one."""
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
"""Seconds for which a rank has not asked, and calls that another one has made more by then: in step
with each other they could not be so far apart."""
APART = "while other ranks did: let all ranks ask equally often, also without data (DDP's Join)"

GAP_GROWTH = 1.5
"""A gap is told anew when it has grown by this factor."""


def save_too_late(view: View, status: TrainRunStatus) -> str:
    """What a notice would cost, "" where it would be heard in time."""
    if view.running is None or view.all_done or view.config.on_notice in ("Signal", "Stop"):
        return ""
    grace = view.config.grace.total_seconds()
    condition = status.condition(SAVE_TOO_LATE)
    if condition is not None and APART in condition.message:
        return condition.message  # their calls do not fit together again in this attempt
    if (late := _left_behind(view)) is not None:
        text = f"has not asked should_save() for {PAUSE:.0f} s or more (worker {late.worker})"
        return f"a notice would lose {_at_stake(status)}: the script {text} {APART}"
    gaps = {agent.worker: agent.ask_gap for agent in view.heard}
    worker = max(gaps, key=lambda name: gaps[name], default="")
    if not worker or gaps[worker] <= grace:
        # A new leader has not heard everybody yet: that nobody says it any more is no news.
        return condition.message if condition is not None and None in view.agents else ""
    gap = max(grace, 1.0)
    while gap * GAP_GROWTH <= gaps[worker]:
        gap *= GAP_GROWTH
    text = f"has not asked should_save() for {gap:.0f} s or more (worker {worker})"
    if condition is not None and text in condition.message:
        return condition.message
    return (
        f"a notice of {grace:.0f} s would lose {_at_stake(status)}: the script {text}; {ASK_MORE}"
    )


def _left_behind(view: View) -> AgentState | None:
    """A worker of which a rank has stopped asking, while others go on: all save at one call.

    What agents tell is up to ten seconds old. So nothing is said where the one that is ahead may
    itself have paused for so long: before its first steps, or in an evaluation of all ranks.
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
    """What was trained since the newest checkpoint, at the moment when it is told."""
    step, saved = status.progress.step, status.checkpoint
    done = (step or 0) - (saved.step if saved is not None else 0)
    return f"{done} steps" if done > 1 else "what was trained since the newest checkpoint"
