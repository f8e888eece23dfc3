"""The agent's complete state for a heartbeat.

Layer: agent. Only reads.
"""

from __future__ import annotations

from dataclasses import replace

from trainrun.agent.attempt import Attempt
from trainrun.agent.worker_supervisor import WorkerSupervisor
from trainrun.contract.agent_state import AgentState, Notice, Problem
from trainrun.contract.evidence import OutputProgress
from trainrun.contract.masking import masked, masked_object

WHY_WIDTH = 300
"""Maximum characters of the reason for a cold start."""


def describe(
    supervisor: WorkerSupervisor,
    now: float,
    *,
    agent: str,
    sequence: int,
    notice: Notice | None,
    serves: str,
    serves_tls: str,
) -> AgentState:
    """Return the state of this `agent` for heartbeat number `sequence`; it `serves` checkpoints at
    these addresses. `now` is on the monotonic clock."""
    config, attempt = supervisor.around.config, supervisor.attempt
    state = AgentState(
        run=config.run,
        run_uid=config.run_uid,
        slot=config.slot,
        worker=config.worker,
        created_for=config.created_for,
        agent=agent,
        sequence=sequence,
        node=config.node,
        phase=supervisor.phase,
        notice=notice,
        held=supervisor.desired.acknowledged,
        code=supervisor.code_now,
        offer=supervisor.desired.offer,
        rechecked=supervisor.rechecking.done,
        evidence=supervisor.gathering.evidence,
        recorded=supervisor.recording.done,
        resolution=supervisor.resolving.resolution(now),
        problems=problems(supervisor, now),
        standby_bytes=supervisor.around.standbys.largest,
        seen=supervisor.desired.seen,
        serves=serves,
        serves_tls=serves_tls,
    )
    if attempt is None:
        return state
    state = _with_attempt(state, attempt, now)
    return replace(
        state,
        holds=supervisor.holds,
        copies=supervisor.buddy.describe(),
        committed=supervisor.committed(now),
    )


def problems(supervisor: WorkerSupervisor, now: float) -> tuple[Problem, ...]:
    """What is wrong on this worker now."""
    found = supervisor.attempt.problems(now) if supervisor.attempt is not None else ()
    carried = supervisor.carried.problem if supervisor.carried is not None else None
    own = (*supervisor.buddy.problems, carried, supervisor.ownership.problem)
    every = (*found, *(problem for problem in own if problem is not None))
    return tuple(replace(problem, message=masked(problem.message)) for problem in every)


def _with_attempt(state: AgentState, attempt: Attempt, now: float) -> AgentState:
    first, last = attempt.report.first_report, attempt.report.last_report
    return replace(
        state,
        attempt=attempt.number,
        exits=attempt.processes.exits(now),
        steps=attempt.staged.last_steps,
        passed=attempt.staged.passed_by_all,
        metrics=masked_object(dict(attempt.report.metrics)),
        posted=attempt.posts.posted,
        output=_output(attempt, now),
        staged=attempt.staged.describe(now),
        dropped=attempt.staged.dropped,
        save=attempt.voter.vote,
        fatal=attempt.uploads.fatal,
        damaged=attempt.fetching.damaged,
        suspect=attempt.fetching.suspect,
        finished=attempt.report.all_finished,
        asked_for_checkpoint=attempt.report.asked_for_checkpoint,
        spawned=now - attempt.spawned,
        first_step=None if first is None else now - first,
        stepped=None if last is None else now - last,
        owes=attempt.clock.owes(now) if attempt.processes.alive else None,
        slowest=round(attempt.clock.slowest, 3),
        quiet=attempt.activity.quiet(now) if attempt.processes.alive else None,
        paces=attempt.pacing.paces(attempt.ranks) if attempt.processes.alive else (),
        meeting=attempt.meeting,
        section=attempt.clock.section(now),
        stall=attempt.rooms.stall(now),
        saves=attempt.save_cost.reported,
        save_cost=round(attempt.save_cost.seconds, 3),
        rendezvous=attempt.loading.before(attempt.spawned),
        imports=round(max(attempt.processes.imported - attempt.spawned, 0.0), 3),
        import_bytes=attempt.processes.import_bytes,
        cold=attempt.around.standbys.cold[:WHY_WIDTH],
        warm=attempt.processes.warm,
        load=attempt.loading.seconds(now),
        ask_gap=round(attempt.asking.longest, 1),
        fewest_calls=attempt.asking.fewest,
        ask_pause=round(attempt.asking.pause, 1),
    )


def _output(attempt: Attempt, now: float) -> OutputProgress | None:
    """What its output shows. While no step is owed, none is owed to the output either."""
    found, owes = attempt.output.progress(now), attempt.clock.owes(now)
    if found is None:
        return None
    known = owes is not None and found.owes is not None and attempt.processes.alive
    return replace(found, owes=min(owes or 0.0, found.owes or 0.0) if known else None)
