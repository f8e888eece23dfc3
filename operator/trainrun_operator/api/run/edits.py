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


ONCE_RAISED = "once the limit is raised"
"""When a run goes on that has failed by a limit."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A field, and what becomes of an edit of it."""

    path: str
    """Below `spec`; `workers.template` stands for all that is in it."""
    effect: Effect
    note: str = ""
    """What a user has to know besides. Of a Refused one: why, and what to do instead."""


_SIZE = "the size of a run is fixed; create a new run"
_BUDGET = "what was counted stays counted; raised, it lets a run go on that it has failed"
_PLACE = (
    "checkpoints that are staged and not stored have checkpoint.flushTimeout to get to the old "
    "place; where the new one does not show what was committed, the run waits and says so"
)

EDITS = (
    Edit("managedBy", "Refused", "a run keeps its controller; create a new run for another one"),
    Edit("suspend", "NextPass", "true deletes the workers after a checkpoint"),
    Edit("workers.replicas", "Refused", _SIZE),
    Edit("workers.processesPerWorker", "Refused", _SIZE),
    Edit("workers.independentRanks", "NextPass", "of the attempt that runs, too"),
    Edit("workers.template", "NewWorkers"),
    Edit("workers.agent", "NewWorkers"),
    Edit("workers.warmStart.preload", "NewWorkers"),
    Edit("storage.uri", "Refused", "a run stays where it is; create a new run for another place"),
    Edit("storage.runName", "Refused", "a run keeps its name; create a new run for another one"),
    Edit("storage.endpointURL", "NewWorkers", _PLACE),
    Edit("storage.region", "NewWorkers", _PLACE),
    Edit(
        "storage.credentialsSecretRef.name",
        "NewWorkers",
        "that is the name; keys that change within the Secret are read by each worker at its "
        "start: those that live keep the old ones, which must be good until they are replaced",
    ),
    Edit(
        "storage.onExisting",
        "NextPass",
        "asked for until the run has claimed its storage: it stays where it is",
    ),
    Edit("checkpoint.onNotice", "NextAnswer", "of the next notice, suspension or edit"),
    Edit(
        "checkpoint.initialFrom",
        "Refused",
        "a run keeps the weights that it began with; create a new run for others",
    ),
    Edit("checkpoint.flushTimeout", "NextAnswer"),
    Edit("checkpoint.maxPending", "NextAnswer"),
    Edit("checkpoint.keep", "NextAnswer", "what is too many goes with the next commit"),
    Edit("checkpoint.scoreMetric", "NextAnswer", "what is deleted already does not come back"),
    Edit("checkpoint.scoreOrder", "NextAnswer", "what is deleted already does not come back"),
    Edit("failurePolicy.maxFailures", "NextPass", _BUDGET),
    Edit("failurePolicy.maxPreemptions", "NextPass", _BUDGET),
    Edit("failurePolicy.maxStartFailures", "NextPass", _BUDGET),
    Edit("failurePolicy.window", "NextPass", "of incidents that were counted before, too"),
    Edit("failurePolicy.noProgressLimit", "NextPass", _BUDGET),
    Edit("failurePolicy.maxAvoidedNodes", "NextPass", "workers that live stay where they are"),
    Edit("failurePolicy.backoff.initial", "NextPass"),
    Edit("failurePolicy.backoff.factor", "NextPass"),
    Edit("failurePolicy.backoff.max", "NextPass"),
    Edit("failurePolicy.rules", "NextPass", "an incident that is settled keeps what was decided"),
    Edit("health.heartbeatTimeout", "NextAnswer", "silence is measured anew from the edit on"),
    Edit("health.startTimeout", "NextPass"),
    Edit("health.placementTimeout", "NextPass"),
    Edit("health.progressTimeout", "NextPass", "of the attempt that runs, too"),
    Edit("health.firstStepTimeout", "NextPass", "of the attempt that runs, too"),
    Edit("health.hangPolicy", "NextPass", "of the attempt that runs, too"),
    Edit("health.forceDeletePods", "NextPass", "of pods too that wait to be confirmed"),
    Edit("activeDeadline", "NextPass", "raised, it lets a run go on that it has failed"),
    Edit("ttlAfterFinished", "NextPass", "of finished runs, too"),
    Edit("retainFailedWorkers", "NextPass"),
)
"""In the order of the spec."""

REFUSED = tuple(edit for edit in EDITS if edit.effect == "Refused")
