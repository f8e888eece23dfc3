"""What a simulated agent tells: its whole state, as the next heartbeat carries it.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.contract.agent_state import AgentState, Committed, Notice, ProcessExit
from trainrun.contract.ages import aged
from trainrun.contract.posted import Posted

if TYPE_CHECKING:
    from trainrun_operator.simulation.agent import SimAgent
    from trainrun_operator.simulation.processes import Training


def next_state(agent: SimAgent) -> AgentState:
    """The next heartbeat of this agent."""
    agent.sequence += 1
    now = agent.world.clock.now
    training = agent.training

    def since(time: float | None) -> float | None:
        return None if time is None else now - time

    return AgentState(
        run=agent.world.config.name,
        run_uid=agent.world.config.uid,
        slot=agent.slot,
        worker=agent.name,
        created_for=agent.created_for,
        agent=agent.id,
        sequence=agent.sequence,
        node=f"node-{agent.name}",
        phase=agent.phase,
        attempt=agent.attempt,
        exits=_exits(training, now),
        steps=training.reported if training is not None else (),
        finished=training is not None and training.finished.issuperset(training.ranks),
        spawned=since(training.spawned if training else None),
        first_step=since(training.first_step if training else None),
        stepped=since(training.last_step if training else None),
        owes=_owes(agent, now),
        staged=tuple(agent.staged[step] for step in sorted(agent.staged)),
        dropped=tuple(sorted(agent.dropped)),
        metrics=agent.metrics,
        posted=_posted(training),
        problems=agent.problems,
        committed=Committed(id=agent.committed) if agent.committed is not None else None,
        save=agent.vote,
        notice=stated_notice(agent),
        held=agent.duty.acknowledged,
        offer=agent.duty.offer,
        resolution=agent.resolution,
        damaged=agent.damaged,
        suspect=agent.suspect,
        rechecked=agent.rechecked,
        recorded=agent.recording.done,
        seen=agent.duty.seen,
    )


def _owes(agent: SimAgent, now: float) -> float | None:
    """Nothing where its processes wait for a second reader of their checkpoint."""
    training = agent.training
    if training is None or not training.alive or training.moved is None:
        return None
    return None if agent.suspect is not None else now - training.moved


def _posted(training: Training | None) -> Posted | None:
    """Every script has a framework that posts, reports or none: no decision may differ."""
    steps = training.steps.values() if training is not None and 0 in training.ranks else ()
    return Posted(step=max(steps)) if steps else None


def _exits(training: Training | None, now: float) -> tuple[ProcessExit, ...]:
    """By rank, with their ages."""
    exits = training.exits if training is not None else {}
    return tuple(replace(end, age=now - at) for _, (end, at) in sorted(exits.items()))


def stated_notice(agent: SimAgent) -> Notice | None:
    """The notice that it has had, as it reads now."""
    if agent.notice is None:
        return None
    notice, at = agent.notice
    return aged(notice, by=agent.world.clock.now - at)
