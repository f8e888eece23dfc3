"""The TrainRun of a trial: made by us, and recognised again."""

from __future__ import annotations

from typing import Any

from tests.worlds.kubernetes.sweeps import PLACE, a_sweep
from trainrun.contract.agent_config import AgentConfig
from trainrun.sweep.view import TrialView
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.core.run.boundary import CreateWorker
from trainrun_operator.core.run.config import config_of
from trainrun_operator.core.sweep.boundary import CreateTrial
from trainrun_operator.worlds.kubernetes.render import worker_pod
from trainrun_operator.worlds.kubernetes.sweep_objects import trial_manifest, trial_object

ACTION = CreateTrial(name="search-00003-o2", trial=TrialView(3, {"lr": 0.01}, opening=2))


def made(**status: Any) -> dict[str, Any]:
    manifest = trial_manifest(a_sweep(), ACTION)
    manifest["metadata"] |= {"uid": "run-1", "creationTimestamp": "2026-11-01T12:00:00Z"}
    return {**manifest, "status": status}


def test_a_trial_is_a_run_that_goes_with_its_sweep_and_has_its_parameters() -> None:
    manifest = trial_manifest(a_sweep(), ACTION)
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("TrainSweep", "search", True)
    assert manifest["spec"]["storage"] == {
        "uri": "s3://bucket/sweeps/search/trials",
        "runName": "00003",
        "credentialsSecretRef": {"name": "keys"},
        "onExisting": "Resume",
    }
    (container,) = manifest["spec"]["workers"]["template"]["spec"]["containers"]
    assert {"name": "TRAINRUN_PARAM_LR", "value": "0.01"} in container["env"]


def test_an_agent_of_a_trial_stores_what_is_searched_by_every_two_seconds() -> None:
    raw = made()
    run = read({k: v for k, v in raw.items() if k != "status"}, TRAINRUN, source="")
    action = CreateWorker(
        name="search-00003-o2-0-1", slot=0, created_for=1, template_hash="h", avoid=(), disfavor=()
    )
    pod = worker_pod(run, config_of(run), raw["spec"]["workers"]["template"], action, PLACE)
    (container,) = pod["spec"]["containers"]
    told = next(it for it in container["env"] if it["name"] == "TRAINRUN_AGENT_CONFIG")["value"]
    assert AgentConfig.from_json(told.replace("$$", "$")).metrics_interval == 2.0


def test_a_run_of_ours_is_recognised_with_all_that_decisions_need() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "AppError", "message": "boom"}
    found = trial_object(made(conditions=[failed], restarts=2, attempt=3))
    assert found is not None
    assert (found.sweep_uid, found.run.trial, found.run.opening) == ("uid-1", 3, 2)
    run = found.run
    assert (run.phase, run.reason, run.message) == ("Failed", "AppError", "boom")
    assert (run.restarts, run.attempt, run.suspend) == (2, 3, False)


def test_each_phase_of_a_run_is_one_that_decisions_know() -> None:
    def phase(**status: Any) -> str:
        found = trial_object(made(**status))
        assert found is not None
        return found.run.phase

    def true(kind: str) -> list[dict[str, str]]:
        return [{"type": kind, "status": "True"}]

    assert phase() == "Waiting"
    assert phase(workers={"ready": 1, "total": 2}, reason="Gathering") == "Waiting"
    assert phase(workers={"ready": 2, "total": 2}, reason="StorageInUse") == "Running"
    assert phase(attempt=1) == "Running"
    ending = {"ending": {"attempt": 1, "kind": "Incident"}}
    assert phase(attempt=1, internal=ending, workers={"ready": 2, "total": 2}) == "Running"
    assert phase(attempt=1, internal=ending, workers={"ready": 1, "total": 2}) == "Waiting"
    assert phase(attempt=1, conditions=true("Suspended")) == "Suspended"
    assert phase(attempt=1, conditions=true("Complete")) == "Succeeded"
    assert phase(attempt=1, conditions=true("Complete"), workers={"leaving": 1}) == "Running"
    assert phase(attempt=1, conditions=[{"type": "Suspended", "status": "False"}]) == "Running"


def test_a_run_that_only_says_that_it_is_a_trial_is_none() -> None:
    stranger = made()
    stranger["metadata"]["ownerReferences"] = []
    assert trial_object(stranger) is None
    elsewhere = made()
    elsewhere["metadata"]["ownerReferences"][0]["uid"] = "uid-2"
    assert trial_object(elsewhere) is None
    numberless = made()
    numberless["metadata"]["labels"]["trainrun.dev/trial"] = "three"
    assert trial_object(numberless) is None


def test_a_run_that_is_being_deleted_is_gone() -> None:
    leaving = made()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-01T12:00:01Z"
    assert trial_object(leaving) is None
