"""Builders for sweeps: a search, records, a view, a config, the runs of trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainrun.sweep.records import (
    Ask,
    Record,
    Reports,
    SweepSession,
    Tell,
    TrialReport,
    TrialState,
    written,
)
from trainrun.sweep.search import FloatRange, Objective, OneOf, Parameter, Search
from trainrun.sweep.view import SweepView, fold
from trainrun_operator.core.sweep.boundary import (
    SweepObservation,
    SweepPlan,
    TrialRun,
    TrialRunPhase,
)
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.planner import decide_sweep

SPACE = (
    Parameter("lr", FloatRange(1e-5, 0.1, log=True)),
    Parameter("optimizer", OneOf(("adamw", "sgd"))),
)
SPEC = '{"fixed": {}, "firstTrials": [], "objective": {}, "sampler": {}, "space": []}'


def a_search(**changes: Any) -> Search:
    objective = {k: changes.pop(k) for k in list(changes) if k in ("goal", "value", "target")}
    return replace(Search(space=SPACE, objective=Objective("loss", **objective)), **changes)


def a_config(**changes: Any) -> SweepConfig:
    base = SweepConfig(
        uid="me", search=a_search(), immutable=SPEC, trials=4, max_concurrent=2, max_unplaced=8
    )
    return replace(base, **changes)


def begun(**changes: Any) -> SweepSession:
    return replace(SweepSession(uid="me", spec=SPEC), **changes)


def asked(trial: int) -> Ask:
    return Ask(trial, {"lr": 0.1 * (trial + 1)})


def reported(trial: int, **curve: float) -> Reports:
    """`reported(3, s1=0.5, s2=0.4)`: the values at steps 1 and 2 of the first attempt."""
    return Reports(
        tuple(report(trial, int(step[1:]), value) for step, value in curve.items()), active=1.0
    )


def report(trial: int, step: int, value: float, **changes: Any) -> TrialReport:
    base = TrialReport(
        trial=trial,
        incarnation=1,
        attempt=1,
        resumed=0,
        seq=step,
        step=step,
        value=written(value),
    )
    return replace(base, **changes)


def told(trial: int, state: TrialState = "Succeeded", **changes: Any) -> Tell:
    value = written(float(trial)) if state == "Succeeded" else ""
    return replace(Tell(trial, 1, state, reason="Ended", value=value), **changes)


def a_view(*records: Record) -> SweepView:
    return fold((begun(), *records))


def a_run(
    trial: int, phase: TrialRunPhase = "Running", opening: int = 1, **changes: Any
) -> TrialRun:
    name = f"s-{trial:05}" + (f"-o{opening}" if opening > 1 else "")
    base = TrialRun(name=name, uid=f"uid-{name}", trial=trial, opening=opening, phase=phase)
    return replace(base, **changes)


def decided(
    log: SweepView, *runs: TrialRun, config: SweepConfig | None = None, **changes: Any
) -> SweepPlan:
    observation = SweepObservation(log=log, runs=runs, **changes)
    return decide_sweep(observation, config or a_config(), name="s")
