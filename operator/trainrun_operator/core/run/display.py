"""The part of the status that people read, derived anew in every pass: phase, counts, conditions.

Layer: core. Little here is read back by a decision: when the step rose last (`progress`) tells
whether the peers of a silent worker, or of one that is gone, have worked on; how long WorkersReady
and Unreachable have held bounds for how long an answer, or a look, is waited for; and a gang that
was called Hung is not called well for doing something now and then.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from trainrun.contract import layout
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.base import GROUP, RECONCILING, STALLED
from trainrun_operator.api.run.status import Condition, ConditionStatus, PhaseName, TrainRunStatus
from trainrun_operator.api.run.status_parts import CheckpointStatus, Incident, Workers
from trainrun_operator.core.run import steps, times, unreachable, warnings
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.drain import answers_still
from trainrun_operator.core.run.gang.avoiding import offenders_text
from trainrun_operator.core.run.gang.roster import is_ready, kept_on_lost_nodes
from trainrun_operator.core.run.incidents import attempt_progress, ledger, repeats
from trainrun_operator.core.run.incidents.attribution import refined
from trainrun_operator.core.run.incidents.hangs import HUNG
from trainrun_operator.core.run.storage import paused
from trainrun_operator.core.run.view import STORE_AWAY, View, and_others, counted
from trainrun_operator.core.run.warnings import STRAGGLER

RUNS: tuple[PhaseName, ...] = ("Running", "Preempting", "Finishing")
"""Phases of an attempt in which each of its workers has taken part."""

LASTING = (
    "Complete",
    "Failed",
    "Suspended",
    "Running",
    "WorkersReady",
    "TemplateValid",
    "StorageReady",
    RECONCILING,
    STALLED,
)
"""Conditions that are no warnings. They stay in the list with status False, but for the last two:
see `health`."""

TOLD = ("StorageReady", "TemplateValid", "WorkersReady")
"""Those of them that are told as events when they turn False."""

SILENT_REASONS = ("Gathering", "Starting", "Invalid", "GangNotPlaced", "Suspended", "Unavailable")
"""Why workers are missing without a word: it is normal, or told elsewhere."""

OPERATOR_ERROR = "OperatorError"
"""Something of our own went wrong: never an incident, never counted."""

CONTESTED = "Contested"
"""Written by the operator of another installation, which leaves the run alone."""

CONTESTED_FOR = timedelta(hours=1)
"""Nobody tells us that the other one has gone: while it is there, it writes its condition again."""

INVALID_SPEC = "InvalidSpec"
"""What its user has written cannot be used; what runs goes on by the spec before."""

TOO_LARGE = "TooLarge"
"""The object has more than is read of one; what runs goes on by the spec before."""

MAX_PROBLEMS = 8
"""Kinds of trouble of the workers that are shown at once."""


def condition(
    view: View, type_: str, status: ConditionStatus, reason: str, message: str
) -> Condition:
    """A condition whose transition time is kept while status and reason stay the same."""
    old = view.status.condition(type_[:64])
    same = old is not None and (old.status, old.reason) == (status, reason[:64])
    since = old.last_transition_time if old is not None and same else view.observation.now
    return Condition(
        type=type_[:64],
        status=status,
        reason=reason[:64],
        message=message[:2000],
        last_transition_time=since,
        observed_generation=view.observation.generation,
    )


def with_marks(status: TrainRunStatus, *marks: Condition) -> TrainRunStatus:
    """`status`, with these conditions in their places, sorted by type."""
    by_type = {c.type: c for c in (*status.conditions, *marks)}
    return replace(status, conditions=tuple(by_type[name] for name in sorted(by_type)))


def whole(view: View) -> Condition:
    """The condition that every worker is there."""
    message = f"{view.config.replicas} of {counted(view.config.replicas, 'worker')} there"
    return condition(view, "WorkersReady", "True", "Gathered", message)


def not_asked(view: View) -> tuple[Condition, ...]:
    """Trouble with the store is not known any more: nobody asks it while there is no gang."""
    known = view.status.condition("StorageReady")
    if known is None or known.status != "False":
        return ()
    message = "the store is asked again once all workers are there"
    return (condition(view, "StorageReady", "Unknown", "NotAsked", message),)


def refreshed(
    view: View,
    status: TrainRunStatus,
    *,
    phase: PhaseName,
    reason: str = "",
    waiting_for: str = "",
    marks: tuple[Condition, ...] = (),
) -> TrainRunStatus:
    """`status` with everything that people read brought up to date; `marks` are new conditions."""
    ready = min(_ready(view, phase), view.config.replicas)
    reached = attempt_progress.reported_progress(view, status)
    moved = replace(status, progress=reached)
    pending = status.incident
    if pending is not None:
        pending = ledger.charged(status, refined(view, pending), view.config)
    watched = _watched(view, moved, phase, pending)
    now = view.observation.now if not status.finished else status.completion_time
    recovered = replace(status, incidents=times.with_first_step(view, status))
    return replace(
        status,
        observed_generation=view.observation.generation,
        phase=phase,
        reason=reason[:64],
        incident=pending,
        incidents=recovered.incidents,
        advice=times.advice(view, recovered),
        failures=ledger.tally(status, view.config, pending=pending, at=now or view.observation.now),
        workers=Workers(
            ready=ready,
            total=view.config.replicas,
            text=f"{ready}/{view.config.replicas}",
            selector=f"{GROUP}/run-uid={view.config.uid}",
            standby_memory=_standby_memory(view),
            leaving=leaving(view) if status.finished else 0,
        ),
        progress=reached,
        met=warnings.have_met(view, status),
        posted=attempt_progress.posted_progress(view, moved),
        store_wait=paused(view, status.store_wait),
        checkpoint=_checkpoint(view, status),
        conditions=_conditions(view, moved, phase, waiting_for, (*watched, *marks)),
    )


def _standby_memory(view: View) -> str:
    if not view.config.keeps_standbys:
        return ""
    told = [w.agent.standby_bytes for w in view.workers if w.agent is not None]
    largest = max(told, default=0)
    return f"{largest >> 20}Mi" if largest else view.status.workers.standby_memory


def _ready(view: View, phase: PhaseName) -> int:
    """Workers that wait for an order, or that answer while they work."""
    ready = {w.name for w in view.workers if is_ready(view, w)}
    roster = view.roster if view.running is not None else ()
    working = {w.name for w in roster if w is not None and _works(view, w, phase)}
    return len(ready | working)


def _works(view: View, worker: WorkerFact, phase: PhaseName) -> bool:
    """It takes part in the attempt that runs, as far as we know."""
    if view.joined(worker) is not None:
        return not view.is_silent(worker)
    # A new leader has not heard everybody yet: who worked goes on until a loss is known.
    unheard = worker.agent is None and worker.phase == "Running"
    return unheard and phase in RUNS


def leaving(view: View) -> int:
    """Workers from which something may still come; those that do not leave are deleted in time."""
    return sum(w.phase == "Running" and answers_still(view, w) for w in view.workers)


def folder(view: View, generation: int) -> str:
    """Address of this generation of the run's folder."""
    run = view.config.checkpoints_uri.rpartition("/")[0]
    return layout.generation_folder(run, generation)


def _checkpoint(view: View, status: TrainRunStatus) -> CheckpointStatus | None:
    commit, known = steps.newest_commit(view), status.checkpoint
    if commit is None or (
        known is not None and (known.attempt, known.step) >= (commit.id.attempt, commit.id.step)
    ):
        return known
    return CheckpointStatus(
        uri=layout.checkpoint_uri(folder(view, status.storage_generation), commit.id),
        step=commit.id.step,
        attempt=commit.id.attempt,
        time=view.observation.now - timedelta(seconds=round(commit.age, 3)),
        size_bytes=commit.size_bytes,
    )


def _conditions(
    view: View,
    status: TrainRunStatus,
    phase: PhaseName,
    waiting_for: str,
    marks: tuple[Condition, ...],
) -> tuple[Condition, ...]:
    now = view.observation.now
    kept = tuple(c for c in status.conditions if c.type in LASTING or _is_contested(c, now))
    message = waiting_for or _PHASES[phase]
    running = condition(view, "Running", "True" if phase in RUNS else "False", phase, message)
    problems = _problems(view)
    told = (condition(view, it.type, "True", it.reason, it.message) for it in problems)
    new = (running, *_template(view), *marks, *_store(view, problems), *told)
    return with_marks(replace(status, conditions=kept), *new).conditions


def _watched(
    view: View, status: TrainRunStatus, phase: PhaseName, pending: Incident | None
) -> tuple[Condition, ...]:
    """What is wrong with the gang, its pods, its nodes and what it runs."""
    # With a verdict there will be no new workers.
    avoided = offenders_text(view) if phase not in ("Succeeded", "Failed") else ""
    told = (
        ("FailsAgain", *_repeated(view, status)),
        ("NoProgress", "NoNewStep", ledger.no_progress(view, pending)),
        ("NodesAvoided", "RepeatedIncidents", avoided),
        (OPERATOR_ERROR, "MessageUnreadable", _misheard(view)),
        (HUNG, *warnings.standing_still(view)),
        (STRAGGLER, *warnings.straggler(view)),
        (unreachable.UNREACHABLE, *unreachable.warning(view)),
        (warnings.SEPARATE, *warnings.trains_apart(view)),
        (warnings.CONTAINER_FAILED, *warnings.container_failure(view)),
        (warnings.CODE_DIFFERS, *warnings.code_differs(view)),
        (warnings.SAVE_TOO_LATE, "AsksTooSeldom", warnings.save_too_late(view, status)),
        ("CheckpointSkipped", "OnTrial", repeats.on_trial(view)),
        ("PodsKept", "NodeLost", kept_on_lost_nodes(view)),
        (TOO_LARGE, TOO_LARGE, view.observation.too_large),
    )
    return tuple(
        condition(view, type_, "True", reason, text) for type_, reason, text in told if text
    )


def _misheard(view: View) -> str:
    """What agents say that cannot be read: of the lowest slot, and of how many."""
    found = [w for w in view.workers if view.is_unreadable(w) and w.phase == "Running"]
    if not found:
        return ""
    others = and_others(len(found))
    return (
        f"what worker {found[0].name}{others} says cannot be read: {found[0].unreadable}; it "
        "counts as alive, gets no orders, and nothing is charged to the budgets of the run: bring "
        "operator and worker image to versions that understand each other"
    )


def _repeated(view: View, status: TrainRunStatus) -> tuple[str, str]:
    """Reason and message where the newest incident has struck before in the same way, and the run
    has not got beyond it."""
    told = status.all_incidents
    reason, message = "SameCheckpoint", repeats.opened_again(told)
    if not message:
        reason, message = repeats.repeated(told, alone=view.config.replicas == 1)
    if not reason or status.finished:
        return "", ""
    reached, begun = status.progress.step, told[-1].step
    if begun is None and view.record is not None and view.record.resume_point is not None:
        begun = view.record.resume_point.step
    if status.incident is None and reached is not None and reached > (begun or 0):
        return "", ""
    return reason, message


def _is_contested(known: Condition, now: datetime) -> bool:
    return known.type == CONTESTED and now - known.last_transition_time < CONTESTED_FOR


def _template(view: View) -> tuple[Condition, ...]:
    """Whether workers can be made from it: by its command, and as the API server says."""
    refused = sorted(view.observation.refused, key=lambda r: (r.slot, r.name))
    invalid = next((r.message for r in refused if r.reason == "Invalid"), "")
    if text := view.template_problem or invalid:
        return (condition(view, "TemplateValid", "False", "InvalidTemplate", text),)
    if any(w.template_hash == view.config.template_hash for w in view.workers):
        return (condition(view, "TemplateValid", "True", "Accepted", "workers were made from it"),)
    return ()


def _store(view: View, problems: tuple[Problem, ...]) -> tuple[Condition, ...]:
    """Whether the store answers the workers of an attempt that runs; it did when it was started."""
    known = view.status.condition("StorageReady")
    if view.running is None or view.status.finished:
        return ()
    for problem in problems:
        if problem.type == STORE_AWAY:
            return (condition(view, "StorageReady", "False", STORE_AWAY, problem.message),)
    if known is None or known.status == "True":
        return ()
    return (condition(view, "StorageReady", "True", "Resolved", "the store answers again"),)


def _problems(view: View) -> tuple[Problem, ...]:
    """One problem per type, of the operator or the lowest slot that has it."""
    found = {problem.type: problem for problem in view.observation.problems}
    for worker in view.workers:
        if worker.agent is not None and worker.phase == "Running":
            for problem in worker.agent.problems:
                found.setdefault(problem.type, problem)
    shown = [found[key] for key in sorted(found) if key not in LASTING]
    return tuple(shown[:MAX_PROBLEMS])


def news(before: TrainRunStatus, after: TrainRunStatus) -> tuple[Condition, ...]:
    """Warnings and store conditions that were not there before.

    That the store answers is news only after it did not.
    """
    known = {(c.type, c.status, c.reason) for c in before.conditions}
    fresh = [c for c in after.conditions if (c.type, c.status, c.reason) not in known]
    warned = {c.type for c in after.conditions}
    return tuple(
        c
        for c in fresh
        if c.type not in LASTING or (_is_told(c, before) and c.reason not in warned)
    )


def _is_told(new: Condition, before: TrainRunStatus) -> bool:
    if new.status == "False":
        return new.type in TOLD and new.reason not in SILENT_REASONS
    known = before.condition("StorageReady")
    return (new.type, new.status) == ("StorageReady", "True") and known is not None


def running_phase(view: View) -> PhaseName:
    """The phase of an attempt that runs."""
    if view.all_done:
        return "Finishing"
    if view.status.save_asked is not None:
        return "Preempting"
    if None not in view.agents:
        return "Running"
    # A new leader has not heard everybody yet: what ran goes on until a loss is known.
    if view.status.phase == "Finishing":
        return "Finishing"
    return "Running" if view.status.phase in RUNS else "Starting"


def gathering_phase(view: View) -> PhaseName:
    """The phase while the next attempt is prepared."""
    return "Restarting" if view.status.ending is not None else "Pending"


_PHASES: dict[PhaseName, str] = {
    "Pending": "waiting for the first workers",
    "Starting": "the workers start their processes",
    "Running": "all workers take part",
    "Preempting": "a checkpoint was asked for before workers are taken away",
    "Restarting": "the next attempt is being prepared",
    "Finishing": "training is done; its last checkpoint is being committed",
    "Suspended": "suspended; set spec.suspend: false to go on",
    "Succeeded": "the run has succeeded",
    "Failed": "the run has failed",
}
