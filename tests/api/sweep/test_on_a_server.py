"""What a real API server does with the CRD of TrainSweep."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.api.sweep.test_spec import LAYERS, LR, MOMENTUM, OPTIMIZER, document
from trainrun_operator.api.crd import crd_yaml
from trainrun_operator.api.loading import read
from trainrun_operator.api.sweep.spec import TRAINSWEEP

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns

CRD = Path(__file__).parents[3] / "crds" / TRAINSWEEP.file_name


@pytest.fixture
def sweeps(trainruns: TrainRuns) -> TrainRuns:
    trainruns.install(CRD, name=TRAINSWEEP.name)
    return trainruns


def kept(sweeps: TrainRuns) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        sweeps.kubectl("get", "trainsweep", "lr-search", "--output", "json")
    )
    return found


def edited(sweeps: TrainRuns, spec: dict[str, Any]) -> str:
    patch = json.dumps({"spec": spec})
    try:
        sweeps.kubectl("patch", "trainsweep", "lr-search", "--type=merge", f"--patch={patch}")
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


def test_the_file_in_crds_is_what_the_models_say() -> None:
    assert CRD.read_text() == crd_yaml(TRAINSWEEP), "run `make crds`"


def test_a_sweep_is_kept_with_all_that_it_says_and_read_as_from_a_file(sweeps: TrainRuns) -> None:
    written = document(
        space=[LR, LAYERS, OPTIMIZER, MOMENTUM],
        fixed={"epochs": 20, "amp": True, "name": "x"},
        firstTrials=[{"lr": 0.001, "layers": 4, "optimizer": "sgd", "momentum": 0.5}],
        earlyStopping={"name": "ASHA", "options": {"minResource": 2}},
        clerk={"resources": {"limits": {"cpu": 1, "memory": "512Mi"}}},
    )
    sweeps.create_sweep(written)
    found = kept(sweeps)
    for name in ("space", "fixed", "firstTrials", "earlyStopping", "clerk"):
        from_file = read(written, TRAINSWEEP, source="").spec.to_json_object()[name]
        from_server = read(found, TRAINSWEEP, source="").spec.to_json_object()[name]
        assert from_server == from_file


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": {}}, "spec.budget.trials: Invalid value"),
        (
            {"space": [{"name": "a", "float": {"low": 2, "high": 1}}]},
            "spec.space[0].float.high: Invalid value: must not be below low",
        ),
        (
            {"space": [{"name": "a", "int": {"low": 0, "high": 9, "log": True}}]},
            "spec.space[0].int.low: Invalid value: must be above 0 where log is true",
        ),
        (
            {"space": [{**LR, "int": {"low": 1, "high": 2}}]},
            "must have exactly one of float, int and choice",
        ),
        (
            {"clerk": {"resources": {"limits": {"cpu": True}}}},
            "spec.clerk.resources.limits.cpu: Invalid value",
        ),
        (
            {"resume": {"resumeErrored": True, "restartErrored": True}},
            "must not be true together with resumeErrored",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(
    sweeps: TrainRuns, changes: dict[str, Any], said: str
) -> None:
    assert said in sweeps.refusal_of_sweep(document(**changes))


def test_what_can_never_change_is_refused_and_all_else_is_taken(sweeps: TrainRuns) -> None:
    sweeps.create_sweep(document())
    for change, field in (
        ({"storage": {"uri": "s3://bucket/other"}}, "spec.storage.uri"),
        ({"storage": {"sweepName": "other"}}, "spec.storage.sweepName"),
        ({"objective": {"goal": "maximize"}}, "spec.objective.goal"),
        ({"sampler": {"seed": 7}}, "spec.sampler.seed"),
    ):
        said = edited(sweeps, change)
        assert field in said
        assert "cannot be changed" in said
    assert edited(sweeps, {"budget": {"trials": 50}, "pausedTrials": [3], "suspend": True}) == ""
