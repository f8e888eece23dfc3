"""Whether a gang has hung: nobody is lost, and no rank has reported a step for too long.

Layer: core. Judged by what all agents have told of how long a step has been owed, and by nothing
that an operator has measured: what an agent has not told counts for nothing. Here only
timeouts of the spec are judged; for learned ones see `learned`. Invariants: no gang is judged
before every agent of it was heard, while one of them is overdue, while any rank is excused (it
waits for its agent, or is in a long section), while a save is asked for, and for ranks that have
ended well or never reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.causes import Cause
from trainrun_operator.core.run.incidents.losses import Loss
from trainrun_operator.core.run.view import View, counted, done, max_step, once

if TYPE_CHECKING:
    from trainrun.contract.agent_state import AgentState, LongSection
    from trainrun_operator.core.run.config import RunConfig

NAMED = 5
"""Ranks that a message names."""

KNOWN_BY = "how long ago each agent has seen its last step"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One that lives and has reported."""

    rank: int
    slot: int
    step: int


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s"


def hang_of(view: View) -> Loss | None:
    """What the newest attempt has lost by standing still; None while nothing says that it does."""
    living = living_agents(view)
    overdue = overdue_sections(living)
    if overdue and _acts_on_sections(view.config):
        return in_section(view, overdue)
    found = _limit(view, living) if living else None
    if found is None:
        return None
    limit, field = found
    told = [agent.owes for agent in living]
    owed = [timedelta(seconds=seconds) for seconds in told if seconds is not None]
    if len(owed) < len(told) or min(owed) <= limit:
        return None
    if not has_stepped(view):
        return unattributed(f"no first step within {_text(limit)} ({field})", min(owed))
    return behind(view, f"no step for {_text(limit)} ({field})", min(owed))


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
    elif any(True for agent in living for _ in ranks_of(agent)):
        limit, field = view.config.progress_timeout, "spec.health.progressTimeout"
    else:  # only ranks that never reported are left
        return None
    return (limit, field) if limit is not None else None


def has_stepped(view: View) -> bool:
    """Somebody has reported a step in the newest attempt."""
    return any(max_step(agent) is not None for agent in view.agents)


def overdue_sections(living: Sequence[AgentState]) -> dict[int, LongSection]:
    """By slot, the long sections that have taken longer than they may."""
    return {
        agent.slot: agent.section
        for agent in living
        if agent.section is not None and agent.section.lasts > agent.section.timeout
    }


def _acts_on_sections(config: RunConfig) -> bool:
    timeouts = config.progress_timeout or config.first_step_timeout
    return timeouts is not None or config.hang_policy == "Restart"


def in_section(
    view: View, overdue: Mapping[int, LongSection], *, told: Callable[[float], str] = _seconds
) -> Loss:
    """`overdue`: by slot; what a slot is now, the spec need not say. `told`: how long one lasts."""
    longest = max(overdue.values(), key=lambda section: section.lasts - section.timeout)
    message = (
        f'rank {longest.rank} has been in the long section "{longest.name}" for '
        f"{told(longest.lasts)}, which may take {longest.timeout:g} s"
    )
    loss = unattributed(message, timedelta(seconds=longest.lasts))
    ranks = {section.rank for section in overdue.values()}
    return _blamed(view, loss, set(overdue), ranks)


def behind(view: View, message: str, age: timedelta) -> Loss:
    """The ranks with the lowest step are behind, where not all have the same."""
    ranks = [rank for a in view.agents if a is not None and not done(a) for rank in ranks_of(a)]
    lowest = min(rank.step for rank in ranks)
    behind = [rank for rank in ranks if rank.step == lowest]
    others = [rank.step for rank in ranks if rank.step != lowest]
    who = named([rank.rank for rank in behind])
    stand = "stands" if len(behind) == 1 else "stand"
    message = f"{message}: {who} {stand} at step {lowest}"
    ended = sum(end.well for agent in view.agents if agent is not None for end in agent.exits)
    if others:
        low, high = min(others), max(others)
        at = f"{high}" if low == high else f"{low} to {high}"
        message = f"{message}, {counted(len(others), 'other')} at {at}"
    if ended:
        message = f"{message}, {counted(ended, 'other')} ended with exit code 0"
    loss = unattributed(message, age)
    if not others and not ended:
        return loss
    return _blamed(view, loss, {it.slot for it in behind}, {it.rank for it in behind})


def ranks_of(agent: AgentState) -> Iterator[_Rank]:
    """Those that live and have reported."""
    left = {end.rank for end in agent.exits}
    first = agent.slot * len(agent.steps)
    for rank, step in enumerate(agent.steps, first):
        if step is not None and rank not in left:
            yield _Rank(rank=rank, slot=agent.slot, step=step)


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
    (slot,) = slots
    worker = view.roster[slot]
    assert worker is not None, "it has been heard"
    return replace(
        loss,
        slot=slot,
        rank=min(ranks) if len(ranks) == 1 else None,
        worker=worker.name,
        node=worker.node,
        attributed=True,
    )


def _text(limit: timedelta) -> str:
    return _seconds(limit.total_seconds())
