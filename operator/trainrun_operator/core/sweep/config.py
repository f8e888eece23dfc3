"""Turns the spec of a sweep into the input of its decisions and its clerk, and into trials' runs.

Layer: core, pure. The run of a trial is the sweep's template with its own name, storage and
parameters. Runs are named after the opening, so that a failed run can stay for its logs while the
next one works; folders after the incarnation, so that the next opening finds the checkpoints.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from trainrun.contract import layout, variables
from trainrun.sweep.samplers import grid_size
from trainrun.sweep.search import (
    Asha,
    Domain,
    EarlyStopping,
    FloatRange,
    Hyperband,
    IntRange,
    Objective,
    OneOf,
    Parameter,
    Percentile,
    Scalar,
    Search,
    Threshold,
)
from trainrun.sweep.view import TrialView
from trainrun_operator.api.base import API_VERSION
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.api.run.edits import ONCE_RAISED
from trainrun_operator.api.sweep.spec import TrainSweep, TrainSweepSpec, TrialSpec
from trainrun_operator.api.sweep.stopping import EarlyStoppingSpec
from trainrun_operator.api.sweep.values import SearchedParameter, variable_of
from trainrun_operator.core.sweep.boundary import CreateTrial

IMMUTABLE = (
    "objective",
    "space",
    "fixed",
    "firstTrials",
    "sampler",
)
"""Fields of the spec that a search can never change: earlier trials would not be comparable.
Exceptions: the objective's target and stopOnNaN."""
SHARED = ("endpointURL", "region", "credentialsSecretRef")
"""Fields that the storage of a trial takes from the sweep's."""
METRICS_INTERVAL = 2.0
"""Seconds between two pieces of a trial's metrics; the search reads its values from them."""
REOPENED = r"the trial \1 with resume.resumeErrored: true and 1 more in resume.token"
"""Raising a limit does not reopen an errored trial; only a new session does."""
TRIALS = layout.SWEEP_TRIALS.rstrip("/")
"""The folder below the sweep's that holds the trials' folders."""

_FIELDS = "|".join(str(field.alias) for field in TrialSpec.model_fields.values())
_OF_THE_RUN = re.compile(
    rf"(?<![\w.])(?:spec\.(?=(?:{_FIELDS})\b)|(?=failurePolicy\.|workers\.template\b))"
)
"""Where a path of a TrainRun's spec begins that is below `run` in a sweep. Paths without `spec.`
match only if advice names them, since nothing else looks like these."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Everything that decisions know of the spec."""

    uid: str
    search: Search
    immutable: str
    """The part of the spec that can never change, as JSON with sorted keys."""
    trials: int
    """Number of trials; for a grid at most its points."""
    max_concurrent: int = 1
    max_unplaced: int = 1
    max_failed_trials: int = -1
    active_time: float | None = None
    """Seconds; None: no limit."""
    suspend: bool = False
    fail_on_existing: bool = False
    paused: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    failed_runs: int = 5
    best_checkpoints: int | None = None
    """Number of trials whose checkpoints are kept; None: all."""
    resume_unfinished: bool = True
    resume_errored: bool = False
    restart_errored: bool = False
    token: int = 0


def sweep_config(sweep: TrainSweep) -> SweepConfig:
    """The input of decisions about a TrainSweep."""
    spec, search = sweep.spec, search_of(sweep.spec)
    # The spec requires a number of trials for every sampler that does not end by itself.
    limits = (spec.budget.trials, grid_size(search.space) if spec.sampler.name == "Grid" else None)
    time = spec.budget.active_time
    return SweepConfig(
        uid=sweep.metadata.uid,
        search=search,
        immutable=immutable_part(spec),
        trials=min(limit for limit in limits if limit is not None),
        max_concurrent=spec.max_concurrent,
        max_unplaced=spec.max_unplaced,
        max_failed_trials=spec.max_failed_trials,
        active_time=None if time is None else time.seconds,
        suspend=spec.suspend,
        fail_on_existing=spec.storage.on_existing == "Fail",
        paused=frozenset(spec.paused_trials),
        stopped=frozenset(spec.stopped_trials),
        failed_runs=spec.retention.failed_runs,
        best_checkpoints=spec.retention.best_checkpoints,
        resume_unfinished=spec.resume.resume_unfinished,
        resume_errored=spec.resume.resume_errored,
        restart_errored=spec.resume.restart_errored,
        token=spec.resume.token,
    )


def search_of(spec: TrainSweepSpec) -> Search:
    """The search that the clerk performs."""
    return Search(
        space=tuple(_parameter(parameter) for parameter in spec.space),
        objective=Objective(**spec.objective.model_dump()),
        sampler=spec.sampler.name,
        seed=spec.sampler.seed,
        first=tuple(dict(first) for first in spec.first_trials),
        fixed=tuple(spec.fixed.items()),
        early_stopping=None if spec.early_stopping is None else _stopping(spec.early_stopping),
    )


def _stopping(spec: EarlyStoppingSpec) -> EarlyStopping:
    given = spec.options.model_dump(exclude_none=True)
    match spec.name:
        case "ASHA":
            return Asha(**given)
        case "Hyperband":
            return Hyperband(**given)
        case "Median" | "Percentile":
            return Percentile(**given)
        case "Threshold":
            return Threshold(**given)


def immutable_part(spec: TrainSweepSpec) -> str:
    """The part of the spec that can never change, as JSON with sorted keys."""
    whole = spec.to_json_object()
    kept = {name: whole[name] for name in IMMUTABLE}
    kept["objective"] = {name: whole["objective"][name] for name in ("metric", "goal", "value")}
    return json.dumps(kept, sort_keys=True)


def space_of(immutable: str) -> tuple[Parameter, ...]:
    """The space, from the output of `immutable_part`."""
    space = json.loads(immutable)["space"]
    return tuple(_parameter(SearchedParameter.model_validate(entry)) for entry in space)


def objective_of(immutable: str) -> Objective:
    """The objective, from the output of `immutable_part`, without the fields that may change."""
    goal = json.loads(immutable)["objective"]
    return Objective(metric=goal["metric"], goal=goal["goal"], value=goal["value"])


def changed_fields(old: str, new: str) -> list[str]:
    """The paths below `spec` in which two immutable parts differ."""
    before, after = json.loads(old), json.loads(new)
    return [path for name in IMMUTABLE for path in _differences(name, before[name], after[name])]


def differences(old: TrainSweepSpec, new: TrainSweepSpec) -> list[str]:
    """The paths below `spec` in which these two differ."""
    return _differences("", old.to_json_object(), new.to_json_object())


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        paths = {key: f"{path}.{key}" if path else key for key in sorted({*old, *new})}
        return [p for key in paths for p in _differences(paths[key], old.get(key), new.get(key))]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [p for at, (one, two) in pairs for p in _differences(f"{path}[{at}]", one, two)]
    return [] if json.dumps(old) == json.dumps(new) else [path]


def _parameter(it: SearchedParameter) -> Parameter:
    return Parameter(
        name=it.name,
        domain=_domain(it),
        when=tuple((when.name, when.is_in) for when in it.when),
    )


def _domain(it: SearchedParameter) -> Domain:
    if it.real is not None:
        return FloatRange(**it.real.model_dump())
    if it.whole is not None:
        return IntRange(**it.whole.model_dump())
    assert it.choice is not None, "exactly one of the three is given"
    return OneOf(it.choice)


def trials_uri(sweep: TrainSweep) -> str:
    """URI of the folder that holds all trials' folders."""
    return f"{sweep.spec.storage.uri.rstrip('/')}/{sweep.sweep_name}/{TRIALS}"


def trial_run(sweep: TrainSweep, trial: CreateTrial) -> TrainRun:
    """The TrainRun for an opening of a trial."""
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
    """The message of a trial's run, with the paths of the user's file: `spec.run.health` where the
    TrainRun has `spec.health`. Advice for a run becomes advice for the sweep."""
    message = re.sub(f"the run (resumes(?: from them)?) {ONCE_RAISED}", REOPENED, message)
    return _OF_THE_RUN.sub(lambda found: f"{found[0]}run.", message)


def _storage(sweep: TrainSweep, folder: str) -> dict[str, Any]:
    whole = sweep.spec.storage.to_json_object()
    kept = {name: value for name, value in whole.items() if name in SHARED}
    return {"uri": trials_uri(sweep), "runName": folder, **kept}


def _handed(sweep: TrainSweep, trial: TrialView) -> dict[str, Any]:
    """The template with the parameters in the environment of the container that trains. They come
    first, so that other variables and arguments can refer to them: `$(TRAINRUN_PARAM_LR)`."""
    template = sweep.spec.run.workers.template
    whole = template.as_dict()
    name = template.spec.training.name
    (container,) = (entry for entry in whole["spec"]["containers"] if entry["name"] == name)
    ours = {
        variables.TRIAL: str(trial.number),
        variables.PARAMS: json.dumps(dict(trial.params)),
        **{variable_of(name): as_text(value) for name, value in trial.params.items()},
    }
    theirs = [entry for entry in container.get("env", ()) if entry["name"] not in ours]
    # Kubernetes reads "$(NAME)" in a value as a reference, and "$$" as one dollar.
    handed = [{"name": key, "value": value.replace("$", "$$")} for key, value in ours.items()]
    container["env"] = [*handed, *theirs]
    return whole


def as_text(value: Scalar) -> str:
    """A parameter as a word of a command line: `true`, and the shortest exact form of a float."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def run_name(sweep: str, trial: TrialView) -> str:
    """`lr-search-00042`, and for later openings `lr-search-00042-o2`."""
    return f"{sweep}-{trial.number:05}" + (f"-o{trial.opening}" if trial.opening > 1 else "")


def folder_name(trial: TrialView) -> str:
    """`00042`, and for later incarnations `00042-i2`."""
    folder = layout.sweep_trial_folder(trial.number, trial.incarnation)
    return folder.removeprefix(layout.SWEEP_TRIALS)


def displaced(trial: TrialView) -> str:
    """The message for a trial that could not get the folder of its number; empty: it has got it."""
    if trial.first == 1:
        return ""
    return (
        f"trial {trial.number} starts in the new folder {folder_name(trial)}: {trial.number:05} "
        "holds a trial whose records the log has lost, and stays unchanged"
    )
