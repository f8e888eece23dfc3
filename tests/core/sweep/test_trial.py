"""The TrainRun of a trial."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainrun.sweep.view import TrialView
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.core.run.incidents.ledger import RESUMES, RESUMES_FROM_CHECKPOINT
from trainrun_operator.core.sweep.boundary import CreateTrial
from trainrun_operator.core.sweep.config import displaced, in_sweep, trial_run, trials_uri

LOST = (
    "trial 3 starts in the new folder 00003-i2: 00003 holds a trial whose records the log has "
    "lost, and stays unchanged"
)
PARAMS = {"lr": 1e-05, "bias": True, "name": "a$b"}


def a_sweep(*containers: dict[str, Any], **storage: Any) -> TrainSweep:
    document = {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainSweep",
        "metadata": {"name": "lr", "namespace": "team"},
        "spec": {
            "storage": {"uri": "s3://bucket/sweeps/", **storage},
            "objective": {"metric": "loss", "goal": "minimize"},
            "space": [
                {"name": "lr", "float": {"low": 0.0, "high": 1.0}},
                {"name": "bias", "choice": [True, False]},
                {"name": "name", "choice": ["a$b"]},
            ],
            "budget": {"trials": 3},
            "run": {
                "failurePolicy": {"maxFailures": 7},
                "workers": {"replicas": 2, "template": {"spec": {"containers": containers}}},
            },
        },
    }
    return load(json.dumps(document), TRAINSWEEP, source="sweep.yaml")


A_TRIAL = CreateTrial(name="lr-00003-o2", trial=TrialView(3, PARAMS, opening=2))


TRAINS = {"name": "trains", "image": "me/it:1", "command": ["python", "t.py"]}


def test_it_has_a_name_a_namespace_and_a_folder_of_its_own() -> None:
    run = trial_run(a_sweep(TRAINS, sweepName="first"), A_TRIAL)
    assert (run.metadata.name, run.metadata.namespace) == ("lr-00003-o2", "team")
    assert run.spec.storage.uri == "s3://bucket/sweeps/first/trials"
    assert run.run_name == "00003"


def test_it_has_the_sweeps_way_to_the_store_and_the_budget_of_each_trial() -> None:
    sweep = a_sweep(TRAINS, region="eu", credentialsSecretRef={"name": "keys"})
    run = trial_run(sweep, A_TRIAL)
    assert run.spec.storage.region == "eu"
    assert run.spec.storage.credentials_secret_ref is not None
    assert run.spec.failure_policy.max_failures == 7
    assert run.spec.workers.replicas == 2
    assert trials_uri(sweep) == "s3://bucket/sweeps/lr/trials"


def test_the_container_that_trains_gets_the_parameters_and_no_other_does() -> None:
    worker = {**TRAINS, "name": "worker", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = trial_run(a_sweep(TRAINS, worker), A_TRIAL).spec.workers.template.as_dict()
    beside, trains = template["spec"]["containers"]
    assert "env" not in beside
    assert trains["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    env = {entry["name"]: entry["value"] for entry in trains["env"]}
    assert env == {
        "TRAINRUN_TRIAL": "3",
        "TRAINRUN_PARAMS": json.dumps(PARAMS).replace("$", "$$"),
        "TRAINRUN_PARAM_LR": "1e-05",
        "TRAINRUN_PARAM_BIAS": "true",
        "TRAINRUN_PARAM_NAME": "a$$b",
    }


def test_arguments_and_variables_can_refer_to_parameters() -> None:
    container = {
        **TRAINS,
        "args": ["--lr=$(TRAINRUN_PARAM_LR)", "--name=$(TRAINRUN_PARAM_NAME)", "$(TAG)"],
        "env": [
            {"name": "TAG", "value": "lr-$(TRAINRUN_PARAM_LR)"},
            {"name": "TRAINRUN_PARAM_LR", "value": "0.5"},
        ],
    }
    run = trial_run(a_sweep(container), A_TRIAL)
    words = run.spec.workers.template.spec.training.words
    assert words == ("python", "t.py", "--lr=1e-05", "--name=a$b", "lr-1e-05")


@pytest.mark.parametrize(
    ("said", "of_the_sweep"),
    [
        ("spec.failurePolicy.maxFailures is 1", "spec.run.failurePolicy.maxFailures is 1"),
        ("(spec.activeDeadline) is over", "(spec.run.activeDeadline) is over"),
        ("set failurePolicy.maxPreemptions: -1", "set run.failurePolicy.maxPreemptions: -1"),
        ("mounts in workers.template", "mounts in run.workers.template"),
        ("spec.suspend is true", "spec.suspend is true"),
        (
            RESUMES_FROM_CHECKPOINT,
            ". Committed checkpoints are kept: the trial resumes from them with "
            "resume.resumeErrored: true and 1 more in resume.token",
        ),
        (
            RESUMES,
            "; the trial resumes with resume.resumeErrored: true and 1 more in resume.token",
        ),
        ("loads a.spec.health, checkpoint.pt", "loads a.spec.health, checkpoint.pt"),
    ],
)
def test_what_is_said_of_its_run_names_the_fields_of_the_sweep(
    said: str, of_the_sweep: str
) -> None:
    assert in_sweep(said) == of_the_sweep
    assert in_sweep(of_the_sweep) == of_the_sweep


@pytest.mark.parametrize(("first", "said"), [(1, ""), (2, LOST)])
def test_a_trial_that_could_not_get_the_folder_of_its_number_says_which_it_has(
    first: int, said: str
) -> None:
    assert displaced(TrialView(3, {}, incarnation=first)) == said
