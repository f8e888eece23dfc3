"""The answer to each agent, derived from the written status alone: orders copy the start record.

Layer: core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from trainrun.contract.agent_state import AgentState, Resolution
from trainrun.contract.answer import (
    POLL_INTERVAL,
    PROGRESS_INTERVAL,
    Answer,
    Exit,
    Hold,
    LostRank,
    Order,
    PartHolder,
    PeerSource,
    ResolveRequest,
    SaveOrder,
    Start,
    StoryEntry,
)
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import StartRecord
from trainrun_operator.api.run.story import chapter_text
from trainrun_operator.core.run import steps
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.causes import Explains, row_of
from trainrun_operator.core.run.drain import (
    ends_in_place,
    flush_allowed,
    flush_left,
    grace_left,
    stood_in,
    to_flush,
)
from trainrun_operator.core.run.incidents import evidence, repeats
from trainrun_operator.core.run.incidents.attribution import linger
from trainrun_operator.core.run.pairing import node_of
from trainrun_operator.core.run.storage import has_worked
from trainrun_operator.core.run.unreachable import looker
from trainrun_operator.core.run.view import View

LOST = 16
"""How many of the ranks that were lost last an answer names."""


def poll(view: View) -> float:
    """Seconds until an agent should send its next heartbeat."""
    return min(POLL_INTERVAL, (view.config.heartbeat_timeout / 3).total_seconds())


def start_order(record: StartRecord) -> Start:
    """The start order of an attempt: a copy of its start record."""
    return Start(
        attempt=record.attempt,
        workers=len(record.roster),
        world_size=record.world_size,
        master_addr=record.master_addr,
        master_port=record.master_port,
        resume=record.resume_point,
        run_id=record.run_id,
        staged=record.staged,
    )


def _answer(view: View, order: Order) -> Answer:
    """The order, with the fields that every answer has."""
    return Answer(
        order=order,
        generation=view.status.storage_generation,
        settings=view.config.settings,
        poll=poll(view),
    )


def _lost(view: View, record: StartRecord) -> tuple[LostRank, ...]:
    per_worker = record.world_size // len(record.roster)
    found = []
    before = (i for i in view.status.incidents if i.attempt < record.attempt)
    for incident in before:
        taken_away = row_of(incident.cause).explains <= Explains.EVICTION
        if taken_away or incident.collateral or incident.slot is None:
            continue
        first = incident.slot * per_worker
        ranks = range(first, first + per_worker) if incident.rank is None else (incident.rank,)
        found += [LostRank(attempt=incident.attempt, rank=rank) for rank in ranks]
    return tuple(found[-LOST:])


def running(view: View, record: StartRecord, save: SaveOrder | None) -> dict[str, Answer]:
    """Answers while the attempt runs, for its roster; older workers get the order to leave."""
    leave = _answer(view, Exit())
    start = start_order(record)
    answer = replace(
        _answer(view, start),
        progress=poll(view),
        save=save,
        steps=steps.open_steps(view),
        drop=steps.to_drop(view),
        upload=steps.to_upload(view),
        copy=steps.to_copy(view),
        copied=steps.copied_by_all(view),
        committed=steps.committed_id(view),
        # Too high where numbers were skipped; the store has some attempt up to there in any case.
        begun=record.attempt - view.status.restarts if view.status.reached else 0,
        evidence=evidence.request(view),
        lost=_lost(view, record),
    )
    sources, holders, partners = _sources(view), _holders(view, record), _partners(view)
    of_source: dict[tuple[PeerSource | None, str, tuple[PartHolder, ...]], Answer] = {}
    looks = looker(view)
    speaker = view.speaker.slot if view.speaker is not None else 0
    by_name = {}
    for worker in view.workers:
        if worker.agent is None:
            continue  # another agent may call under this name: find out first who it is
        place = record.roster[worker.slot] if worker.slot < len(record.roster) else None
        if place is None or worker.created_for <= place:
            by_name[worker.name] = leave
        if worker.created_for == place:
            own = (
                sources.get(worker.slot),
                node_of(worker) if holders else "",
                partners.get(worker.slot, ()),
            )
            # Made once for all workers of a node: most workers of a large gang get the same.
            if own not in of_source:
                source, node, copied = own
                of = holders.get(node, ())
                order = replace(start, source=source, holders=of, partners=copied)
                of_source[own] = replace(answer, order=order)
            by_name[worker.name] = of_source[own]
            if worker.slot == speaker:  # the others report progress with their next heartbeat
                by_name[worker.name] = replace(by_name[worker.name], progress=PROGRESS_INTERVAL)
        elif worker is looks:
            by_name[worker.name] = _answer(view, _look(view))
    return _with_story(view, by_name)


def _look(view: View) -> Hold:
    """An order to look at the storage and to prepare nothing."""
    request = ResolveRequest(attempt=view.next_attempt, look=True)
    return Hold(attempt=view.next_attempt, number=view.status.resumptions, resolve=request)


def _with_story(view: View, answers: dict[str, Answer]) -> dict[str, Answer]:
    """One agent gets the chapters of the run's story to store: the lowest slot that answers.

    Not before the storage is claimed: it may belong to another run.
    """
    there = (w for w in view.workers if w.name in answers and w.agent is not None)
    able = [w for w in there if w.phase == "Running" and not view.is_silent(w)]
    if not able or not view.status.story or not view.status.run_id:
        return answers
    writer = min(able, key=lambda w: (w.slot, -w.created_for)).name
    entries = tuple(
        StoryEntry(number=chapter.number, text=chapter_text(chapter))
        for chapter in view.status.story
    )
    return {**answers, writer: replace(answers[writer], story=entries)}


def _sources(view: View) -> dict[int, PeerSource]:
    """By slot, the agent that reads checkpoints from the store for its node: the lowest slot's.

    Not part of the start record: an agent without a source reads the store itself.
    """
    leads: dict[str, AgentState] = {}
    found = {}
    for worker in view.roster:
        if worker is None or worker.agent is None:
            continue
        node, agent = node_of(worker), worker.agent
        lead = leads.setdefault(node, agent)
        if node and lead is not agent and lead.serves:
            found[worker.slot] = PeerSource(address=lead.serves, secret=lead.agent)
    return found


MOST_HOLDERS = 64
"""How many agents of a node an answer names."""


def _holders(view: View, record: StartRecord) -> dict[str, tuple[PartHolder, ...]]:
    """By node, the agents with a part of a resume point that is on the disks."""
    found: dict[str, tuple[PartHolder, ...]] = {}
    for worker in view.roster if record.staged else ():
        if worker is not None and worker.agent is not None and worker.agent.serves:
            source = PeerSource(address=worker.agent.serves, secret=worker.agent.agent)
            before = found.get(node_of(worker), ())
            holder = PartHolder(slot=worker.slot, source=source)
            found[node_of(worker)] = (*before, holder)[:MOST_HOLDERS]
    found.pop("", None)
    return found


def _partners(view: View) -> dict[int, tuple[PartHolder, ...]]:
    """By slot, the workers whose buddy it is for the step that is copied."""
    found: dict[int, tuple[PartHolder, ...]] = {}
    for slot, buddy in sorted(steps.pairs_to_copy(view).items()):
        agent = view.agents[slot]
        if agent is not None:
            source = PeerSource(address=agent.serves_tls, secret=agent.agent)
            found[buddy] = (*found.get(buddy, ()), PartHolder(slot=slot, source=source))
    return found


def gathering(
    view: View,
    lead: WorkerFact | None,
    *,
    resolve: bool,
    claimed: Resolution | None,
    held: CheckpointId | None,
    prefetch: Mapping[str, CheckpointId],
) -> dict[str, Answer]:
    """Answers while the next attempt is prepared: stop, finish uploads, wait.

    `lead`, the worker that will take slot 0, offers a port and resolves. The others prove that they
    can read the checkpoint that it has `claimed` or most likely will. `prefetch`: by worker name,
    the checkpoint to read ahead; `held`: the newest one on the disks of all.
    """
    flush = to_flush(view)
    hold = Hold(
        attempt=view.next_attempt,
        number=view.status.resumptions,
        flush=flush,
        in_place=ends_in_place(view),
        grace_seconds=grace_left(view).total_seconds(),
        linger_seconds=linger(view),
        flush_seconds=flush_left(view).total_seconds(),
        flush_allowed=flush_allowed(view).total_seconds(),
    )
    answer = replace(_answer(view, hold), steps=steps.open_steps(view) if flush else ())
    proves = replace(hold, resolve=_read_request(view, claimed))
    proving = replace(answer, order=proves)
    # No worker of slot 0 proves: once it leads, its proof would be taken for a claim.
    by_name = {w.name: answer if w.slot == 0 or w.agent is None else proving for w in view.workers}
    standing_in = stood_in(view)
    for name in {*prefetch, *standing_in}:
        own = hold if by_name[name] is answer else proves
        own = replace(own, stand_in=standing_in.get(name, ()), prefetch=prefetch.get(name))
        by_name[name] = replace(answer, order=own)
    if lead is not None:
        request = _resolve_request(view, held) if resolve else None
        asked = replace(
            hold,
            stand_in=standing_in.get(lead.name, ()),
            prefetch=prefetch.get(lead.name),
            offer=True,
            resolve=request,
        )
        by_name[lead.name] = replace(answer, order=asked)
    return _with_story(view, by_name)


def _resolve_request(view: View, held: CheckpointId | None) -> ResolveRequest:
    incident = view.status.incident
    ended = f"{incident.cause}: {incident.message}"[:500] if incident is not None else ""
    return ResolveRequest(
        attempt=view.next_attempt,
        on_existing=_on_existing(view),
        ended=ended,
        committed=steps.newest_known(view),
        trial_of=repeats.to_try(view),
        staged=held,
        workers=view.config.replicas if held is not None else 0,
    )


def _read_request(view: View, claimed: Resolution | None) -> ResolveRequest | None:
    point = claimed.resume if claimed is not None else steps.newest_known(view)
    if point is None and not has_worked(view):
        return None  # nothing to read yet
    return ResolveRequest(attempt=view.next_attempt, committed=point, proof=True)


def _on_existing(view: View) -> Literal["Resume", "Fail", "StartFresh"]:
    """A run stays in the generation that it has claimed: an edit does not begin another one."""
    asked = view.config.on_existing
    return "Resume" if asked == "StartFresh" and view.status.storage_generation else asked


def leaving(view: View, *, code: int, succeeded: bool) -> dict[str, Answer]:
    """Answers when the run is over or suspended."""
    order = Exit(
        code=code,
        succeeded=succeeded,
        attempt=view.next_attempt,
        number=view.status.resumptions,
    )
    answer = _answer(view, order)
    return _with_story(view, {worker.name: answer for worker in view.workers})
