"""What every agent is told, derived from the written status alone: orders copy the start record.

Layer: core.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun.protocol import (
    AgentState,
    Answer,
    CheckpointId,
    Exit,
    Hold,
    PeerSource,
    ResolveRequest,
    SaveOrder,
    Start,
)
from trainrun_operator.core import steps

if TYPE_CHECKING:
    from trainrun_operator.api.status import StartRecord
    from trainrun_operator.core.observation import WorkerFact
    from trainrun_operator.core.view import View

MAX_POLL = timedelta(seconds=10)
"""An agent asks again after this time at the latest, or after a third of the heartbeat timeout."""


def poll(view: View) -> float:
    """Seconds until an agent should ask again."""
    return min(MAX_POLL, view.config.heartbeat_timeout / 3).total_seconds()


def start_order(record: StartRecord) -> Start:
    """The start order of an attempt: a copy of its start record."""
    resume = record.resume_point
    return Start(
        attempt=record.attempt,
        workers=len(record.roster),
        world_size=record.world_size,
        master_addr=record.master_addr,
        master_port=record.master_port,
        resume=CheckpointId(attempt=resume.attempt, step=resume.step) if resume else None,
    )


def running(view: View, record: StartRecord, save: SaveOrder | None) -> dict[str, Answer]:
    """Answers while the attempt runs, for its roster; older workers are told to leave."""
    answer = Answer(
        order=start_order(record),
        save=save,
        steps=steps.open_steps(view),
        drop=steps.to_drop(view),
        committed=steps.committed_id(view),
        poll=poll(view),
    )
    leave = Answer(order=Exit(), poll=poll(view))
    sources = _sources(view)
    told = {}
    for worker in view.workers:
        if worker.agent is None:
            continue  # another agent may call under this name: first hear who it is
        place = record.roster[worker.slot] if worker.slot < len(record.roster) else None
        if place is None or worker.created_for <= place:
            told[worker.name] = leave
        if worker.created_for == place:
            order = replace(start_order(record), source=sources.get(worker.slot))
            told[worker.name] = replace(answer, order=order)
    return told


def _sources(view: View) -> dict[int, PeerSource]:
    """For each slot who reads checkpoints from the store for its node: the lowest slot's agent.

    Not part of the start record: an agent that is told of none reads the store itself.
    """
    leads: dict[str, AgentState] = {}
    found = {}
    for worker in view.roster:
        if worker is None or worker.agent is None:
            continue
        node, agent = worker.node or worker.agent.node, worker.agent
        lead = leads.setdefault(node, agent)
        if node and lead is not agent and lead.serves:
            found[worker.slot] = PeerSource(address=lead.serves, secret=lead.agent)
    return found


def gathering(
    view: View, chosen: tuple[WorkerFact | None, ...], *, resolve: bool
) -> dict[str, Answer]:
    """Answers while the next attempt is prepared: stop, finish uploads, wait; slot 0 resolves."""
    ending = view.status.ending
    left = timedelta(0)
    if ending is not None:
        left = ending.time + view.config.flush_timeout - view.observation.now
    flush = steps.to_flush(view)
    answers = {}
    for worker in view.workers:
        leads = worker.slot == 0 and worker in chosen
        hold = Hold(
            attempt=view.next_attempt,
            flush=flush,
            flush_seconds=max(0.0, left.total_seconds()),
            offer=leads,
            resolve=_resolve_request(view) if leads and resolve else None,
        )
        answers[worker.name] = Answer(
            order=hold,
            steps=steps.open_steps(view) if flush else (),
            poll=poll(view),
        )
    return answers


def _resolve_request(view: View) -> ResolveRequest:
    incident = view.status.incident
    ended = f"{incident.cause}: {incident.message}"[:500] if incident is not None else ""
    return ResolveRequest(
        attempt=view.next_attempt,
        on_existing=view.config.on_existing,
        ended=ended,
        committed=_newest_commit(view),
    )


def _newest_commit(view: View) -> CheckpointId | None:
    """The newest checkpoint that the store must know: committed, or handed out before."""
    record = view.status.start_record
    known = (view.status.checkpoint, record.resume_point if record is not None else None)
    return max(
        (CheckpointId(attempt=it.attempt, step=it.step) for it in known if it is not None),
        default=None,
    )


def leaving(view: View, *, code: int, succeeded: bool) -> dict[str, Answer]:
    """Answers when the run is over or suspended."""
    answer = Answer(order=Exit(code=code, succeeded=succeeded), poll=poll(view))
    return {worker.name: answer for worker in view.workers}
