"""The TrainRun of a trial: the sweep's template with a name, storage and parameters of its own.

Layer: core, pure. A run is named after the opening, so that one that failed can stay for its logs
while the next one works; a folder after the incarnation, so that the next opening finds the
checkpoints.
"""

from __future__ import annotations

import json
import re
from typing import Any

from trainrun.contract import layout, variables
from trainrun.sweep.space import Scalar
from trainrun.sweep.view import TrialView
from trainrun_operator.api.base import API_VERSION
from trainrun_operator.api.run.edits import ONCE_RAISED
from trainrun_operator.api.run.resource import TrainRun
from trainrun_operator.api.sweep.spec import TrainSweep, TrialSpec
from trainrun_operator.api.sweep.values import variable_of
from trainrun_operator.core.sweep.plan import CreateTrial

SHARED = ("endpointURL", "region", "credentialsSecretRef")
"""What the storage of a trial has from that of the sweep."""
METRICS_INTERVAL = 2.0
"""Seconds between two pieces of a trial's metrics: what is searched by is read from them."""
REOPENED = "the trial goes on from them with resume.resumeErrored: true and 1 more in resume.token"
"""An errored trial stays as it is when a limit is raised: only a session takes it up."""
TRIALS = layout.SWEEP_TRIALS.rstrip("/")
"""Folder of the trials' folders, below that of the sweep."""

_FIELDS = "|".join(str(field.alias) for field in TrialSpec.model_fields.values())
_OF_THE_RUN = re.compile(
    rf"(?<![\w.])(?:spec\.(?=(?:{_FIELDS})\b)|(?=failurePolicy\.|workers\.template\b))"
)
"""Where a path of a TrainRun's spec begins that stands below `run` in a sweep; without `spec.` only
those that advice names, which nothing else looks like."""


def trials_uri(sweep: TrainSweep) -> str:
    """Address of the folder that holds the folders of all trials."""
    return f"{sweep.spec.storage.uri.rstrip('/')}/{sweep.sweep_name}/{TRIALS}"


def trial_run(sweep: TrainSweep, trial: CreateTrial) -> TrainRun:
    """What to run for an opening of a trial."""
    spec = sweep.spec.run.to_json_object()
    spec["workers"]["template"] = _handed(sweep, trial.trial)
    spec["storage"] = _storage(sweep, folder_name(trial.trial))
    document = {
        "apiVersion": API_VERSION,
        "kind": "TrainRun",
        "metadata": {"name": trial.name, "namespace": sweep.metadata.namespace},
        "spec": spec,
    }
    return TrainRun.model_validate(document)


def in_sweep(message: str) -> str:
    """What is said of a trial's run, with the paths of the user's file: `spec.run.health` where the
    TrainRun has `spec.health`. What its user would do to a run is done to the sweep."""
    return _OF_THE_RUN.sub(lambda found: f"{found[0]}run.", message.replace(ONCE_RAISED, REOPENED))


def _storage(sweep: TrainSweep, folder: str) -> dict[str, Any]:
    whole = sweep.spec.storage.to_json_object()
    kept = {name: value for name, value in whole.items() if name in SHARED}
    return {"uri": trials_uri(sweep), "runName": folder, **kept}


def _handed(sweep: TrainSweep, trial: TrialView) -> dict[str, Any]:
    """The template with the parameters in the environment of the container that trains: first, so
    that its own variables and arguments can refer to them as `$(TRAINRUN_PARAM_LR)`."""
    template = sweep.spec.run.workers.template
    whole = template.as_dict()
    name = template.spec.training.name
    (container,) = (it for it in whole["spec"]["containers"] if it["name"] == name)
    ours = {
        variables.TRIAL: str(trial.number),
        variables.PARAMS: json.dumps(dict(trial.params)),
        **{variable_of(name): as_text(value) for name, value in trial.params.items()},
    }
    theirs = [entry for entry in container.get("env", ()) if entry["name"] not in ours]
    # Kubernetes would take "$(NAME)" in a value for a reference, and "$$" for one dollar.
    handed = [{"name": key, "value": value.replace("$", "$$")} for key, value in ours.items()]
    container["env"] = [*handed, *theirs]
    return whole


def as_text(value: Scalar) -> str:
    """A parameter as a word of a command line: `true`, and floats as short as they are exact."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def run_name(sweep: str, trial: TrialView) -> str:
    """`lr-search-00042`, and for later openings `lr-search-00042-o2`."""
    return f"{sweep}-{trial.number:05}" + (f"-o{trial.opening}" if trial.opening > 1 else "")


def folder_name(trial: TrialView) -> str:
    """`00042`, and for later incarnations `00042-i2`."""
    folder = layout.sweep_trial_folder(trial.number, trial.incarnation)
    return folder.removeprefix(layout.SWEEP_TRIALS)


def displaced(trial: TrialView) -> str:
    """What to say of a trial that could not get the folder of its number; empty: it has got it."""
    if trial.first == 1:
        return ""
    return (
        f"trial {trial.number} begins in the new folder {folder_name(trial)}: {trial.number:05} "
        "holds a trial whose records the log has lost, and stays as it is"
    )
