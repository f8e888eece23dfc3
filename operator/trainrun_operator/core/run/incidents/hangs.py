"""Hang detection: no worker is lost, but no rank has reported a step for too long.

Layer: core; pure. It relies only on how long a step has been owed, as all agents report it, and on
no measurement of the operator: without a report there is no hang. The timeouts of the spec come
first, then those learned from the run itself. Learned ones only observe, unless the spec says
Restart; ranks that never reported are only ever observed.

Invariants: a gang is not judged before each of its agents has sent a heartbeat, while an agent is
overdue, while a rank is excused (it waits for its agent, or is in a long section), while a save is
requested, nor for ranks that ended well or never reported. A learned timeout is at least PAUSE; it
does not change during a hang; what was learned outlives the attempt. A gang that cannot be judged
keeps its state: it becomes neither hung nor well.

A rare pause, such as an evaluation, is unknown until it first happens, which may be in the first
minutes. So a gang may always pause for PAUSE, and while its processes work for a part of the time
for which it has trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from trainrun.contract.agent_state import AgentState, LongSection
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause, Learned
from trainrun_operator.core.run.incidents.losses import Loss, blamed, has_stepped
from trainrun_operator.core.run.incidents.output import (
    by_output,
    moves,
    output_of,
    timed_by_output,
)
from trainrun_operator.core.run.view import View, counted, done, once

NAMED = 5
"""Most ranks that a message names."""

KNOWN_BY = "the time since each agent saw its last step"
KNOWN_BY_OUTPUT = "the time since the output of the script last moved"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s"


def hang_of(view: View) -> Loss | None:
    """The loss where the newest attempt hangs, by the timeouts of the spec; None: no sign of it."""
    living = living_agents(view)
    overdue, config = overdue_sections(living), view.config
    timeout = config.progress_timeout or config.first_step_timeout
    if overdue and (timeout is not None or config.hang_policy == "Restart"):
        return in_section(view, overdue)
    living = by_output(view, living)
    found = _limit(view, living) if living else None
    if found is None:
        return None
    limit, field = found
    owed = [timedelta(seconds=agent.owes) for agent in living if agent.owes is not None]
    if len(owed) < len(living) or min(owed) <= limit:
        return None
    text = f"{_seconds(limit.total_seconds())} ({field})"
    if not has_stepped(view) and not moves(view):
        return unattributed(f"no first step within {text}", min(owed))
    return _without(view, f"for {text}", min(owed))


@once
def living_agents(view: View) -> tuple[AgentState, ...]:
    """The agents with living processes; none where the gang cannot be judged."""
    if view.status.save_asked is not None:
        return ()
    living = []
    for worker, agent in zip(view.roster, view.agents, strict=True):
        if worker is None or agent is None:
            return ()
        if done(agent):
            continue
        if view.is_overdue(worker):
            return ()
        living.append(agent)
    return tuple(living)


def _limit(view: View, living: Sequence[AgentState]) -> tuple[timedelta, str] | None:
    """The timeout that applies now, and its field."""
    if not has_stepped(view) and not moves(view):
        limit, field = view.config.first_step_timeout, "spec.health.firstStepTimeout"
    elif _counts_steps(living) or moves(view):
        limit, field = view.config.progress_timeout, "spec.health.progressTimeout"
    else:  # all ranks that are left never reported
        return None
    return (limit, field) if limit is not None else None


def overdue_sections(living: Sequence[AgentState]) -> dict[int, LongSection]:
    """By slot, the long sections that exceed their limit."""
    return {
        agent.slot: agent.section
        for agent in living
        if agent.section is not None and agent.section.lasts > agent.section.timeout
    }


class OwedStep(NamedTuple):
    """A step that all agents owe, or a sign of life where the script reports nothing."""

    seconds: float
    """Since when; 0: one is in a long section."""
    allowed: float
    """Seconds that it may take as this attempt goes; 0: not known yet."""


def step_owed(agents: Iterable[AgentState]) -> OwedStep | None:
    """The step that these agents with living processes owe. None: they do not tell, or a section
    exceeds its limit."""
    living: Sequence[AgentState] = [agent for agent in agents if agent.phase == "Running"]
    if not _counts_steps(living):
        living = timed_by_output(living)
    if overdue_sections(living):
        return None
    if any(agent.section is not None for agent in living):
        return OwedStep(0.0, 0.0)
    owed = [agent.owes for agent in living if agent.owes is not None]
    if not owed or len(owed) < len(living):
        return None
    slowest = _least_slowest(living) or max(map(_first_step, living))
    return OwedStep(min(owed), FACTOR * slowest)


def in_section(
    view: View, overdue: Mapping[int, LongSection], *, duration: Callable[[float], str] = _seconds
) -> Loss:
    """The loss by these long sections, by slot; `duration` formats how long one has lasted."""
    longest = max(overdue.values(), key=lambda section: section.lasts - section.timeout)
    message = (
        f"rank {longest.rank} has spent {duration(longest.lasts)} in the long section "
        f'"{longest.name}" (limit {longest.timeout:g} s)'
    )
    loss = unattributed(message, timedelta(seconds=longest.lasts))
    ranks = {section.rank for section in overdue.values()}
    return _blamed(view, loss, set(overdue), ranks)


def behind(view: View, message: str, age: timedelta) -> Loss:
    """The loss that blames the ranks with the lowest step, where not all have the same."""
    living = [agent for agent in view.heard if not done(agent)]
    steps = {rank: step for agent in living for rank, step in steps_of(agent).items()}
    lowest = min(steps.values())
    behind = {rank for rank, step in steps.items() if step == lowest}
    others = [step for step in steps.values() if step != lowest]
    are = "is" if len(behind) == 1 else "are"
    message = f"{message}: {named(sorted(behind))} {are} at step {lowest}"
    ended = sum(end.well for agent in view.heard for end in agent.exits)
    if others:
        low, high = min(others), max(others)
        at = f"{high}" if low == high else f"{low} to {high}"
        message = f"{message}, {counted(len(others), 'other')} at {at}"
    if ended:
        message = f"{message}, {counted(ended, 'other')} ended with exit code 0"
    loss = unattributed(message, age)
    if not others and not ended:
        return loss
    slots = {agent.slot for agent in living if behind & steps_of(agent).keys()}
    return _blamed(view, loss, slots, behind)


def steps_of(agent: AgentState) -> dict[int, int]:
    """The steps of its living ranks that have reported, by rank."""
    left = {end.rank for end in agent.exits}
    ranks = enumerate(agent.steps, agent.slot * len(agent.steps))
    return {rank: step for rank, step in ranks if step is not None and rank not in left}


def named(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 1, 3`; of many only the first ones."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= NAMED:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"{counted(len(ranks), 'rank')} ({', '.join(map(str, ranks[:NAMED]))}, ...)"


def unattributed(message: str, age: timedelta) -> Loss:
    """A hang without a known culprit."""
    return Loss(
        slot=0,
        cause=Cause.HUNG,
        message=message[:1000],
        known_by=KNOWN_BY,
        age=age,
        attributed=False,
    )


def _blamed(view: View, loss: Loss, slots: set[int], ranks: set[int]) -> Loss:
    """Blames the worker that is behind, if it is the only one: else the culprit is unknown."""
    if len(slots) > 1:
        return loss
    return blamed(view, loss, min(slots), min(ranks) if len(ranks) == 1 else None)


HUNG = "Hung"
"""Type of the condition."""

FACTOR = 3.0
"""How many times the slowest step may pass without the next one."""

PAUSE = 300.0
"""Seconds without a step that never count as a hang, however fast earlier steps were."""

PART, LONGEST_BUSY = 0.2, 900.0
"""Part of its training time that a run may pause while its processes use CPU or I/O, or their use
is unknown (evaluations take no more than that); and the longest such pause, in seconds."""

IDLE = 60.0
"""Seconds with almost no CPU and I/O after which processes count as idle."""

WARM_UP = 1.5
"""A later compilation may take this many times the time to the first step."""

NOTHING_DONE = 600.0
"""Seconds without CPU and I/O after which a gang that has reported nothing seems to hang."""

SHOWN_MINUTES = (1, 2, 3, 5, 10, 15, 30)
"""Minutes that messages show, then doubled each time: the status is not written in between."""

KNOWN_BY_USE = "the CPU and I/O use of the processes, as their agents measure it"


@once
def suspected_hang(view: View) -> Loss | None:
    """The loss where the newest attempt seems to hang, by the learned timeouts."""
    living = by_output(view, living_agents(view))
    overdue = overdue_sections(living)
    if overdue:
        return in_section(view, overdue, duration=at_least)
    stalled = _stalled_for(living)
    if stalled <= PAUSE:
        return None
    if _counts_steps(living) or moves(view):
        return _without_step(view, living, stalled)
    return _without_work(view, living)


def learned_hang(view: View) -> Loss | None:
    """The same, if it must end the attempt (hangPolicy: Restart)."""
    if view.config.hang_policy != "Restart":
        return None
    living = living_agents(view)
    return suspected_hang(view) if _counts_steps(living) else None


def limit_of(view: View, living: Sequence[AgentState]) -> float:
    """The learned timeout: seconds that may pass without a step."""
    idle = all((agent.quiet or 0.0) > IDLE for agent in living)
    learned = with_learned(view, view.status).learned or Learned()
    first = max(_first_step(agent) for agent in by_output(view, view.ever_heard))
    if not learned.slowest:  # after the first step, the usual time of a step is unknown
        return max(LONGEST_BUSY, FACTOR * first)
    usual = max(PAUSE, FACTOR * learned.slowest)
    # Once a hang is suspected, occasional activity of the processes does not clear it.
    if idle or view.status.evidence_asked is not None:
        return usual
    return max(usual, min(PART * learned.trained, LONGEST_BUSY), WARM_UP * first)


def with_learned(view: View, status: TrainRunStatus) -> TrainRunStatus:
    """`status`, with what was learned from the newest attempt until now."""
    before, agents = view.status.learned or Learned(), by_output(view, view.ever_heard)
    # The least of all workers is the gang's own: a worker whose peers were in a long section, or
    # waited for the store, has owed its step for just as long.
    living = by_output(view, living_agents(view))
    slowest = _least_slowest(living) or _least_slowest(agents)
    trained = max(map(_trained, agents), default=0.0)
    if not slowest and not trained:
        return status
    new = Learned(
        slowest=max(before.slowest, round(slowest, 1), 0.1 if slowest else 0.0),
        trained=round(before.trained + trained),
    )
    return replace(status, learned=new)


def can_judge(view: View) -> bool:
    """Whether a hang could be detected or ruled out now."""
    joined = (view.joined(worker) is not None for worker in view.roster)
    overdue = (w is not None and view.is_overdue(w) for w in view.roster)
    return view.status.save_asked is None and all(joined) and not any(overdue)


def at_least(seconds: float) -> str:
    """A lower bound of a duration, in words that stay the same for a while."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    least = max(step for step in SHOWN_MINUTES if step <= minutes)
    while least * 2 <= minutes:
        least *= 2
    return f"{least} min or more"


def _least_slowest(agents: Sequence[AgentState]) -> float:
    """Seconds; 0 where unknown."""
    return min((agent.slowest for agent in agents if agent.slowest), default=0.0)


def _stalled_for(living: Sequence[AgentState]) -> float:
    """Seconds for which all of them have owed a step; 0 if one of them owes none."""
    return min((agent.owes or 0.0 for agent in living), default=0.0)


def _counts_steps(living: Sequence[AgentState]) -> bool:
    return any(map(steps_of, living))


def _without_step(view: View, living: Sequence[AgentState], stalled: float) -> Loss | None:
    # Tasks have time limits of their own, and the longest may come last.
    not_ours = view.status.runs_tasks or view.config.progress_timeout is not None
    if not_ours or stalled <= limit_of(view, living):
        return None
    learned = with_learned(view, view.status).learned
    usual = "the usual time of a step is not known yet"
    if learned is not None and learned.slowest:
        usual = f"the slowest took {learned.slowest:g} s"
    age = timedelta(seconds=stalled)
    return _without(view, f"for {at_least(stalled)} ({usual})", age)


def _without(view: View, how_long: str, age: timedelta) -> Loss:
    """The loss of a gang that has made no step, or whose output has not moved, for so long. Output
    blames nobody: only one rank prints."""
    output = output_of(view)
    if output is None:
        return behind(view, f"no step {how_long}", age)
    at = "" if output.step is None else f"; its last step was {output.step}"
    message = f"the output of rank {output.rank} has not moved {how_long}{at}"
    return replace(unattributed(message, age), known_by=KNOWN_BY_OUTPUT)


def _without_work(view: View, living: Sequence[AgentState]) -> Loss | None:
    if view.config.first_step_timeout is not None and not has_stepped(view):
        return None
    quiet = min(agent.quiet or 0.0 for agent in living)
    if quiet <= NOTHING_DONE:
        return None
    message = (
        f"the processes have used almost no CPU and I/O for {at_least(quiet)} and report no step"
    )
    return replace(unattributed(message, timedelta(seconds=quiet)), known_by=KNOWN_BY_USE)


def _first_step(agent: AgentState) -> float:
    """Seconds from the spawn of its processes to their first step."""
    if agent.spawned is None or agent.first_step is None:
        return 0.0
    return max(agent.spawned - agent.first_step, 0.0)


def _trained(agent: AgentState) -> float:
    """Seconds from its first step to its newest."""
    return max((agent.first_step or 0.0) - (agent.stepped or 0.0), 0.0)
