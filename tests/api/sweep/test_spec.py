"""What a TrainSweep file may say, and what a user reads where it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainrun_operator.api.loading import InvalidFile, load
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep

WORKERS = {"template": {"spec": {"containers": [{"name": "w", "command": ["python", "t.py"]}]}}}
LR = {"name": "lr", "float": {"low": 1e-5, "high": 0.1, "log": True}}
LAYERS = {"name": "layers", "int": {"low": 2, "high": 12, "step": 2}}
OPTIMIZER = {"name": "optimizer", "choice": ["adamw", "sgd"]}
MOMENTUM = {
    "name": "momentum",
    "float": {"low": 0.0, "high": 0.99},
    "when": [{"name": "optimizer", "in": ["sgd"]}],
}

GRID = {"sampler": {"name": "Grid"}}
CMA_ES = {"sampler": {"name": "CmaEs"}}


CONTAINERS = "spec.run.workers.template.spec.containers"


def trains(container: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    return {
        "workers": {"template": {"spec": {"containers": [{"name": "w", **container}, *others]}}}
    }


def document(**changes: object) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "storage": {"uri": "s3://bucket/prefix"},
        "objective": {"metric": "loss", "goal": "minimize"},
        "space": [LR],
        "budget": {"trials": 10},
        "run": {"workers": WORKERS},
    }
    name = changes.pop("name", "lr-search")
    for path, value in changes.items():
        spec[path] = value
    return {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainSweep",
        "metadata": {"name": name},
        "spec": spec,
    }


def read(**changes: object) -> TrainSweep:
    return load(json.dumps(document(**changes)), TRAINSWEEP, source="sweep.yaml")


def problems(**changes: object) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        read(**changes)
    return list(caught.value.problems)


def test_a_whole_sweep_is_read_and_written_as_it_was() -> None:
    sweep = read(
        space=[LR, LAYERS, OPTIMIZER, MOMENTUM],
        fixed={"epochs": 20, "amp": True},
        firstTrials=[{"lr": 0.001, "layers": 4, "optimizer": "sgd", "momentum": 0.5}],
        maxConcurrent=4,
        maxFailedTrials=0,
        budget={"trials": 100, "activeTime": "24h"},
        pausedTrials=[3],
        stoppedTrials=[4],
        resume={"resumeErrored": True, "token": 2},
    )

    again = load(json.dumps(sweep.to_json_object()), TRAINSWEEP, source="again.yaml")
    assert again == sweep
    assert sweep.sweep_name == "lr-search"


def test_a_sweep_may_have_a_folder_of_another_name() -> None:
    sweep = read(storage={"uri": "s3://bucket/prefix", "sweepName": "first"})

    assert sweep.sweep_name == "first"


def test_a_template_may_refer_to_a_parameter_that_is_not_always_there_with_a_value_of_its_own() -> (
    None
):
    container = {
        "command": ["python", "t.py"],
        "args": ["$(TRAINRUN_PARAM_MOMENTUM)", "$(TRAINRUN_PARAM_EPOCHS)", "$(TRAINRUN_TRIAL)"],
        "env": [{"name": "TRAINRUN_PARAM_MOMENTUM", "value": "0"}],
    }
    sweep = read(
        space=[OPTIMIZER, MOMENTUM],
        fixed={"epochs": 2},
        run=trains(container, {"name": "beside", "args": ["$(ANY)"]}),
    )
    assert sweep.spec.run.workers.template.spec.training.args[1] == "$(TRAINRUN_PARAM_EPOCHS)"


@pytest.mark.parametrize("number", [LR, LAYERS])
def test_cma_es_takes_a_space_with_one_number_that_is_always_there(number: object) -> None:
    space = [OPTIMIZER, MOMENTUM, number]
    assert read(space=space, **CMA_ES).spec.sampler.name == "CmaEs"


def test_a_parameter_may_have_one_value() -> None:
    assert read(space=[{"name": "a", "int": {"low": 3, "high": 3}}]).spec.space[0].whole


NO_QUANTITY = 'is not allowed: it must be a quantity such as "500m" or "1Gi"'
REFUSED: list[tuple[str, dict[str, object], list[str]]] = [
    (
        "amounts that are none",
        {"clerk": {"resources": {"limits": {"cpu": 0.5}, "requests": {"memory": "1" * 33}}}},
        [
            f'spec.clerk.resources.requests.memory: "{"1" * 33}" {NO_QUANTITY}',
            f"spec.clerk.resources.limits.cpu: 0.5 {NO_QUANTITY}",
        ],
    ),
    (
        "an option of another rule",
        {"earlyStopping": {"name": "ASHA", "options": {"percentile": 25}}},
        ["spec.earlyStopping.options.percentile: 25 is not allowed: it must be absent with ASHA"],
    ),
    (
        "an option that has no default",
        {"earlyStopping": {"name": "Hyperband"}},
        ["spec.earlyStopping.options.maxResource: must be given with Hyperband"],
    ),
    (
        "rungs that nobody reaches",
        {
            "earlyStopping": {
                "name": "Hyperband",
                "options": {"minResource": 9, "maxResource": 3},
            }
        },
        [
            "spec.earlyStopping.options.maxResource: 3 is not allowed: it must not be below "
            "minResource (9)"
        ],
    ),
    (
        "a threshold without a bound",
        {"earlyStopping": {"name": "Threshold", "options": {"warmupSteps": 3}}},
        ["spec.earlyStopping.options.upper: must be given with Threshold unless lower is given"],
    ),
    (
        "bounds that leave no value",
        {"earlyStopping": {"name": "Threshold", "options": {"lower": 2, "upper": 1}}},
        ["spec.earlyStopping.options.upper: 1 is not allowed: it must not be below lower (2)"],
    ),
    (
        "names where mappings are needed, as other tools have them",
        {
            "sampler": "TPE",
            "earlyStopping": "ASHA",
            "storage": "/tmp/sweeps",
            "budget": 10,
            "space": {"lr": {"float": {"low": 0, "high": 1}}},
        },
        [
            'spec.sampler: "TPE" is a string; a mapping is needed; write sampler: {name: TPE}',
            'spec.earlyStopping: "ASHA" is a string; a mapping is needed; write earlyStopping: '
            "{name: ASHA}",
            'spec.storage: "/tmp/sweeps" is a string; a mapping is needed; write storage: {uri: '
            "file:///absolute/path}",
            "spec.budget: 10 is a number; a mapping is needed; write budget: {trials: 100}",
            'spec.space: {"lr": {"float": {"low": 0, "high": 1}}} is a mapping; a list is needed; '
            "write space: [{name: lr, float: {low: 0.001, high: 0.1}}]",
        ],
    ),
    (
        "a condition as a mapping",
        {"space": [OPTIMIZER, {**MOMENTUM, "when": {"optimizer": ["sgd"]}}]},
        [
            'spec.space[1].when: {"optimizer": ["sgd"]} is a mapping; a list is needed; write '
            "when: [{name: optimizer, in: [sgd]}]"
        ],
    ),
    (
        "a time without a unit",
        {"budget": {"trials": 3, "activeTime": 60}},
        [
            "spec.budget.activeTime: 60 is a number; a string is needed; write 60s for seconds",
        ],
    ),
    (
        "a name that is a number",
        {"objective": {"metric": 1, "goal": "minimize"}},
        ["spec.objective.metric: 1 is a number; a string is needed"],
    ),
    ("no space", {"space": []}, ["spec.space: is empty; at least 1 entry is needed"]),
    (
        "no domain",
        {"space": [{"name": "a"}]},
        ["spec.space[0]: must have exactly one of float, int and choice"],
    ),
    (
        "two domains",
        {"space": [{**LR, "choice": [1]}]},
        ["spec.space[0]: must have exactly one of float, int and choice"],
    ),
    (
        "bounds the wrong way",
        {"space": [{"name": "a", "float": {"low": 2, "high": 1}}]},
        ["spec.space[0].float.high: 1 is not allowed: it must not be below low"],
    ),
    (
        "log from zero",
        {"space": [{"name": "a", "int": {"low": 0, "high": 9, "log": True}}]},
        ["spec.space[0].int.low: 0 is not allowed: it must be above 0 where log is true"],
    ),
    (
        "log and step",
        {"space": [{"name": "a", "float": {"low": 1, "high": 9, "log": True, "step": 1}}]},
        ["spec.space[0].float.step: 1 is not allowed: it must be absent where log is true"],
    ),
    (
        "a step too wide",
        {"space": [{"name": "a", "int": {"low": 1, "high": 3, "step": 3}}]},
        ["spec.space[0].int.step: 3 is not allowed: it must not be above high - low (2)"],
    ),
    (
        "a choice that is a list",
        {"space": [{"name": "a", "choice": [[1]]}]},
        [
            "spec.space[0].choice[0]: must be a finite number, true or false, or a string of at "
            "most 1024 characters; give each of them a name, and let the script look up the name"
        ],
    ),
    (
        "a choice that is None",
        {"space": [{"name": "a", "choice": [None]}]},
        [
            "spec.space[0].choice[0]: must be a finite number, true or false, or a string of at "
            'most 1024 characters; write "none", and let the script convert it to None'
        ],
    ),
    (
        "two objectives",
        {"objective": [{"metric": "loss", "goal": "minimize"}]},
        [
            'spec.objective: [{"metric": "loss", "goal": "minimize"}] is a list; a mapping is '
            "needed; write objective: {metric: loss, goal: minimize}, and report a sum for several "
            "goals"
        ],
    ),
    (
        "a text that is too long",
        {"fixed": {"a": "x" * 1025}},
        [
            f'spec.fixed.a: "{"x" * 76}... is not allowed: it must be a finite number, true or '
            "false, or a string of at most 1024 characters"
        ],
    ),
    (
        "the same name twice",
        {"space": [LR, LR]},
        ['spec.space[1].name: "lr" is not allowed: it must not give lr a second time'],
    ),
    (
        "searched and fixed",
        {"fixed": {"lr": 1}},
        ["spec.fixed.lr: 1 is not allowed: it must not give lr a second time"],
    ),
    (
        "two names, one variable",
        {"space": [LR, {"name": "LR", "choice": [1]}]},
        [
            'spec.space[1].name: "LR" is not allowed: it must not become the same variable as lr: '
            "TRAINRUN_PARAM_LR"
        ],
    ),
    (
        "when on what comes later",
        {"space": [MOMENTUM, OPTIMIZER]},
        [
            'spec.space[0].when[0].name: "optimizer" is not allowed: it must be a parameter '
            "listed before this one in space"
        ],
    ),
    (
        "when on a value that is never there",
        {"space": [OPTIMIZER, {**MOMENTUM, "when": [{"name": "optimizer", "in": ["adam"]}]}]},
        ['spec.space[1].when[0].in: must list values of optimizer; "adam" is not one'],
    ),
    (
        "a first trial of another space",
        {"firstTrials": [{"lr": 0.01, "depth": 3}]},
        ["spec.firstTrials[0]: must not name depth; parameters of space: lr"],
    ),
    (
        "a first trial out of range",
        {
            "space": [LR, OPTIMIZER],
            "firstTrials": [{"lr": 1}, {"lr": "fast"}, {"optimizer": "adam"}],
        },
        [
            "spec.firstTrials[0].lr: 1 is not allowed: it must be a number from 1e-05 to 0.1, as "
            "space says",
            'spec.firstTrials[1].lr: "fast" is not allowed: it must be a number from 1e-05 to 0.1, '
            "as space says",
            'spec.firstTrials[2].optimizer: "adam" is not allowed: it must be one of "adamw", '
            '"sgd"',
        ],
    ),
    (
        "a first trial beside the steps",
        {"space": [LAYERS], "firstTrials": [{"layers": 3}, {"layers": 4.0}, {"layers": 4}]},
        [
            "spec.firstTrials[0].layers: 3 is not allowed: it must be a whole number from 2 to 12 "
            "in steps of 2, as space says",
            "spec.firstTrials[1].layers: 4.0 is not allowed: it must be a whole number from 2 to "
            "12 in steps of 2, as space says",
        ],
    ),
    (
        "a grid of all numbers",
        {**GRID, "space": [{"name": "a", "float": {"low": 0, "high": 1}}]},
        ["spec.space[0].float.step: must be given with the sampler Grid"],
    ),
    (
        "a grid with conditions and first trials",
        {
            **GRID,
            "space": [OPTIMIZER, {**LAYERS, "when": [{"name": "optimizer", "in": ["sgd"]}]}],
            "firstTrials": [{"layers": 2}],
        },
        [
            "spec.firstTrials: must be absent with the sampler Grid, which tries every combination",
            "spec.space[1].when: must be absent with the sampler Grid",
        ],
    ),
    (
        "a grid that would try the same twice",
        {**GRID, "space": [{"name": "a", "choice": [1, True, 1.0, "1"]}]},
        [
            "spec.space[0].choice[2]: 1.0 is not allowed: it must be listed once: a Grid tries "
            "every combination once"
        ],
    ),
    (
        "a grid without end",
        {**GRID, "space": [OPTIMIZER, {"name": "a", "int": {"low": 1, "high": 10**12}}]},
        ["spec.space: must have at most 10000 points for a Grid; it has 2000000000000"],
    ),
    (
        "nothing that CMA-ES could search",
        {
            **CMA_ES,
            "space": [
                OPTIMIZER,
                MOMENTUM,
                {"name": "one", "int": {"low": 3, "high": 3}},
                {"name": "same", "float": {"low": 0.5, "high": 0.5}},
            ],
        },
        [
            "spec.space: must have at least one float or int with more than one value and no when "
            "for the sampler CmaEs; use TPE, which takes any space"
        ],
    ),
    (
        "no number of trials",
        {"budget": {}},
        ["spec.budget.trials: must be given except with the sampler Grid"],
    ),
    (
        "resumed and restarted",
        {"resume": {"resumeErrored": True, "restartErrored": True}},
        [
            "spec.resume.restartErrored: true is not allowed: it must not be true together with "
            "resumeErrored"
        ],
    ),
    (
        "paused and stopped",
        {"pausedTrials": [1, 2], "stoppedTrials": [2]},
        ["spec.pausedTrials: must not name trial 2, since stoppedTrials names it"],
    ),
    (
        "a name too long for the names of runs",
        {"name": "a" * 35},
        [f'metadata.name: "{"a" * 35}" is not allowed: it must be at most 34 characters'],
    ),
    (
        "no goal",
        {"objective": {"metric": "loss"}},
        [
            "spec.objective.goal: is missing: minimize or maximize; no default, since the wrong "
            "one finds the worst. Cannot be changed."
        ],
    ),
    (
        "arguments with a parameter that is not there",
        {
            "space": [LR, OPTIMIZER, MOMENTUM],
            "run": trains(
                {
                    "command": ["python", "$(TRAINRUN_PARAM_MODEL).py", "$$(TRAINRUN_PARAM_NO)"],
                    "args": ["--lr=$(TRAINRUN_PARAM_LR)", "--m=$(TRAINRUN_PARAM_MOMENTUM)"],
                    "env": [{"name": "TAG", "value": "$(TRAINRUN_PARAM_RL)-$(HOME)"}],
                },
                {"name": "beside", "args": ["$(TRAINRUN_PARAM_LR)"]},
            ),
        },
        [
            f'{CONTAINERS}[0].command[1]: "$(TRAINRUN_PARAM_MODEL).py" is not allowed: it must not '
            f"refer to TRAINRUN_PARAM_MODEL: no "
            "parameter of space or fixed sets it; known: TRAINRUN_PARAM_LR, "
            "TRAINRUN_PARAM_OPTIMIZER",
            f'{CONTAINERS}[0].args[1]: "--m=$(TRAINRUN_PARAM_MOMENTUM)" is not allowed: it must '
            f"not refer to TRAINRUN_PARAM_MOMENTUM: some trials "
            "lack momentum (its when); add TRAINRUN_PARAM_MOMENTUM to the container's env "
            "with a value for those, or read it with trainrun.get_params",
            f'{CONTAINERS}[0].env[0].value: "$(TRAINRUN_PARAM_RL)-$(HOME)" is not allowed: it must '
            f"not refer to TRAINRUN_PARAM_RL: no "
            "parameter of space or fixed sets it; known: TRAINRUN_PARAM_LR, "
            "TRAINRUN_PARAM_OPTIMIZER",
            f'{CONTAINERS}[1].args[0]: "$(TRAINRUN_PARAM_LR)" is not allowed: it must not '
            f"refer to TRAINRUN_PARAM_LR: only the container w "
            "gets parameters",
        ],
    ),
    (
        "more than a variable can hold",
        {
            "space": [{"name": f"p{n}", "choice": ["a", "x" * 1000]} for n in range(30)],
            "fixed": {f"f{n}": "\u00e9" * 200 for n in range(3)},
        },
        [
            "spec.space: must have at most 32768 characters of JSON per trial, with fixed and the "
            "longest options; it has 33950"
        ],
    ),
    (
        "a parameter that is no variable",
        {"space": [{"name": "learning rate", "choice": [1]}]},
        [
            'spec.space[0].name: "learning rate" is not allowed: it must begin with a letter and '
            "consist of letters, digits, dots, dashes and underscores"
        ],
    ),
]


@pytest.mark.parametrize(
    ("changes", "wanted"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_a_bad_sweep_is_refused_by_field(changes: dict[str, object], wanted: list[str]) -> None:
    assert sorted(problems(**changes)) == sorted(wanted)


def test_a_number_with_an_exponent_is_a_number_with_or_without_a_dot() -> None:
    text = json.dumps(document()).replace("1e-05", "1e-5").replace("0.1", "1E3")

    real = load(text, TRAINSWEEP, source="sweep.yaml").spec.space[0].real

    assert real is not None
    assert (real.low, real.high) == (1e-5, 1000.0)


def test_what_json_has_no_number_for_is_refused_before_a_log_is_begun_that_cannot_hold_it() -> None:
    """It ended as a traceback, once a trial was asked for."""
    numbers = {"OPTION": "[1, .nan]", "FIXED": ".inf", "HIGH": "-.inf"}
    text = json.dumps(
        document(
            space=[
                {"name": "a", "choice": "OPTION"},
                {"name": "c", "float": {"low": 0, "high": "HIGH"}},
            ],
            fixed={"b": "FIXED"},
        )
    )
    for name, number in numbers.items():
        text = text.replace(f'"{name}"', number)

    with pytest.raises(InvalidFile) as caught:
        load(text, TRAINSWEEP, source="sweep.yaml")

    allowed = "it must be a finite number"
    others = ", true or false, or a string of at most 1024 characters"
    assert sorted(caught.value.problems) == [
        f"spec.fixed.b: Infinity is not allowed: {allowed}{others}",
        f"spec.space[0].choice[1]: NaN is not allowed: {allowed}{others}",
        f"spec.space[1].float.high: -Infinity is not allowed: {allowed}",
    ]
