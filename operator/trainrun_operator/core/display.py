"""The part of the status that people read, derived anew in every pass: phase, counts, conditions.

Layer: core. Nothing here is read back by a decision, with two exceptions: how long a condition has
held (`since`) bounds the waits for a store, and when the step rose last (`progress`) tells whether
the peers of a silent worker, or of one that is gone, have worked on.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from trainrun_operator.api.status import (
    CheckpointStatus,
    Condition,
    ConditionStatus,
    PhaseName,
    Progress,
    TrainRunStatus,
    Workers,
)
from trainrun_operator.core import ledger, steps
from trainrun_operator.core.attribution import refined
from trainrun_operator.core.gang import is_waiting
from trainrun_operator.core.view import View, counted, done, max_step

if TYPE_CHECKING:
    from trainrun.protocol import AgentState, Problem

LASTING = (
    "Complete",
    "Failed",
    "Suspended",
    "Running",
    "WorkersReady",
    "TemplateValid",
    "StorageReady",
)
"""Conditions that stay in the list with status False; warnings leave it when they are over."""

TOLD = ("StorageReady", "TemplateValid", "WorkersReady")
"""Those of them that are told as events when they turn False."""

SILENT_REASONS = ("Gathering", "Starting", "Invalid", "GangNotPlaced", "Suspended", "Unavailable")
"""Why workers are missing without a word: it is normal, or told elsewhere."""

MAX_PROBLEMS = 8
"""Kinds of trouble of the workers that are shown at once."""

MAX_METRICS = 32
"""Metrics shown in the status."""

METRIC_TEXT = 64
"""Characters of the name of a metric, and of one that is a text."""


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


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """The list with this condition in its place, sorted by type."""
    others = [c for c in conditions if c.type != new.type]
    return tuple(sorted([*others, new], key=lambda c: c.type))


def whole(view: View) -> Condition:
    """The condition that every worker is there."""
    message = f"{view.config.replicas} of {counted(view.config.replicas, 'worker')} there"
    return condition(view, "WorkersReady", "True", "Gathered", message)


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
    ready = min(_ready(view), view.config.replicas)
    pending = status.incident
    if pending is not None:
        pending = ledger.charged(status, refined(view, pending), view.config)
    return status.model_copy(
        update={
            "observed_generation": view.observation.generation,
            "phase": phase,
            "reason": reason[:64],
            "incident": pending,
            "incidents": _with_recovery(view, status),
            "failures": ledger.tally(status.failures, view.config, pending=pending),
            "workers": Workers(
                ready=ready,
                total=view.config.replicas,
                text=f"{ready}/{view.config.replicas}",
            ),
            "progress": _progress(view, status),
            "checkpoint": _checkpoint(view, status),
            "conditions": _conditions(view, status, phase, waiting_for, marks),
        }
    )


def _ready(view: View) -> int:
    """Workers that wait for an order, or that answer while they work."""
    waiting = {w.name for w in view.workers if is_waiting(view, w)}
    roster = view.roster if view.running is not None else ()
    working = {
        w.name
        for w in roster
        if w is not None and view.joined(w) is not None and not view.is_silent(w)
    }
    return len(waiting | working)


def _progress(view: View, status: TrainRunStatus) -> Progress:
    agent = view.speaker
    step = max_step(agent)
    if agent is None or step is None:
        return status.progress
    known = status.progress.time is not None and status.progress.step == step
    time = status.progress.time if known else view.observation.now
    return Progress(step=step, metrics=_shown_metrics(agent), time=time, stall_seconds=_stall(view))


def _stall(view: View) -> int:
    agents = [view.joined(worker) for worker in view.roster]
    return int(max((agent.stall for agent in agents if agent is not None), default=0.0))


def _shown_metrics(agent: AgentState) -> dict[str, Any]:
    """The first metrics by name, with long texts cut."""
    shown = {}
    for name in sorted(agent.metrics)[:MAX_METRICS]:
        value = agent.metrics[name]
        shown[name[:METRIC_TEXT]] = value[:METRIC_TEXT] if isinstance(value, str) else value
    return shown


def _checkpoint(view: View, status: TrainRunStatus) -> CheckpointStatus | None:
    commit, known = steps.newest_commit(view), status.checkpoint
    if commit is None or (
        known is not None and (known.attempt, known.step) >= (commit.id.attempt, commit.id.step)
    ):
        return known
    return CheckpointStatus(
        uri=f"{view.config.checkpoints_uri}/{commit.id.name}",
        step=commit.id.step,
        attempt=commit.id.attempt,
        time=view.observation.now - timedelta(seconds=round(commit.age, 3)),
        size_bytes=commit.size_bytes,
    )


def _with_recovery(view: View, status: TrainRunStatus) -> tuple[Any, ...]:
    """Fill in how long the last recovery took, once, when the first step is reported.

    Not where the run was suspended in between: that wait was wanted.
    """
    record = view.running
    if record is None or not status.incidents:
        return status.incidents
    last = status.incidents[-1]
    ages = [a.first_step for a in view.agents if a is not None and a.first_step is not None]
    recovers = last.restart_seconds is not None and last.recovery_seconds is None
    if not recovers or last.attempt >= record.attempt or not ages:
        return status.incidents
    took = view.observation.now - last.time - timedelta(seconds=max(ages))
    seconds = round(max(took.total_seconds(), 0.0), 3)
    return (*status.incidents[:-1], last.model_copy(update={"recovery_seconds": seconds}))


def _conditions(
    view: View,
    status: TrainRunStatus,
    phase: PhaseName,
    waiting_for: str,
    marks: tuple[Condition, ...],
) -> tuple[Condition, ...]:
    kept = tuple(c for c in status.conditions if c.type in LASTING)
    runs = phase in ("Running", "Preempting", "Finishing")
    message = waiting_for or _PHASES[phase]
    running = condition(view, "Running", "True" if runs else "False", phase, message)
    for mark in (running, *_template(view), *marks):
        kept = with_condition(kept, mark)
    for problem in _problems(view):
        kept = with_condition(
            kept, condition(view, problem.type, "True", problem.reason, problem.message)
        )
    return kept


def _template(view: View) -> tuple[Condition, ...]:
    """Whether the API server takes pods made from the template, as far as it was asked."""
    invalid = [r for r in view.observation.refused if r.reason == "Invalid"]
    if invalid:
        text = min(invalid, key=lambda r: (r.slot, r.name)).message
        return (condition(view, "TemplateValid", "False", "InvalidTemplate", text),)
    if any(w.template_hash == view.config.template_hash for w in view.workers):
        return (condition(view, "TemplateValid", "True", "Accepted", "workers were made from it"),)
    return ()


def _problems(view: View) -> tuple[Problem, ...]:
    """One problem per type, of the lowest slot that has it."""
    found: dict[str, Problem] = {}
    for worker in view.workers:
        if worker.agent is not None and worker.phase == "Running":
            for problem in worker.agent.problems:
                found.setdefault(problem.type, problem)
    shown = [found[key] for key in sorted(found) if key not in LASTING]
    return tuple(shown[:MAX_PROBLEMS])


def since(status: TrainRunStatus, type_: str, reason: str, now: datetime) -> timedelta:
    """How long the condition has held with this reason, as far as the status knows."""
    found = status.condition(type_)
    if found is None or found.reason != reason:
        return timedelta(0)
    return now - found.last_transition_time


def news(before: TrainRunStatus, after: TrainRunStatus) -> tuple[Condition, ...]:
    """Warnings and store conditions that were not there before.

    That the store answers is news only after it did not.
    """
    known = {(c.type, c.status, c.reason) for c in before.conditions}
    fresh = [c for c in after.conditions if (c.type, c.status, c.reason) not in known]
    return tuple(c for c in fresh if c.type not in LASTING or _is_told(c, before))


def _is_told(new: Condition, before: TrainRunStatus) -> bool:
    if new.status == "False":
        return new.type in TOLD and new.reason not in SILENT_REASONS
    return new.type == "StorageReady" and before.condition("StorageReady") is not None


def running_phase(view: View) -> PhaseName:
    """The phase of an attempt that runs."""
    if view.status.save_asked is not None:
        return "Preempting"
    if view.agents and all(done(agent) for agent in view.agents):
        return "Finishing"
    return "Running" if all(agent is not None for agent in view.agents) else "Starting"


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
