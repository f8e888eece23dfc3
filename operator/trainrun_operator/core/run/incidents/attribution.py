"""Make one incident of all losses of an attempt: find its best explanation, and settle it.

Layer: core. Order of explanations: what the world announced or knows (driver gone, notice, node),
out of memory, what the script itself declares, signal, exception, silence, a failed rendezvous, an
exception that looks like a broken collective; among equals the first to happen, then the lowest
slot. Each names its culprit better than the later ones, which are often its consequences. A later
event does not explain an earlier one, except for a short time where the cause is unknown. `ledger`
decides what follows from the incident. Every write that ends its provisional state contains
`settled`, so it is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from trainrun._common.text import newest_of, one_line
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause, Incident
from trainrun_operator.core.run import times
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.causes import Explains, row_of, signal_of
from trainrun_operator.core.run.drain import NOT_ASKED, acknowledged
from trainrun_operator.core.run.incidents import attempt_progress, ledger, repeats
from trainrun_operator.core.run.incidents.losses import (
    SEEN_BY_WORLD,
    Loss,
    losses_of,
    taken_away,
)
from trainrun_operator.core.run.view import View, notice_of

LINES_TEXT = 2000
"""Most characters that the last lines of an incident take together."""


LINGER = 2.0
"""Seconds within which a process exits after it closed its connections; our choice."""
NODE_EVIDENCE = timedelta(seconds=30)
"""Added to the heartbeat timeout: by then a dead node is known to be dead."""


def best(losses: Iterable[Loss]) -> Loss | None:
    """The loss that explains the incident best."""
    return min(losses, key=_rank, default=None)


def _rank(loss: Loss) -> tuple[Explains, timedelta, int]:
    return _explains(loss, signalled=loss.signalled), -loss.age, loss.slot


def _explains(evidence: Loss | Incident, *, signalled: bool) -> Explains:
    plain = row_of(evidence.cause).explains
    if plain not in (Explains.EXCEPTION, Explains.LITTLE):
        return plain
    if evidence.collateral:
        return Explains.CONSEQUENCE
    if signalled:
        return Explains.SIGNAL
    return plain if evidence.exit_code is None else Explains.EXCEPTION


def incident_of(loss: Loss, *, attempt: int, now: datetime) -> Incident:
    """The provisional incident for this loss; its budget is not known yet."""
    return Incident(
        attempt=attempt,
        cause=loss.cause.value,
        slot=loss.slot if loss.attributed else None,
        rank=loss.rank,
        worker=loss.worker[:253],
        node=loss.node[:253],
        exit_code=loss.exit_code,
        container=loss.container[:63],
        exception=tuple(kind[:120] for kind in loss.exception[:16]),
        raised_at=loss.raised_at[:120],
        known_by=loss.known_by,
        message=one_line(loss.message)[:1000],  # for events and tables
        last_lines=newest_of(loss.last_lines[-20:], LINES_TEXT),
        hang=loss.hang,
        evidence=loss.evidence,
        collateral=loss.collateral,
        time=now,
        detect_seconds=round(loss.age.total_seconds(), 3),
    )


def refined(view: View, incident: Incident) -> Incident:
    """The open incident, with a better explanation if one has been seen since.

    Its attempt and the time it was first seen never change. Only a better explanation replaces
    another one, so workers that were replaced meanwhile do not blur it.
    """
    record = view.record
    if record is None:  # a failed start, or a newer attempt number
        return incident
    losses = [loss for loss in losses_of(view) if _may_explain(view, incident, loss)]
    loss = best([*losses, *_announced(view, incident)])
    if loss is None:
        return incident
    better = incident_of(loss, attempt=incident.attempt, now=incident.time)
    if explains(better) >= explains(incident) and not _names_the_sender(incident, better):
        return incident
    _, mark, rest = incident.message.partition(NOT_ASKED)
    better = replace(better, message=f"{better.message}{mark}{rest}"[:1000])
    return replace(
        repeats.marked(view, record, better),
        detect_seconds=incident.detect_seconds,
        step=incident.step,
        template=incident.template,
    )


def _announced(view: View, incident: Incident) -> Iterator[Loss]:
    """The loss by a notice, if the world has since announced who sent the incident's SIGTERM.

    It came before whatever else the worker's processes die of."""
    worker = _worker_of(view, incident)
    if worker is not None and worker.notice is not None and _sender_unknown(incident):
        yield replace(taken_away(worker, worker.notice), known_by=SEEN_BY_WORLD)


def _worker_of(view: View, incident: Incident) -> WorkerFact | None:
    return next((w for w in view.workers if w.name == incident.worker), None)


def _names_the_sender(incident: Incident, better: Incident) -> bool:
    """Whether `better` says who sent the SIGTERM, as the world knows it."""
    return _sender_unknown(incident) and better.known_by == SEEN_BY_WORLD


def _sender_unknown(incident: Incident) -> bool:
    return explains(incident) is Explains.SIGTERM and incident.known_by != SEEN_BY_WORLD


def _may_explain(view: View, incident: Incident, loss: Loss) -> bool:
    """Whether the loss began before the incident was seen, or both its time and the cause of the
    incident are unknown.

    A loss of the incident's own worker may begin later: the last heartbeat from a dead node can be
    read after the failures of its peers.
    """
    own = loss.worker == incident.worker
    if own and (_sender_unknown(incident) or _explains_the_exit_code(incident, loss)):
        return True
    late = view.observation.now - incident.time
    worker = view.roster[loss.slot]
    if worker is not None:
        late -= _began(worker, loss)
        if late <= timedelta(0):
            return True
        if worker.agent is None:  # this operator never had a heartbeat from it
            return explains(incident) >= Explains.LITTLE
    weak = Explains.LITTLE if own else Explains.RENDEZVOUS
    return explains(incident) >= weak and late <= _patience(view)


def _explains_the_exit_code(incident: Incident, loss: Loss) -> bool:
    """Whether the loss is the SIGTERM behind an incident of which only the exit code is known.

    The SIGTERM came before the end of the worker, however late it is reported."""
    only_its_code = row_of(incident.cause).explains is Explains.LITTLE
    sigterm = row_of(loss.cause).explains is Explains.SIGTERM
    return only_its_code and incident.exit_code is not None and sigterm


def _began(worker: WorkerFact, loss: Loss) -> timedelta:
    """How long ago the loss began, as far as is known: the world may report it late."""
    if loss.rank is not None:  # the agent knows exactly when a process ended
        return loss.age
    by_notice = loss.cause in (Cause.PREEMPTED, Cause.TERMINATED)
    notice = notice_of(worker) if by_notice else None
    announced = timedelta(seconds=notice.age) if notice is not None else timedelta(0)
    return max(loss.age, announced, worker.silent_for)


def _patience(view: View) -> timedelta:
    """The longest time until everything that belongs to one loss has been seen."""
    return view.config.heartbeat_timeout + NODE_EVIDENCE


def explains(incident: Incident) -> Explains:
    """How well the incident explains the other losses of its attempt."""
    return _explains(incident, signalled=signal_of(incident) is not None)


def attribution_open(view: View, incident: Incident) -> bool:
    """Whether a better explanation may still come, so the run must not fail for this one yet.

    Where only consequences are known: from a worker that has not yet reported what happened to it.
    Where a worker is silent: from its node, since a dead node is noticed later than a dead agent.
    Where a worker got SIGTERM: from the end of its pod.
    """
    match explains(incident):
        case Explains.SIGTERM:
            return sender_awaited(view, incident)
        case Explains.LITTLE:
            return _node_may_explain(view, incident)
        case Explains.RENDEZVOUS | Explains.CONSEQUENCE:
            slots = range(len(view.roster))
            return any(_may_still_answer(view, incident, slot) for slot in slots)
        case _:
            return False


def awaited(view: View, worker: WorkerFact) -> bool:
    """Whether this worker may still explain the open incident: it has not answered the order to
    stop.

    An edit or a notice does not replace it before that, or its explanation would be lost.
    """
    incident = view.status.incident
    if incident is None or worker not in view.roster or not attribution_open(view, incident):
        return False
    if _sender_unknown(incident):
        return worker.name == incident.worker
    if worker.agent is not None and acknowledged(view, worker.agent):
        return False
    return _may_still_answer(view, incident, worker.slot)


def linger(view: View) -> float:
    """Seconds to let processes end by themselves; 0 unless only consequences are known.

    A process closes its connections before it exits, with CUDA by a second or two. A culprit killed
    in that time could not be blamed any longer, and a peer that lost it would be.
    """
    incident = view.status.incident
    if incident is None or view.observation.now - incident.time >= timedelta(seconds=LINGER):
        return 0.0
    only_consequences = explains(refined(view, incident)) is Explains.CONSEQUENCE
    return LINGER if only_consequences else 0.0


def _node_may_explain(view: View, incident: Incident) -> bool:
    if incident.slot is None or view.observation.now - incident.time >= _patience(view):
        return False
    worker = view.roster[incident.slot] if incident.slot < len(view.roster) else None
    if worker is None or worker.phase == "Ended":
        return False
    return bool(worker.node) and view.is_silent(worker)


def sender_awaited(view: View, incident: Incident | None) -> bool:
    """Whether the worker that got SIGTERM may still end within its grace, or turn out lost."""
    if incident is None or not _sender_unknown(incident):
        return False
    worker = _worker_of(view, incident)
    if worker is None or worker.phase == "Ended":
        return False
    grace = timedelta(0) if view.is_silent(worker) else view.config.grace
    return view.observation.now - incident.time < grace + _patience(view)


def _may_still_answer(view: View, incident: Incident, slot: int) -> bool:
    worker, agent = view.roster[slot], view.agents[slot]
    if worker is None:
        return False
    since = view.observation.now - incident.time
    timeout = view.config.heartbeat_timeout
    if agent is None:  # no heartbeat reached this operator, or none in this attempt
        patience = timeout if worker.phase == "Ended" else _patience(view)
        return min(since, view.observation.listening_for) <= patience
    if agent.phase != "Running":
        return False
    # An overdue agent calls, or soon counts as silent: then it says nothing more.
    return since < timeout or (view.is_overdue(worker) and not view.is_silent(worker))


def made_progress(view: View) -> bool:
    """Whether the newest attempt passed every step reached before, or committed a newer checkpoint.

    A run that fails before that makes no progress, however many steps it repeats.
    """
    reported = attempt_progress.highest_step(view) is not None or attempt_progress.advanced(view)
    return reported and attempt_progress.gained(view)


def fruitless_after(view: View, incident: Incident) -> int:
    """Attempts in a row without a new step, the one that this incident ends included.

    An end that is free at first does not count as training, however long the attempt took;
    otherwise it would always stay free.
    """
    row = row_of(incident.cause)
    trained = (
        not row.free_tries and incident.cause != Cause.HUNG and attempt_progress.gang_trained(view)
    )
    if made_progress(view) or trained:
        return 0
    return view.status.fruitless + row.slows_down


def fruitless_refined(view: View, incident: Incident) -> int:
    """The same after a better explanation: before it, the attempt may have looked like training."""
    free = row_of(incident.cause).free_tries and not made_progress(view)
    return max(view.status.fruitless, 1) if free else view.status.fruitless


def opened(view: View, status: TrainRunStatus, incident: Incident) -> TrainRunStatus:
    """`status` with this open incident, and with budgets that include it."""
    charged = ledger.charged(status, incident, view.config)
    failures = ledger.tally(status, view.config, pending=charged, at=view.observation.now)
    return replace(status, incident=charged, failures=failures)


def settled(view: View, status: TrainRunStatus) -> TrainRunStatus:
    """`status` with its open incident, if it has one, charged to its budget.

    Every write that ends the provisional state of an incident contains it, so it is counted once.
    """
    if status.incident is None:
        return status
    incident = refined(view, status.incident)
    failures, incidents = ledger.settle(status, incident, view.config)
    last = incidents[-1]
    moments = ledger.remembered(status.moments, last) if last.counted else status.moments
    counted = replace(status, failures=failures, moments=moments)
    return replace(
        counted,
        failures=ledger.tally(counted, view.config, pending=None, at=view.observation.now),
        incidents=incidents,
        incident=None,
        free_ends=ledger.free_ends_after(status, incident, view.config),
        tried=repeats.tried(status, incident),
        reached=attempt_progress.furthest(view),
        stepped_from=attempt_progress.stepped_from(view),
        without_progress=ledger.in_a_row(view, incident),
    )


def measured(view: View, status: TrainRunStatus, point: CheckpointId | None) -> TrainRunStatus:
    """`settled`, with the cost of the incident, now that the next attempt starts from `point`."""
    if status.incident is None:
        return status
    status = settled(view, status)
    last = status.incidents[-1]
    priced = replace(
        last,
        resumed_from=point,
        lost_steps=_lost_steps(view, last, point),
        restart_seconds=round((view.observation.now - last.time).total_seconds(), 3),
    )
    priced = replace(priced, stages=times.until_start(view, priced))
    # Only the newest recovery keeps its stages: the status must stay small.
    before = tuple(replace(incident, stages={}, cold="") for incident in status.incidents[:-1])
    return replace(status, incidents=(*before, priced))


def _lost_steps(view: View, incident: Incident, point: CheckpointId | None) -> int | None:
    reached = attempt_progress.highest_step(view)
    if reached is None:
        return None
    resumed = point.step if point is not None else 0
    kept = reached if view.status.runs_tasks else resumed
    lost = max(reached - kept, 0)
    # What a gang did after its operator was gone is unknown, which is not zero.
    unknown = row_of(incident.cause).explains is Explains.TAKEOVER and not lost
    return None if unknown else lost
