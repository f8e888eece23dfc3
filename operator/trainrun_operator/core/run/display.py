"""The part of the status that people read, derived again in every pass: phase, counts, conditions.

Layer: core. Decisions read little of it back. When the step last rose (`progress`) shows whether
the peers of a silent or vanished worker have continued. How long WorkersReady and Unreachable have
held bounds the wait for an answer or a look. And a gang that was reported as Hung does not become
healthy by doing something now and then.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainrun.contract import layout
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.base import GROUP, RECONCILING, STALLED
from trainrun_operator.api.run.replacing import replace
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
from trainrun_operator.core.run.incidents.output import by_output, output_progress
from trainrun_operator.core.run.pairing import without_buddy
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
"""Conditions that are not warnings. They stay in the list with status False, except for the last
two: see `health`."""

ANNOUNCED = ("StorageReady", "TemplateValid", "WorkersReady")
"""Those of them that become events when they turn False."""

SILENT_REASONS = ("Gathering", "Starting", "Invalid", "GangNotPlaced", "Suspended", "Unavailable")
"""Reasons for missing workers that make no event: they are normal, or reported elsewhere."""

OPERATOR_ERROR = "OperatorError"
"""The operator itself has a problem: never an incident, never counted."""

CONTESTED = "Contested"
"""A condition that the operator of another installation writes; it leaves the run alone."""

CONTESTED_FOR = timedelta(hours=1)
"""How long the condition is kept: while the other installation exists, it writes it again."""

INVALID_SPEC = "InvalidSpec"
"""The spec cannot be used; the run continues with the previous one."""

TOO_LARGE = "TooLarge"
"""The object is too large to be read; the run continues with the previous spec."""

MAX_PROBLEMS = 8
"""Types of problems of workers that the status shows at the same time."""


def condition(
    view: View, type_: str, status: ConditionStatus, reason: str, message: str
) -> Condition:
    """A condition; it keeps its transition time while status and reason stay the same."""
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
    """`status` with these conditions added or replaced, sorted by type."""
    by_type = {c.type: c for c in (*status.conditions, *marks)}
    return replace(status, conditions=tuple(by_type[name] for name in sorted(by_type)))


def whole(view: View) -> Condition:
    """The condition that every worker is ready."""
    message = f"{view.config.replicas} of {counted(view.config.replicas, 'worker')} there"
    return condition(view, "WorkersReady", "True", "Gathered", message)


def not_asked(view: View) -> tuple[Condition, ...]:
    """Resets a problem with the store to unknown: no agent asks it while there is no gang."""
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
    moved = replace(moved, output=output_progress(view, moved))
    pending = status.incident
    if pending is not None:
        pending = ledger.charged(status, refined(view, pending), view.config)
    watched = _watched(view, moved, phase, pending)
    now = view.observation.now if not status.finished else status.completion_time
    recovered = replace(
        status, incidents=times.with_first_step(view, status, by_output(view, view.heard))
    )
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
        output=moved.output,
        met=warnings.have_met(view, status),
        posted=attempt_progress.posted_progress(view, moved),
        store_wait=paused(view, status.store_wait),
        checkpoint=_checkpoint(view, status),
        conditions=_conditions(view, moved, phase, waiting_for, (*watched, *marks)),
    )


def _standby_memory(view: View) -> str:
    if not view.config.keeps_standbys:
        return ""
    sizes = [w.agent.standby_bytes for w in view.workers if w.agent is not None]
    largest = max(sizes, default=0)
    return f"{largest >> 20}Mi" if largest else view.status.workers.standby_memory


def _ready(view: View, phase: PhaseName) -> int:
    """The number of workers that wait for an order, or that answer while they work."""
    ready = {w.name for w in view.workers if is_ready(view, w)}
    roster = view.roster if view.running is not None else ()
    working = {w.name for w in roster if w is not None and _works(view, w, phase)}
    return len(ready | working)


def _works(view: View, worker: WorkerFact, phase: PhaseName) -> bool:
    """It takes part in the running attempt, as far as is known."""
    if view.joined(worker) is not None:
        return not view.is_silent(worker)
    # A new leader lacks some heartbeats: a worker counts as working until its loss is known.
    unheard = worker.agent is None and worker.phase == "Running"
    return unheard and phase in RUNS


def leaving(view: View) -> int:
    """The number of workers that may still send something; late ones are deleted in time."""
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
    reported = (condition(view, p.type, "True", p.reason, p.message) for p in problems)
    new = (running, *_template(view), *marks, *_store(view, problems), *reported)
    return with_marks(replace(status, conditions=kept), *new).conditions


def _watched(
    view: View, status: TrainRunStatus, phase: PhaseName, pending: Incident | None
) -> tuple[Condition, ...]:
    """Warnings about the gang, its pods, its nodes and its script."""
    # After a verdict no new workers are created.
    avoided = offenders_text(view) if phase not in ("Succeeded", "Failed") else ""
    warned = (
        ("FailsAgain", *_repeated(view, status)),
        ("NoProgress", "NoNewStep", ledger.no_progress(view, pending)),
        ("NodesAvoided", "RepeatedIncidents", avoided),
        (OPERATOR_ERROR, "MessageUnreadable", _unreadable(view)),
        (HUNG, *warnings.standing_still(view)),
        (STRAGGLER, *warnings.straggler(view)),
        (unreachable.UNREACHABLE, *unreachable.warning(view)),
        (warnings.SEPARATE, *warnings.trains_apart(view)),
        (warnings.CONTAINER_FAILED, *warnings.container_failure(view)),
        (warnings.CODE_DIFFERS, *warnings.code_differs(view)),
        (warnings.SAVE_TOO_LATE, "AsksTooSeldom", warnings.save_too_late(view, status)),
        ("CheckpointSkipped", "OnTrial", repeats.on_trial(view)),
        ("PodsKept", "NodeLost", kept_on_lost_nodes(view)),
        (steps.NO_BUDDY, *without_buddy(view)),
        (TOO_LARGE, TOO_LARGE, view.observation.too_large),
    )
    return tuple(
        condition(view, type_, "True", reason, text) for type_, reason, text in warned if text
    )


def _unreadable(view: View) -> str:
    """The message about workers whose heartbeats cannot be read; names the lowest slot."""
    found = [w for w in view.workers if view.is_unreadable(w) and w.phase == "Running"]
    if not found:
        return ""
    others = and_others(len(found))
    return (
        f"messages of worker {found[0].name}{others} cannot be read: {found[0].unreadable}; it "
        "counts as alive, gets no orders and is charged to no budget. Use versions of operator and "
        "worker image that understand each other"
    )


def _repeated(view: View, status: TrainRunStatus) -> tuple[str, str]:
    """Reason and message, if the newest incident is a repetition and the run has made no progress
    since; else empty."""
    incidents = status.all_incidents
    reason, message = "SameCheckpoint", repeats.opened_again(incidents)
    if not message:
        reason, message = repeats.repeated(incidents, alone=view.config.replicas == 1)
    if not reason or status.finished:
        return "", ""
    reached, begun = status.progress.step, incidents[-1].step
    if begun is None and view.record is not None and view.record.resume_point is not None:
        begun = view.record.resume_point.step
    if status.incident is None and reached is not None and reached > (begun or 0):
        return "", ""
    return reason, message


def _is_contested(known: Condition, now: datetime) -> bool:
    return known.type == CONTESTED and now - known.last_transition_time < CONTESTED_FOR


def _template(view: View) -> tuple[Condition, ...]:
    """Whether workers can be made from the template, by its command and by the API server."""
    refused = sorted(view.observation.refused, key=lambda r: (r.slot, r.name))
    invalid = next((r.message for r in refused if r.reason == "Invalid"), "")
    if text := view.template_problem or invalid:
        return (condition(view, "TemplateValid", "False", "InvalidTemplate", text),)
    if any(w.template_hash == view.config.template_hash for w in view.workers):
        return (condition(view, "TemplateValid", "True", "Accepted", "workers were made from it"),)
    return ()


def _store(view: View, problems: tuple[Problem, ...]) -> tuple[Condition, ...]:
    """Whether the store answers the workers of a running attempt; at its start it did."""
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
    """One problem per type: that of the operator, or of the lowest slot that has it."""
    found = {problem.type: problem for problem in view.observation.problems}
    for worker in view.workers:
        if worker.agent is not None and worker.phase == "Running":
            for problem in worker.agent.problems:
                found.setdefault(problem.type, problem)
    shown = [found[key] for key in sorted(found) if key not in LASTING]
    return tuple(shown[:MAX_PROBLEMS])


def news(before: TrainRunStatus, after: TrainRunStatus) -> tuple[Condition, ...]:
    """New warnings and store conditions.

    A store that answers is news only after it did not.
    """
    known = {(c.type, c.status, c.reason) for c in before.conditions}
    fresh = [c for c in after.conditions if (c.type, c.status, c.reason) not in known]
    warned = {c.type for c in after.conditions}
    return tuple(
        c
        for c in fresh
        if c.type not in LASTING or (_is_announced(c, before) and c.reason not in warned)
    )


def _is_announced(new: Condition, before: TrainRunStatus) -> bool:
    if new.status == "False":
        return new.type in ANNOUNCED and new.reason not in SILENT_REASONS
    known = before.condition("StorageReady")
    return (new.type, new.status) == ("StorageReady", "True") and known is not None


def running_phase(view: View) -> PhaseName:
    """The phase while an attempt runs."""
    if view.all_done:
        return "Finishing"
    if view.status.save_asked is not None:
        return "Preempting"
    if None not in view.agents:
        return "Running"
    # A new leader lacks some heartbeats: the phase stays until a loss is known.
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
    "Suspended": "suspended; set spec.suspend: false to continue",
    "Succeeded": "the run has succeeded",
    "Failed": "the run has failed",
}
