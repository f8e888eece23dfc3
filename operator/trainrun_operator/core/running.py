"""The stage in which an attempt runs: look for losses, the end, and reasons to save and stop.

Layer: core. The checks of STAGE are tried in order; the first that returns a plan wins.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun.protocol import CheckpointId, SaveOrder
from trainrun_operator.core import answers, steps, transitions
from trainrun_operator.core.attribution import best
from trainrun_operator.core.causes import Cause
from trainrun_operator.core.display import refreshed, running_phase
from trainrun_operator.core.losses import Loss, losses_of
from trainrun_operator.core.plan import DeleteWorker, Plan
from trainrun_operator.core.saving import coordinate
from trainrun_operator.core.view import View, done, notice_of

if TYPE_CHECKING:
    from trainrun.protocol import Notice
    from trainrun_operator.api.status import SaveAsked, StartRecord
    from trainrun_operator.core.observation import WorkerFact

FINISH_TIMEOUT = timedelta(minutes=10)
"""How long the last checkpoint may take to be committed after all processes have ended."""

SAVE_TIMEOUT = timedelta(minutes=10)
"""How long a script that uses should_save() may take until the checkpoint asked for is there."""

NOTICE_DEFAULT = timedelta(seconds=120)
"""Time left after a notice that names none: the two minutes that the large clouds give."""

IDLE_CHECK = timedelta(seconds=5)
"""Look again at least this often while something is waited for."""

Check = Callable[[View], "Plan | None"]


def decide(view: View, record: StartRecord) -> Plan:
    """The plan for a running attempt."""
    for check in STAGE:
        plan = check(view)
        if plan is not None:
            return plan
    return _go_on(view, record)


def _overtaken(view: View) -> Plan | None:
    """An agent runs a higher attempt: our status is stale, then this write conflicts; or it was set
    back to an older one, then the attempt that the agents run is unknown to us and starts anew."""
    ahead = max((w.agent.attempt for w in view.workers if w.agent is not None), default=0)
    return transitions.skip_to(view, ahead) if ahead > view.status.attempt else None


def _script_error(view: View) -> Plan | None:
    """An error of the script that the next attempt would only repeat."""
    for agent in view.agents:
        if agent is not None and agent.fatal is not None:
            return transitions.fail(view, agent.fatal.reason, agent.fatal.message)
    return None


def _damage(view: View) -> Plan | None:
    """The checkpoint handed to the attempt cannot be read: back to the one before it."""
    for slot, agent in enumerate(view.agents):
        if agent is not None and agent.damaged is not None and _handed(view, agent.damaged.id):
            message = f"checkpoint {agent.damaged.id.name} is damaged: {agent.damaged.message}"
            worker = view.roster[slot]
            loss = Loss(
                slot=slot,
                cause=Cause.CHECKPOINT_DAMAGED,
                worker=worker.name if worker is not None else "",
                message=message[:1000],
            )
            return transitions.open_incident(view, loss, frozenset())
    return None


def _handed(view: View, checkpoint: CheckpointId) -> bool:
    point = view.running.resume_point if view.running is not None else None
    return point is not None and (point.attempt, point.step) == (
        checkpoint.attempt,
        checkpoint.step,
    )


def _finished(view: View) -> Plan | None:
    """Every process has ended with exit code 0."""
    if not view.agents or not all(done(agent) for agent in view.agents):
        return None
    agents = [agent for agent in view.agents if agent is not None]
    yielded = any(end.yielded for agent in agents for end in agent.exits)
    if yielded and not any(agent.finished for agent in agents):
        return _end_after_save(view, "the script ended after saving")
    waiting = steps.last_brought(view) > steps.committed_step(view)
    if not waiting:
        message = f"all {view.config.world_size} processes ended with exit code 0"
        return transitions.succeed(view, "Succeeded", message)
    age = timedelta(seconds=min(end.age for agent in agents for end in agent.exits))
    if age > FINISH_TIMEOUT:
        message = (
            f"the last checkpoint (step {steps.last_brought(view)}) could not be committed within "
            f"{FINISH_TIMEOUT.total_seconds():.0f} s after training ended: {_store_problem(view)}"
        )
        return transitions.fail(view, Cause.STORAGE_ERROR, message)
    return None


def _store_problem(view: View) -> str:
    texts = [p.message for a in view.agents if a is not None for p in a.problems]
    return texts[0] if texts else "the agents report no reason; check the store"


def _loss(view: View) -> Plan | None:
    """Some worker is lost: all losses of the attempt are one incident."""
    losses = losses_of(view)
    chosen = best(losses)
    if chosen is None:
        return None
    gone = frozenset(loss.slot for loss in losses if _unreachable(view, loss))
    return transitions.open_incident(view, chosen, gone)


def _unreachable(view: View, loss: Loss) -> bool:
    worker = view.roster[loss.slot]
    return worker is None or worker.phase == "Ended" or view.is_silent(worker)


def deadline(view: View) -> Plan | None:
    """spec.activeDeadline is over."""
    limit, begin = view.config.active_deadline, view.status.start_time
    if limit is None or begin is None or view.observation.now - begin <= limit:
        return None
    message = (
        f"spec.activeDeadline ({limit.total_seconds():.0f} s) is over; committed checkpoints are "
        f"kept: apply the run with a longer deadline to go on"
    )
    return transitions.fail(view, "DeadlineExceeded", message)


def _save(view: View) -> Plan | None:
    """Ask for a checkpoint before workers are taken away, and end the attempt once it is there."""
    wanted = _save_reason(view) or ("workers have begun to save" if _begun(view) else "")
    asked = view.status.save_asked
    if asked is None:
        writer = _writer_rank(view)
        return transitions.ask_to_save(view, wanted, writer_rank=writer) if wanted else None
    if not wanted:
        return transitions.withdraw_save(view) if None not in view.agents else None
    step = steps.saved_step(view)
    if step is not None and _committed_call(view):
        return _end_after_save(view, f"saved step {step}")
    if not _expired(view, asked):
        return None
    unheard = "the script never called trainrun.should_save()"
    return _end_after_save(view, "no checkpoint came in time" if _uses_save(view) else unheard)


def _save_reason(view: View) -> str:
    if view.config.suspend:
        return "spec.suspend is true"
    if _template_changed(view):
        return "workers.template has changed"
    noticed = _noticed(view)
    if not noticed:
        return ""
    worker, notice = noticed[0]
    return f"worker of slot {worker.slot} will be taken away ({notice.reason})"


def _begun(view: View) -> bool:
    """Some rank waits, or may be saving already: the request is carried through."""
    votes = [agent.save for agent in view.agents if agent is not None]
    return any(vote.prepared is not None or vote.committed is not None for vote in votes)


def _writer_rank(view: View) -> int:
    """The lowest rank not under notice; 0 when all are."""
    noticed = {worker.slot for worker, _ in _noticed(view)}
    free = (slot for slot in range(len(view.roster)) if slot not in noticed)
    return next(free, 0) * view.config.processes_per_worker


def _template_changed(view: View) -> bool:
    record = view.running
    return record is not None and record.template_hash != view.config.template_hash


Noticed = tuple[tuple["WorkerFact", "Notice"], ...]


def _notices(view: View) -> Noticed:
    """The roster's workers under notice, by slot."""
    found = ((worker, notice_of(worker)) for worker in view.roster if worker is not None)
    return tuple((worker, notice) for worker, notice in found if notice is not None)


def _noticed(view: View) -> Noticed:
    """Those that still have something to do."""
    return tuple(pair for pair in _notices(view) if not done(view.joined(pair[0])))


def _committed_call(view: View) -> bool:
    return any(a is not None and a.save.committed is not None for a in view.agents)


def _expired(view: View, asked: SaveAsked) -> bool:
    waited = view.observation.now - asked.time
    if view.config.suspend or not _noticed(view):
        heard = all(agent is not None for agent in view.agents)
        return waited > SAVE_TIMEOUT if _uses_save(view) or not heard else True
    return all(left <= timedelta(0) for left in _time_left(view)) and waited > timedelta(0)


def _uses_save(view: View) -> bool:
    return any(agent is not None and agent.save.calls > 0 for agent in view.agents)


def _time_left(view: View) -> list[timedelta]:
    return [
        timedelta(seconds=notice.remaining)
        if notice.remaining is not None
        else NOTICE_DEFAULT - timedelta(seconds=notice.age)
        for _, notice in _noticed(view)
    ]


def _end_after_save(view: View, how: str) -> Plan:
    if view.config.suspend:
        return transitions.end_uncounted(view, "Suspend", "Suspending", f"suspending: {how}")
    if _template_changed(view):
        message = f"the template has changed: {how}; all workers are recreated"
        return transitions.end_uncounted(view, "TemplateChange", "TemplateChanged", message)
    noticed = _noticed(view) or _notices(view)
    if not noticed:
        message = f"{how}, and the reason to stop is gone: the run continues"
        return transitions.end_uncounted(view, "Yielded", "Yielded", message)
    worker, notice = noticed[0]
    loss = Loss(
        slot=worker.slot,
        cause=Cause.PREEMPTED,
        worker=worker.name,
        node=worker.node,
        message=f"worker {worker.name} is being taken away ({notice.reason}); {how}",
        age=timedelta(seconds=notice.age),
    )
    return transitions.open_incident(view, loss, frozenset())


STAGE: tuple[Check, ...] = (
    _overtaken,  # never act on a status that is older than what agents do
    _script_error,
    _damage,
    _finished,  # before losses: a worker that is done may leave
    _loss,
    deadline,
    _save,
)


def _go_on(view: View, record: StartRecord) -> Plan:
    phase = running_phase(view)
    leavers = tuple(
        DeleteWorker(name=w.name, reason=f"not part of attempt {record.attempt}")
        for w in view.workers
        if not w.deleting and _left(view, record, w)
    )
    return Plan(
        reason=phase,
        message=f"attempt {record.attempt} is running",
        status=refreshed(view, view.status, phase=phase),
        actions=leavers,
        answers=answers.running(view, record, _save_order(view)),
        requeue_after=IDLE_CHECK,
    )


def _left(view: View, record: StartRecord, worker: WorkerFact) -> bool:
    """The worker has no place in the roster and never will.

    One that is newer than the roster may belong to an attempt that a fresher status knows: it is
    left alone until our status is too old to be stale.
    """
    if worker.slot >= len(record.roster):
        return True
    if worker.created_for <= record.roster[worker.slot]:
        return worker.created_for < record.roster[worker.slot]
    return view.observation.now - record.time > view.config.start_timeout


def _save_order(view: View) -> SaveOrder | None:
    asked = view.status.save_asked
    if asked is None:
        return None
    votes = [agent.save if agent is not None else None for agent in view.agents if not done(agent)]
    ended = [agent.save for agent in view.agents if agent is not None and done(agent)]
    stage = coordinate(votes, ended=ended)
    if stage is None:
        return None
    left = min(_time_left(view), default=None)
    return SaveOrder(
        stage=stage.stage,
        call=stage.call,
        reason=asked.reason,
        deadline=max(left.total_seconds(), 0.0) if left is not None else None,
        writer_rank=asked.writer_rank,
    )
