"""The stage of a running attempt: checks for losses, the end, and reasons to save and stop.

Layer: core. The checks of STAGE are tried in order; the first that returns a plan wins.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import PhaseName, StartRecord
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run import answers, steps, transitions, unreachable
from trainrun_operator.core.run.boundary import Event, Plan, WorkerFact
from trainrun_operator.core.run.display import refreshed, running_phase
from trainrun_operator.core.run.gang.roster import deletions, looking, surplus
from trainrun_operator.core.run.incidents import ended_early, evidence
from trainrun_operator.core.run.incidents.attribution import best
from trainrun_operator.core.run.incidents.hangs import hang_of, learned_hang, suspected_hang
from trainrun_operator.core.run.incidents.losses import Loss, losses_of
from trainrun_operator.core.run.stages import preempting, waiting
from trainrun_operator.core.run.stages.waiting import IDLE_CHECK
from trainrun_operator.core.run.view import A_MOMENT, View
from trainrun_operator.core.run.warnings import NEVER_MET, SEPARATE, separate

FINISH_TIMEOUT = timedelta(minutes=10)
"""How long the commit of the last checkpoint may take after all processes have ended."""

TRAINING_CHECK = timedelta(seconds=15)
"""Look again at least this often while all train: less often than the operator reads the progress
of a run, or these looks would be the main cost of a fleet."""

DOUBT_ADVICE = "Check that the training is complete; a script confirms it with trainrun.finish()"

Check = Callable[[View, StartRecord], Plan | None]


def decide(view: View, record: StartRecord) -> Plan:
    """The plan for a running attempt."""
    for check in STAGE:
        plan = check(view, record)
        if plan is not None:
            return plan
    return _go_on(view, record)


def _overtaken(view: View, _: StartRecord) -> Plan | None:
    """An agent runs a higher attempt, or may already do so."""
    ahead = view.highest_attempt
    return transitions.skip_to(view, ahead) if ahead > view.status.attempt else None


def _script_error(view: View, _: StartRecord) -> Plan | None:
    """Fail on an error of the script that the next attempt would only repeat."""
    for agent in view.heard:
        if agent.fatal is not None:
            return transitions.fail(view, agent.fatal.reason, agent.fatal.message)
    return None


def _damage(view: View, record: StartRecord) -> Plan | None:
    """The attempt's checkpoint cannot be read: return to the one before it."""
    handed = record.resume_point
    for slot, agent in enumerate(view.agents):
        if agent is not None and agent.damaged is not None and agent.damaged.id == handed:
            message = f"checkpoint {agent.damaged.id.name} is damaged: {agent.damaged.message}"
            loss = Loss(
                slot=slot,
                cause=Cause.CHECKPOINT_DAMAGED,
                worker=view.roster_names[slot],
                message=message[:1000],
            )
            return transitions.open_incident(view, record, loss)
    return None


def _finished(view: View, record: StartRecord) -> Plan | None:
    """Every process has ended with exit code 0."""
    if not view.all_done:
        return None
    yielded = any(end.yielded for agent in view.heard for end in agent.exits)
    if yielded and not any(agent.finished for agent in view.heard):
        return preempting.end_attempt(view, record, "the script ended after saving")
    point, last = steps.carried(view), steps.last_brought(view)
    if last <= steps.committed_step(view) and point is None:
        return _all_ended(view, record)
    age = timedelta(seconds=min(end.age for agent in view.heard for end in agent.exits))
    if age > FINISH_TIMEOUT:
        message = (
            f"the last checkpoint (step {max(last, point.step if point is not None else last)}) "
            "could not be committed within "
            f"{FINISH_TIMEOUT.total_seconds():.0f} s after training ended: {_store_problem(view)}"
        )
        return transitions.fail(view, Cause.STORAGE_ERROR, message)
    return None


def _all_ended(view: View, record: StartRecord) -> Plan:
    """The end of a gang with nothing left to commit: success, unless steps are lost or its ranks
    have trained separately."""
    early, ended = ended_early.ended_early(view), ended_early.all_ended(view)
    if early is not None:
        return transitions.open_incident(view, record, early)
    separate = trained_apart(view, ended)
    if separate is not None:
        return separate
    doubt = ended_early.doubt(view)
    message = ". ".join(filter(None, (ended, doubt, ended_early.last_line(view))))
    plan = transitions.succeed(view, "Succeeded", message)
    if not doubt:
        return plan
    warning = Event(type="Warning", reason=Cause.ENDED_EARLY, message=f"{doubt}. {DOUBT_ADVICE}")
    return replace(plan, events=(*plan.events, warning))


def _save_and_stop(view: View, record: StartRecord) -> Plan | None:
    """Save and stop, unless all processes have ended: then a notice or an edit has nothing to stop.
    A leaving worker stores its part first, and the commit of the last checkpoint is the success.

    A suspension does not wait for that: the store may be the reason for it.
    """
    if view.all_done and not view.config.suspend:
        return None
    return preempting.decide(view, record)


def _store_problem(view: View) -> str:
    texts = [problem.message for agent in view.heard for problem in agent.problems]
    return texts[0] if texts else "the agents report no reason; check the store"


def _loss(view: View, record: StartRecord) -> Plan | None:
    """A worker is lost: all losses of the attempt are one incident."""
    losses = losses_of(view)
    chosen = best(losses)
    if chosen is None or (chosen.cause == Cause.SILENT and unreachable.in_doubt(view)):
        return None
    if chosen.waited:  # for a peer that may be alive and late
        lives = any(agent.phase == "Running" for agent in view.heard)
        if lives and (plan := _asking(view, record, chosen)) is not None:
            return plan
        chosen = evidence.with_late_rank(view, chosen)
    gone = frozenset(loss.slot for loss in losses if _unreachable(view, loss))
    return transitions.open_incident(view, record, chosen, lost=gone)


def _hang(view: View, record: StartRecord) -> Plan | None:
    """No worker is lost, but the gang has not made a step for too long."""
    hang = hang_of(view) or learned_hang(view)
    if hang is None:
        return _observed(view)
    explained = evidence.explained(view, hang)
    return _asking(view, record, hang) or transitions.open_incident(view, record, explained)


def _asking(view: View, record: StartRecord, loss: Loss) -> Plan | None:
    """The plan that collects evidence first; None: there will be no more evidence."""
    stage = evidence.stage_of(view, loss)
    if stage == "Ask":
        return transitions.ask_for_evidence(view, loss)
    return _go_on(view, record) if stage == "Wait" else None


def _observed(view: View) -> Plan | None:
    """Collect evidence also for a suspected hang, which ends nothing."""
    hang = suspected_hang(view)
    if hang is None or evidence.stage_of(view, hang) != "Ask":
        return None
    return transitions.ask_for_evidence(view, hang)


def _unreachable(view: View, loss: Loss) -> bool:
    worker = view.roster[loss.slot]
    if worker is None or worker.phase == "Ended":
        return True
    return view.is_silent(worker) or view.is_unreachable(worker)


def past_deadline(view: View) -> Plan | None:
    """Fail once spec.activeDeadline has passed."""
    limit, begin = view.config.active_deadline, view.status.start_time
    if limit is None or begin is None or view.observation.now - begin <= limit:
        return None
    kept = "; committed checkpoints are kept" if steps.newest_known(view) is not None else ""
    message = (
        f"spec.activeDeadline ({limit.total_seconds():.0f} s) is over{kept}: apply the run with a "
        "longer deadline to continue"
    )
    return transitions.fail(view, "DeadlineExceeded", message)


STAGE: tuple[Check, ...] = (
    _overtaken,  # never act on a status that is older than what agents do
    _script_error,
    _damage,
    waiting.end_reread,
    _finished,  # before losses: a worker that is done may leave
    _loss,
    lambda view, _: past_deadline(view),
    _save_and_stop,
    _hang,  # last: an attempt that ends anyway, or must save, has its own limits
)


def _go_on(view: View, record: StartRecord) -> Plan:
    phase = running_phase(view)
    looks = unreachable.looker(view)
    rest = (w for w in view.workers if w.phase != "Ended" and w != looks)
    left = (w for w in rest if _left(view, record, w))
    leavers = deletions(view, left, f"not part of attempt {record.attempt}")
    status = view.status
    if evidence.is_over(view):
        status = replace(status, evidence_asked=None)
    return Plan(
        reason=phase,
        message=f"attempt {record.attempt} is running",
        status=refreshed(
            view,
            status,
            phase=phase,
            reason="SaveAsked" if phase == "Preempting" else "",
            marks=waiting.reread_marks(view),
        ),
        actions=(*leavers, *surplus(view), *looking(view)),
        answers=answers.running(view, record, preempting.save_order(view)),
        requeue_after=min(_next_look(view, phase), view.next_silence, evidence.time_left(view)),
    )


def _next_look(view: View, phase: PhaseName) -> timedelta:
    """Time until the next look: reports of agents wake the run, but silence, hangs and deadlines do
    not."""
    config, begin = view.config, view.status.start_time
    upload = steps.until_upload(view) or timedelta.max  # due now: agents learn of it in this pass
    all_train = all(agent is not None and not agent.exits for agent in view.agents)
    if phase != "Running" or not all_train or config.progress_timeout or config.first_step_timeout:
        return min(IDLE_CHECK, upload)
    if config.active_deadline is None or begin is None:
        return min(TRAINING_CHECK, upload)
    left = config.active_deadline - (view.observation.now - begin)
    return min(TRAINING_CHECK, upload, left + A_MOMENT)


def _left(view: View, record: StartRecord, worker: WorkerFact) -> bool:
    """The worker has no place in the roster and never will.

    A worker newer than the roster may belong to an attempt in a fresher status: it is left alone
    until our status can no longer be stale.
    """
    if worker.slot >= len(record.roster):
        return True
    if worker.created_for <= record.roster[worker.slot]:
        return worker.created_for < record.roster[worker.slot]
    if unreachable.looked(view, worker):
        return True
    return view.observation.now - record.time > view.config.start_timeout


def trained_apart(view: View, ended: str) -> Plan | None:
    """The verdict on a run whose processes trained separately and `ended`; None: they have met."""
    reason, message = separate(view)
    if reason == NEVER_MET:
        return transitions.succeed(view, reason, f"{ended}, but {message}", type_="Warning")
    return transitions.fail(view, SEPARATE, message) if reason else None
