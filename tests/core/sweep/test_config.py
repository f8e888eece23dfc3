"""From a file to what decisions and the clerk go by."""

from __future__ import annotations

import json

import pytest

from tests.api.sweep.test_spec import LAYERS, LR, MOMENTUM, OPTIMIZER, read
from trainrun.sweep.search import (
    Asha,
    EarlyStopping,
    FloatRange,
    Hyperband,
    IntRange,
    OneOf,
    Parameter,
    Percentile,
    Threshold,
)
from trainrun_operator.core.sweep.config import changed_fields, differences, space_of, sweep_config


def test_the_space_becomes_what_the_clerk_searches() -> None:
    config = sweep_config(read(space=[LR, LAYERS, OPTIMIZER, MOMENTUM], fixed={"epochs": 20}))

    assert config.search.space == (
        Parameter("lr", FloatRange(1e-5, 0.1, log=True)),
        Parameter("layers", IntRange(2, 12, step=2)),
        Parameter("optimizer", OneOf(("adamw", "sgd"))),
        Parameter("momentum", FloatRange(0.0, 0.99), when=(("optimizer", ("sgd",)),)),
    )
    assert config.search.fixed == (("epochs", 20),)
    assert (config.trials, config.active_time, config.token) == (10, None, 0)
    assert space_of(config.immutable) == config.search.space


def test_a_grid_ends_exactly_at_its_size() -> None:
    """Edge case 21."""
    grid = {"sampler": {"name": "Grid"}, "space": [LAYERS, OPTIMIZER]}

    assert sweep_config(read(**grid, budget={})).trials == 12
    assert sweep_config(read(**grid, budget={"trials": 5})).trials == 5
    assert sweep_config(read(**grid, budget={"trials": 99})).trials == 12


def test_budgets_flags_and_lists_are_handed_on() -> None:
    config = sweep_config(
        read(
            budget={"trials": 3, "activeTime": "1m"},
            resume={"resumeUnfinished": False, "restartErrored": True, "token": 4},
            storage={"uri": "s3://bucket/prefix", "onExisting": "Fail"},
            pausedTrials=[1],
            stoppedTrials=[2],
        )
    )

    assert (config.active_time, config.token, config.fail_on_existing) == (60.0, 4, True)
    assert (config.resume_unfinished, config.resume_errored, config.restart_errored) == (
        False,
        False,
        True,
    )
    assert (config.paused, config.stopped) == ({1}, {2})


def test_what_may_change_changes_no_digest_and_what_may_not_is_named() -> None:
    before = sweep_config(read()).immutable

    may = read(
        objective={"metric": "loss", "goal": "minimize", "target": 1.0},
        budget={"trials": 99},
        maxConcurrent=9,
    )
    assert sweep_config(may).immutable == before
    may_not = read(
        objective={"metric": "loss", "goal": "maximize"},
        space=[{**LR, "float": {"low": 1e-4, "high": 0.1}}],
    )
    after = sweep_config(may_not).immutable
    assert changed_fields(before, after) == [
        "objective.goal",
        "space[0].float.log",
        "space[0].float.low",
    ]
    assert json.loads(before)["sampler"] == {"name": "Random", "seed": 0}


def test_specs_differ_in_what_they_mean_and_not_in_which_defaults_they_write_out() -> None:
    spec = read().spec
    assert differences(spec, read(maxConcurrent=1, earlyStopping=None).spec) == []
    other = read(budget={"trials": 99}, pausedTrials=[1], earlyStopping={"name": "ASHA"}).spec
    assert differences(spec, other) == ["budget.trials", "earlyStopping", "pausedTrials"]


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("ASHA", {"minResource": 2}, Asha(min_resource=2, reduction_factor=4)),
        ("Hyperband", {"maxResource": 81}, Hyperband(max_resource=81, reduction_factor=3)),
        ("Median", {"startupTrials": 0}, Percentile(percentile=50.0, startup_trials=0)),
        ("Percentile", {"percentile": 25, "minTrials": 3}, Percentile(25.0, min_trials=3)),
        ("Threshold", {"upper": 9, "warmupSteps": 5}, Threshold(upper=9.0, warmup_steps=5)),
    ],
)
def test_each_rule_of_early_stopping_is_handed_on(
    name: str, options: dict[str, float], rule: EarlyStopping
) -> None:
    config = sweep_config(read(earlyStopping={"name": name, "options": options}))
    assert config.search.early_stopping == rule


def test_without_a_rule_nothing_is_ended_early() -> None:
    assert sweep_config(read()).search.early_stopping is None
