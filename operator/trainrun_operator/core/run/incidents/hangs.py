"""Whether a gang has hung: nobody is lost, and no rank has reported a step for too long.

Layer: core; pure. Judged by what all agents have told of how long a step has been owed, and by
nothing that an operator has measured: what an agent has not told counts for nothing. First by the
timeouts of the spec, then by those that the run has taught by itself: these only observe, unless
the spec says Restart, and ranks that never reported are only ever observed.

Invariants: no gang is judged before every agent of it was heard, while one of them is overdue,
while any rank is excused (it waits for its agent, or is in a long section), while a save is asked
for, and for ranks that have ended well or never reported. A learned timeout is at least PAUSE;
while a gang stands still it does not change; what was learned outlives the attempt; whoever cannot
be judged is not called hung, and one that was is not called well.

A pause that comes seldom, such as an evaluation, is not known before it has come once, and the
first may come in the first minutes. So a gang may always pause for PAUSE, and for a part of the
time for which it has trained where its processes work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from trainrun.contract.agent_state import AgentState, LongSection
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause, Learned
from trainrun_operator.core.run.incidents.losses import Loss, blamed, has_stepped
from trainrun_operator.core.run.view import View, counted, done, once

NAMED = 5
"""Ranks that a message names."""

KNOWN_BY = "how long ago each agent has seen its last step"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s"


def hang_of(view: View) -> Loss | None:
    """What the newest attempt has lost by standing still; None while nothing says that it does."""
    living = living_agents(view)
    overdue, config = overdue_sections(living), view.config
    timeout = config.progress_timeout or config.first_step_timeout
    if overdue and (timeout is not None or config.hang_policy == "Restart"):
        return in_section(view, overdue)
    found = _limit(view, living) if living else None
    if found is None:
        return None
    limit, field = found
    owed = [timedelta(seconds=agent.owes) for agent in living if agent.owes is not None]
    if len(owed) < len(living) or min(owed) <= limit:
        return None
    text = f"{_seconds(limit.total_seconds())} ({field})"
    if not has_stepped(view):
        return unattributed(f"no first step within {text}", min(owed))
    return behind(view, f"no step for {text}", min(owed))


@once
def living_agents(view: View) -> tuple[AgentState, ...]:
    """The agents of which processes live; none where they cannot be judged."""
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
    """The timeout that holds now, and its name."""
    if not has_stepped(view):
        limit, field = view.config.first_step_timeout, "spec.health.firstStepTimeout"
    elif _counts_steps(living):
        limit, field = view.config.progress_timeout, "spec.health.progressTimeout"
    else:  # only ranks that never reported are left
        return None
    return (limit, field) if limit is not None else None


def overdue_sections(living: Sequence[AgentState]) -> dict[int, LongSection]:
    """By slot, the long sections that have taken longer than they may."""
    return {
        agent.slot: agent.section
        for agent in living
        if agent.section is not None and agent.section.lasts > agent.section.timeout
    }


def in_section(
    view: View, overdue: Mapping[int, LongSection], *, duration: Callable[[float], str] = _seconds
) -> Loss:
    """`overdue`: by slot; what a slot is now, the spec need not say. `told`: how long one lasts."""
    longest = max(overdue.values(), key=lambda section: section.lasts - section.timeout)
    message = (
        f'rank {longest.rank} has been in the long section "{longest.name}" for '
        f"{duration(longest.lasts)}, which may take {longest.timeout:g} s"
    )
    loss = unattributed(message, timedelta(seconds=longest.lasts))
    ranks = {section.rank for section in overdue.values()}
    return _blamed(view, loss, set(overdue), ranks)


def behind(view: View, message: str, age: timedelta) -> Loss:
    """The ranks with the lowest step are behind, where not all have the same."""
    living = [agent for agent in view.heard if not done(agent)]
    steps = {rank: step for agent in living for rank, step in steps_of(agent).items()}
    lowest = min(steps.values())
    behind = {rank for rank, step in steps.items() if step == lowest}
    others = [step for step in steps.values() if step != lowest]
    stand = "stands" if len(behind) == 1 else "stand"
    message = f"{message}: {named(sorted(behind))} {stand} at step {lowest}"
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
    """By rank, of those that live and have reported."""
    left = {end.rank for end in agent.exits}
    ranks = enumerate(agent.steps, agent.slot * len(agent.steps))
    return {rank: step for rank, step in ranks if step is not None and rank not in left}


def named(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 1, 3`; of many the first ones."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= NAMED:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"{counted(len(ranks), 'rank')} ({', '.join(map(str, ranks[:NAMED]))}, ...)"


def unattributed(message: str, age: timedelta) -> Loss:
    """Nobody is to blame, as far as is known."""
    return Loss(
        slot=0,
        cause=Cause.HUNG,
        message=message[:1000],
        known_by=KNOWN_BY,
        age=age,
        attributed=False,
    )


def _blamed(view: View, loss: Loss, slots: set[int], ranks: set[int]) -> Loss:
    """The only worker that is behind is to blame; of several nobody knows which one is."""
    if len(slots) > 1:
        return loss
    return blamed(view, loss, min(slots), min(ranks) if len(ranks) == 1 else None)


HUNG = "Hung"
"""Type of the condition."""

FACTOR = 3.0
"""Times the slowest step that may pass without the next one."""

PAUSE = 300.0
"""Seconds without a step that are never called a hang, however fast the steps before were."""

PART, LONGEST_BUSY = 0.2, 900.0
"""Of the time for which a run has trained, that it may pause where its processes use CPU or I/O, or
nobody knows what they do: evaluations take no more of it; and seconds of such a pause at most."""

IDLE = 60.0
"""Seconds with next to no CPU and I/O after which processes count as idle."""

WARM_UP = 1.5
"""Times as long as up to its first step a gang may compile again later."""

NOTHING_DONE = 600.0
"""Seconds without CPU and I/O, of a gang that has reported nothing, that look like a hang."""

SHOWN_MINUTES = (1, 2, 3, 5, 10, 15, 30)
"""Minutes that are told, and twice as many each time: a status is not written in between."""

KNOWN_BY_USE = "what the processes have used of CPU and I/O, as their agents measure it"


@once
def suspected_hang(view: View) -> Loss | None:
    """What the newest attempt would have lost by standing still, by what was learned."""
    living = living_agents(view)
    overdue = overdue_sections(living)
    if overdue:
        return in_section(view, overdue, duration=at_least)
    stalled = _stalled_for(living)
    if stalled <= PAUSE:
        return None
    if _counts_steps(living):
        return _without_step(view, living, stalled)
    return _without_work(view, living)


def learned_hang(view: View) -> Loss | None:
    """The same, where it ends the attempt."""
    if view.config.hang_policy != "Restart":
        return None
    living = living_agents(view)
    return suspected_hang(view) if _counts_steps(living) else None


def limit_of(view: View, living: Sequence[AgentState]) -> float:
    """Seconds that may pass without a step."""
    idle = all((agent.quiet or 0.0) > IDLE for agent in living)
    learned = with_learned(view, view.status).learned or Learned()
    first = max(_first_step(agent) for agent in view.ever_heard)
    if not learned.slowest:  # there was one step, and nobody knows yet how long the next one takes
        return max(LONGEST_BUSY, FACTOR * first)
    usual = max(PAUSE, FACTOR * learned.slowest)
    # Called hung once, a gang whose processes do something now and then is not called well for it.
    if idle or view.status.evidence_asked is not None:
        return usual
    return max(usual, min(PART * learned.trained, LONGEST_BUSY), WARM_UP * first)


def with_learned(view: View, status: TrainRunStatus) -> TrainRunStatus:
    """`status`, with what the newest attempt has taught up to now."""
    before, agents = view.status.learned or Learned(), view.ever_heard
    # The gang has owed no step for longer than any worker: one whose peers were in a long section,
    # or waited for the store, has owed one for just as long.
    slowest = _least_slowest(living_agents(view)) or _least_slowest(agents)
    trained = max(map(_trained, agents), default=0.0)
    if not slowest and not trained:
        return status
    new = Learned(
        slowest=max(before.slowest, round(slowest, 1), 0.1 if slowest else 0.0),
        trained=round(before.trained + trained),
    )
    return replace(status, learned=new)


def can_judge(view: View) -> bool:
    """Whether anybody could say now that the gang stands still, or that it does not."""
    joined = (view.joined(worker) is not None for worker in view.roster)
    overdue = (w is not None and view.is_overdue(w) for w in view.roster)
    return view.status.save_asked is None and all(joined) and not any(overdue)


def at_least(seconds: float) -> str:
    """How long something has taken at least, so that it reads the same for a while."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    shown = max(step for step in SHOWN_MINUTES if step <= minutes)
    while shown * 2 <= minutes:
        shown *= 2
    return f"{shown} min or more"


def _least_slowest(agents: Sequence[AgentState]) -> float:
    """Seconds; 0 where nobody knows."""
    return min((agent.slowest for agent in agents if agent.slowest), default=0.0)


def _stalled_for(living: Sequence[AgentState]) -> float:
    """Seconds for which all of them have owed a step; 0 where one of them owes none."""
    return min((agent.owes or 0.0 for agent in living), default=0.0)


def _counts_steps(living: Sequence[AgentState]) -> bool:
    return any(map(steps_of, living))


def _without_step(view: View, living: Sequence[AgentState], stalled: float) -> Loss | None:
    # Of tasks the longest may come last; each has a time limit of its own.
    not_ours = view.status.runs_tasks or view.config.progress_timeout is not None
    if not_ours or stalled <= limit_of(view, living):
        return None
    learned = with_learned(view, view.status).learned
    usual = "how long one takes is not known yet"
    if learned is not None and learned.slowest:
        usual = f"one took {learned.slowest:g} s at most"
    age = timedelta(seconds=stalled)
    return behind(view, f"no step for {at_least(stalled)}, and {usual}", age)


def _without_work(view: View, living: Sequence[AgentState]) -> Loss | None:
    if view.config.first_step_timeout is not None and not has_stepped(view):
        return None
    quiet = min(agent.quiet or 0.0 for agent in living)
    if quiet <= NOTHING_DONE:
        return None
    message = (
        f"the processes have used next to no CPU and I/O for {at_least(quiet)}, and report no step"
    )
    return replace(unattributed(message, timedelta(seconds=quiet)), known_by=KNOWN_BY_USE)


def _first_step(agent: AgentState) -> float:
    """Seconds from the spawn of its processes to their first step."""
    if agent.spawned is None or agent.first_step is None:
        return 0.0
    return max(agent.spawned - agent.first_step, 0.0)


def _trained(agent: AgentState) -> float:
    """Seconds from its first to its newest step."""
    return max((agent.first_step or 0.0) - (agent.stepped or 0.0), 0.0)
