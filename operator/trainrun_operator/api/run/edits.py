"""What an edit of the spec does to a run that exists: a table with one row for each field.

Layer: api. The rules of `spec.py` by which the API server refuses edits, and the table in
`docs/reference/editing.md`, are made from it. Invariants: every field has one row; a gang never
runs with two values of a field that its workers depend on together; no edit is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["Refused", "NewWorkers", "NextAnswer", "NextPass"]

MEANING: dict[Effect, str] = {
    "Refused": "The API server refuses it.",
    "NewWorkers": (
        "At once: the training is asked for a checkpoint, then all workers are created anew "
        "(`TemplateChanged`)."
    ),
    "NextAnswer": "The operator and the agents go by it within seconds; nothing restarts.",
    "NextPass": "The operator alone reads it, and goes by it from its next pass on.",
}


ONCE_RAISED = "the run goes on from them once the limit is raised"
"""What a larger limit does to a run that has failed by it; `them` are its checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A field, and what becomes of an edit of it."""

    path: str
    """Below `spec`; `workers.template` stands for all that is in it."""
    effect: Effect
    note: str
    """What a user has to know besides. Of a Refused one: why, and what to do instead."""


def _row(path: str, effect: Effect, note: str = "") -> Edit:
    return Edit(path=path, effect=effect, note=note)


_SIZE = "the size of a run is fixed; create a new run"
_BUDGET = "what was counted stays counted; raised, it lets a run go on that it has failed"
_PLACE = (
    "checkpoints that are staged and not stored have checkpoint.flushTimeout to get to the old "
    "place; where the new one does not show what was committed, the run waits and says so"
)

EDITS = (
    _row("managedBy", "Refused", "a run keeps its controller; create a new run for another one"),
    _row("suspend", "NextPass", "true deletes the workers after a checkpoint"),
    _row("workers.replicas", "Refused", _SIZE),
    _row("workers.processesPerWorker", "Refused", _SIZE),
    _row("workers.independentRanks", "NextPass", "of the attempt that runs, too"),
    _row("workers.template", "NewWorkers"),
    _row("workers.agent", "NewWorkers"),
    _row("workers.warmStart.preload", "NewWorkers"),
    _row("storage.uri", "Refused", "a run stays where it is; create a new run for another place"),
    _row("storage.runName", "Refused", "a run keeps its name; create a new run for another one"),
    _row("storage.endpointURL", "NewWorkers", _PLACE),
    _row("storage.region", "NewWorkers", _PLACE),
    _row(
        "storage.credentialsSecretRef.name",
        "NewWorkers",
        "that is the name; keys that change within the Secret are read by each worker at its "
        "start: those that live keep the old ones, which must be good until they are replaced",
    ),
    _row(
        "storage.onExisting",
        "NextPass",
        "asked for until the run has claimed its storage: it stays where it is",
    ),
    _row("checkpoint.onNotice", "NextAnswer", "of the next notice, suspension or edit"),
    _row(
        "checkpoint.initialFrom",
        "Refused",
        "a run keeps the weights that it began with; create a new run for others",
    ),
    _row("checkpoint.flushTimeout", "NextAnswer"),
    _row("checkpoint.maxPending", "NextAnswer"),
    _row("checkpoint.keep", "NextAnswer", "what is too many goes with the next commit"),
    _row("checkpoint.scoreMetric", "NextAnswer", "what is deleted already does not come back"),
    _row("checkpoint.scoreOrder", "NextAnswer", "what is deleted already does not come back"),
    _row("failurePolicy.maxFailures", "NextPass", _BUDGET),
    _row("failurePolicy.maxPreemptions", "NextPass", _BUDGET),
    _row("failurePolicy.maxStartFailures", "NextPass", _BUDGET),
    _row("failurePolicy.window", "NextPass", "of incidents that were counted before, too"),
    _row("failurePolicy.noProgressLimit", "NextPass", _BUDGET),
    _row("failurePolicy.maxAvoidedNodes", "NextPass", "workers that live stay where they are"),
    _row("failurePolicy.backoff.initial", "NextPass"),
    _row("failurePolicy.backoff.factor", "NextPass"),
    _row("failurePolicy.backoff.max", "NextPass"),
    _row("failurePolicy.rules", "NextPass", "an incident that is settled keeps what was decided"),
    _row("health.heartbeatTimeout", "NextAnswer", "silence is measured anew from the edit on"),
    _row("health.startTimeout", "NextPass"),
    _row("health.placementTimeout", "NextPass"),
    _row("health.progressTimeout", "NextPass", "of the attempt that runs, too"),
    _row("health.firstStepTimeout", "NextPass", "of the attempt that runs, too"),
    _row("health.hangPolicy", "NextPass", "of the attempt that runs, too"),
    _row("health.forceDeletePods", "NextPass", "of pods too that wait to be confirmed"),
    _row("activeDeadline", "NextPass", "raised, it lets a run go on that it has failed"),
    _row("ttlAfterFinished", "NextPass", "of finished runs, too"),
    _row("retainFailedWorkers", "NextPass"),
)
"""In the order of the spec."""

REFUSED = tuple(edit for edit in EDITS if edit.effect == "Refused")
