"""What a simulated agent tells: its whole state, as the next heartbeat carries it.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.contract.agent_state import (
    AgentState,
    Committed,
    Notice,
    Pace,
    Problem,
    ProcessExit,
)
from trainrun.contract.ages import aged
from trainrun.contract.evidence import Evidence, Posted, RankEvidence

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.processes import Training

MEASURED = 6.0
"""Seconds of steps after which an agent tells how its ranks work; a real one takes a minute."""


def next_state(agent: SimAgent) -> AgentState:
    """The next heartbeat of this agent."""
    agent.sequence += 1
    now = agent.world.clock.now
    training, committed = agent.training, agent.staging.committed
    commit_age = now - agent.staging.commit_at
    if committed is None:
        committed, commit_age = agent.carrying.committed, now - agent.carrying.commit_at

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
        passed=training.passed_by_all if training is not None else -1,
        finished=training is not None and training.finished.issuperset(training.ranks),
        spawned=since(training.spawned if training else None),
        first_step=since(training.first_step if training else None),
        stepped=since(training.last_step if training else None),
        owes=_owes(agent, now),
        slowest=training.slowest if training is not None else 0.0,
        quiet=_quiet(agent, now),
        paces=_paces(agent, now),
        staged=agent.staging.described(now),
        dropped=tuple(sorted(agent.staging.dropped)),
        holds=agent.carrying.holds(agent),
        copies=agent.buddy.told(),
        serves_tls=agent.name if agent.world.config.buddy else "",
        asked_for_checkpoint=training is not None and training.moved is not None,
        metrics=agent.metrics,
        posted=_posted(training),
        problems=(*agent.problems, *_away(agent)),
        fatal=agent.fatal,
        committed=Committed(id=committed, age=commit_age) if committed is not None else None,
        save=agent.vote,
        notice=stated_notice(agent),
        held=agent.desired.acknowledged,
        offer=agent.desired.offer,
        resolution=agent.resolution,
        damaged=agent.damaged,
        suspect=agent.suspect,
        rechecked=agent.rechecked,
        evidence=_evidence(agent),
        recorded=agent.recording.done,
        seen=agent.desired.seen,
    )


def _away(agent: SimAgent) -> tuple[Problem, ...]:
    """Why what it has staged is not in the store yet."""
    if agent.world.store.available or not agent.staging.owes(agent.staging.steps):
        return ()
    message = "checkpoints wait to be stored: the store is away"
    return (Problem(type="StorageUnavailable", reason="StoreUnavailable", message=message),)


def _evidence(agent: SimAgent) -> Evidence | None:
    """Where its ranks stand, as far as an agent can tell that reads no stacks; some cannot
    answer."""
    told, training = agent.desired.of_attempt, agent.training
    request = told.evidence if told is not None else None
    if request is None or training is None or request.attempt != agent.attempt:
        return None
    if int(agent.id, 16) % 4 == 0:
        return None
    ranks = tuple(RankEvidence(rank=rank, state="S") for rank in training.living)
    return Evidence(attempt=request.attempt, number=request.number, ranks=ranks)


def _owes(agent: SimAgent, now: float) -> float | None:
    """Nothing where its processes wait for a second reader of their checkpoint."""
    training = agent.training
    if training is None or not training.alive or training.moved is None:
        return None
    return None if agent.suspect is not None else now - training.moved


def _quiet(agent: SimAgent, now: float) -> float | None:
    """Whoever waits for others sleeps or computes meanwhile, by the library that it uses; who hangs
    sleeps. Some agents cannot tell."""
    training, kind = agent.training, int(agent.id, 16) % 3
    if training is None or not training.alive or training.moved is None or kind == 0:
        return None
    return now - training.moved if kind == 1 or training.hung.issuperset(training.living) else 0.0


def _paces(agent: SimAgent, now: float) -> tuple[Pace | None, ...]:
    """Measured for a while. Some ranks work longer in each step than their peers, some need longer
    for it where nobody waits for them: both are only told."""
    training = agent.training
    if training is None or training.first_step is None or now - training.first_step < MEASURED:
        return ()
    slow = 1 if int(agent.id, 16) % 4 else 3
    world = agent.world
    step = world.step_seconds * (1 if world.together else slow)
    pace = Pace(step=step, busy=0.3 * slow)
    return tuple(None if rank in training.exits else pace for rank in training.ranks)


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
