"""What an edit of the spec does to an existing run: a table with one row per field.

Layer: api. It generates the rules of `spec.py` by which the API server refuses edits, and the table
in `docs/reference/editing.md`. Invariants: every field has one row; a gang never runs with two
values of a field on which its workers depend together; an edit is never a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["Refused", "NewWorkers", "NextAnswer", "NextPass"]

MEANING: dict[Effect, str] = {
    "Refused": "The API server refuses it.",
    "NewWorkers": (
        "At once: the operator asks the training for a checkpoint, then replaces all workers "
        "(`TemplateChanged`)."
    ),
    "NextAnswer": "The operator and the agents use it within seconds; nothing restarts.",
    "NextPass": "Only the operator reads it, and uses it from its next pass on.",
}


ONCE_RAISED = "once the limit is raised"
"""When a run continues that failed at a limit."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A field, and what an edit of it does."""

    path: str
    """Below `spec`; `workers.template` covers everything in it."""
    effect: Effect
    note: str = ""
    """What else a user must know. Where the edit is Refused: why, and what to do instead."""


_SIZE = "the size of a run is fixed; create a new run"
_BUDGET = "counted incidents stay counted; raising it lets a run continue that failed at this limit"
_PLACE = (
    "staged checkpoints have checkpoint.flushTimeout to be uploaded to the old place; if the new "
    "place lacks the committed checkpoints, the run waits and reports it"
)
_NEXT_ATTEMPT = "from the next attempt on"

EDITS = (
    Edit("managedBy", "Refused", "a run keeps its controller; create a new run to use another"),
    Edit("suspend", "NextPass", "true saves a checkpoint and deletes the workers"),
    Edit("workers.replicas", "Refused", _SIZE),
    Edit("workers.processesPerWorker", "Refused", _SIZE),
    Edit("workers.independentRanks", "NextPass", "also for the running attempt"),
    Edit("workers.template", "NewWorkers"),
    Edit("workers.agent", "NewWorkers"),
    Edit("workers.warmStart.preload", "NewWorkers"),
    Edit("storage.uri", "Refused", "a run keeps its storage; create a new run to use another"),
    Edit("storage.runName", "Refused", "a run keeps its name; create a new run to use another"),
    Edit("storage.endpointURL", "NewWorkers", _PLACE),
    Edit("storage.region", "NewWorkers", _PLACE),
    Edit(
        "storage.credentialsSecretRef.name",
        "NewWorkers",
        "this is the name of the Secret; each worker reads the keys in it at its start, so the "
        "old keys must stay valid until all running workers are replaced",
    ),
    Edit(
        "storage.onExisting",
        "NextPass",
        "no effect once the run has claimed its storage",
    ),
    Edit("checkpoint.onNotice", "NextAnswer", "from the next notice, suspension or edit on"),
    Edit(
        "checkpoint.initialFrom",
        "Refused",
        "a run keeps its initial weights; create a new run to use others",
    ),
    Edit("checkpoint.flushTimeout", "NextAnswer"),
    Edit("checkpoint.maxPending", "NextAnswer"),
    Edit("checkpoint.uploadEvery", "NextAnswer"),
    Edit("checkpoint.buddy", "NextAnswer"),
    Edit("checkpoint.keep", "NextAnswer", "the next commit deletes surplus checkpoints"),
    Edit("checkpoint.scoreMetric", "NextAnswer", "deleted checkpoints do not come back"),
    Edit("checkpoint.scoreOrder", "NextAnswer", "deleted checkpoints do not come back"),
    Edit("checkpoint.folder.path", "NextAnswer", _NEXT_ATTEMPT),
    Edit("checkpoint.folder.newest", "NextAnswer", _NEXT_ATTEMPT),
    Edit("checkpoint.folder.complete", "NextAnswer", _NEXT_ATTEMPT),
    Edit("checkpoint.folder.settle", "NextAnswer", _NEXT_ATTEMPT),
    Edit("checkpoint.folder.resumeArgs", "NextAnswer", _NEXT_ATTEMPT),
    Edit("checkpoint.folder.resumeArgsFrom", "NextAnswer", _NEXT_ATTEMPT),
    Edit("checkpoint.folder.carry", "NextAnswer", _NEXT_ATTEMPT),
    Edit("failurePolicy.maxFailures", "NextPass", _BUDGET),
    Edit("failurePolicy.maxPreemptions", "NextPass", _BUDGET),
    Edit("failurePolicy.maxStartFailures", "NextPass", _BUDGET),
    Edit("failurePolicy.window", "NextPass", "also for incidents counted before"),
    Edit("failurePolicy.noProgressLimit", "NextPass", _BUDGET),
    Edit("failurePolicy.maxAvoidedNodes", "NextPass", "running workers stay where they are"),
    Edit("failurePolicy.backoff.initial", "NextPass"),
    Edit("failurePolicy.backoff.factor", "NextPass"),
    Edit("failurePolicy.backoff.max", "NextPass"),
    Edit("failurePolicy.rules", "NextPass", "a settled incident keeps its decision"),
    Edit("progress.output", "NextAnswer", _NEXT_ATTEMPT),
    Edit("progress.patterns", "NextAnswer", _NEXT_ATTEMPT),
    Edit("health.heartbeatTimeout", "NextAnswer", "silence is counted from the edit on"),
    Edit("health.startTimeout", "NextPass"),
    Edit("health.placementTimeout", "NextPass"),
    Edit("health.progressTimeout", "NextPass", "also for the running attempt"),
    Edit("health.firstStepTimeout", "NextPass", "also for the running attempt"),
    Edit("health.hangPolicy", "NextPass", "also for the running attempt"),
    Edit("health.forceDeletePods", "NextPass", "also for pods whose end awaits confirmation"),
    Edit("activeDeadline", "NextPass", "raising it lets a run continue that failed at this limit"),
    Edit("ttlAfterFinished", "NextPass", "also for finished runs"),
    Edit("retainFailedWorkers", "NextPass"),
)
"""In the order of the spec."""

REFUSED = tuple(edit for edit in EDITS if edit.effect == "Refused")
