"""From the spec of a sweep to what its decisions, its clerk and its trials go by.

Layer: core, pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, assert_never

from trainrun.sweep.samplers import grid_size
from trainrun.sweep.search import Objective, Search
from trainrun.sweep.space import Domain, FloatRange, IntRange, OneOf, Parameter
from trainrun.sweep.stopping_rules import Asha, EarlyStopping, Hyperband, Percentile, Threshold
from trainrun_operator.api.sweep.spec import TrainSweep, TrainSweepSpec
from trainrun_operator.api.sweep.stopping import EarlyStoppingSpec
from trainrun_operator.api.sweep.values import SearchedParameter

IMMUTABLE = (
    "objective",
    "space",
    "fixed",
    "firstTrials",
    "sampler",
)
"""Fields of the spec that a search can never change: what was learned would be of something else.
Of the objective its target and stopOnNaN may."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """All that decisions know of the spec."""

    uid: str
    search: Search
    immutable: str
    """What can never change, as JSON with sorted keys."""
    trials: int
    """To try; of a grid at most its points."""
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
    """Trials whose checkpoints are kept; None: all."""
    resume_unfinished: bool = True
    resume_errored: bool = False
    restart_errored: bool = False
    token: int = 0


def sweep_config(sweep: TrainSweep) -> SweepConfig:
    """What a TrainSweep is decided by."""
    spec, search = sweep.spec, search_of(sweep.spec)
    wanted = spec.budget.trials
    if spec.sampler.name == "Grid":
        size = grid_size(search.space)
        wanted = min(size, size if wanted is None else wanted)
    assert wanted is not None, "the spec demands it of every other sampler"
    time = spec.budget.active_time
    return SweepConfig(
        uid=sweep.metadata.uid,
        search=search,
        immutable=immutable_part(spec),
        trials=wanted,
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
    """What the clerk searches."""
    goal = spec.objective
    return Search(
        space=tuple(_parameter(it) for it in spec.space),
        objective=Objective(
            metric=goal.metric,
            goal=goal.goal,
            value=goal.value,
            target=goal.target,
            stop_on_nan=goal.stop_on_nan,
        ),
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
        case _:
            assert_never(spec.name)


def immutable_part(spec: TrainSweepSpec) -> str:
    """What of the spec can never change, as JSON with sorted keys."""
    whole = spec.to_json_object()
    kept = {name: whole[name] for name in IMMUTABLE}
    kept["objective"] = {name: whole["objective"][name] for name in ("metric", "goal", "value")}
    return json.dumps(kept, sort_keys=True)


def space_of(immutable: str) -> tuple[Parameter, ...]:
    """What is searched, from what `immutable_part` has written."""
    space = json.loads(immutable)["space"]
    return tuple(_parameter(SearchedParameter.model_validate(it)) for it in space)


def changed_fields(old: str, new: str) -> list[str]:
    """The paths below `spec` in which two immutable parts differ."""
    before, after = json.loads(old), json.loads(new)
    return [path for name in IMMUTABLE for path in _differences(name, before[name], after[name])]


def differences(old: TrainSweepSpec, new: TrainSweepSpec) -> list[str]:
    """The paths below `spec` in which these two differ."""
    return _differences("", old.to_json_object(), new.to_json_object())


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        below = {it: f"{path}.{it}" if path else it for it in sorted({*old, *new})}
        return [p for it in below for p in _differences(below[it], old.get(it), new.get(it))]
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
        real = it.real
        return FloatRange(low=real.low, high=real.high, log=real.log, step=real.step)
    if it.whole is not None:
        whole = it.whole
        return IntRange(low=whole.low, high=whole.high, log=whole.log, step=whole.step)
    assert it.choice is not None, "exactly one of the three is given"
    return OneOf(it.choice)
