"""What an edit of each field of a run does: the table of `api/run/edits.py`, row by row."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.api.spec_table import BASE
from tests.kube.patching import merged
from tests.support.builders import WorkerObservation, a_worker
from tests.worlds.kubernetes.facts_of import fact
from tests.worlds.kubernetes.test_render import PLACE
from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.edits import EDITS, REFUSED, Edit
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.core.run.boundary import CreateWorker
from trainrun_operator.core.run.config import RunConfig, config_of
from trainrun_operator.core.run.gang.unusable import outdated
from trainrun_operator.worlds.kubernetes.render import worker_pod

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.core.run.boundary import WorkerFact

Json = dict[str, Any]

EDITED: dict[str, tuple[Any, Any]] = {
    "managedBy": ("trainrun.dev/operator", "example.com/controller"),
    "suspend": (False, True),
    "workers.replicas": (2, 4),
    "workers.processesPerWorker": (1, 8),
    "workers.independentRanks": (False, True),
    "workers.template": (
        {"spec": {"containers": [{"name": "w", "image": "img:1", "command": ["train"]}]}},
        {"spec": {"containers": [{"name": "w", "image": "img:2", "command": ["train"]}]}},
    ),
    "workers.agent": ("Inject", "InImage"),
    "workers.warmStart.preload": (["torch"], ["torch", "transformers"]),
    "storage.uri": ("s3://bucket/prefix", "s3://other/prefix"),
    "storage.runName": ("one", "other"),
    "storage.endpointURL": ("http://old:9000", "http://new:9000"),
    "storage.region": ("eu-1", "eu-2"),
    "storage.credentialsSecretRef.name": ("keys-1", "keys-2"),
    "storage.onExisting": ("Resume", "StartFresh"),
    "checkpoint.onNotice": ("Auto", "Signal"),
    "checkpoint.initialFrom": ("s3://weights/1", "s3://weights/2"),
    "checkpoint.flushTimeout": ("30s", "60s"),
    "checkpoint.maxPending": (2, 4),
    "checkpoint.uploadEvery": ("5s", "10s"),
    "checkpoint.buddy": (False, True),
    "checkpoint.keep": (3, 5),
    "checkpoint.scoreMetric": ("accuracy", "loss"),
    "checkpoint.scoreOrder": ("Max", "Min"),
    "checkpoint.folder.path": ("out", "results"),
    "checkpoint.folder.newest": ("*.pt", "checkpoint-*"),
    "checkpoint.folder.complete": (["*.json"], ["*.json", "*.pt"]),
    "checkpoint.folder.settle": ("10s", "20s"),
    "checkpoint.folder.resumeArgs": (["--resume"], ["--resume", "{newest}"]),
    "checkpoint.folder.resumeArgsFrom": ("Restore", "SecondAttempt"),
    "checkpoint.folder.carry": (True, False),
    "failurePolicy.maxFailures": (1, 5),
    "failurePolicy.maxPreemptions": (1, 5),
    "failurePolicy.maxStartFailures": (1, 5),
    "failurePolicy.window": ("1h", "2h"),
    "failurePolicy.noProgressLimit": (3, 5),
    "failurePolicy.maxAvoidedNodes": (4, 0),
    "failurePolicy.backoff.initial": ("1s", "2s"),
    "failurePolicy.backoff.factor": (2, 3),
    "failurePolicy.backoff.max": ("60s", "90s"),
    "failurePolicy.rules": (
        [{"exitCodes": [3], "action": "FailRun"}],
        [{"name": "nan", "exceptions": ["FloatingPointError"], "action": "RestartUncounted"}],
    ),
    "progress.output": ("Off", "Auto"),
    "progress.patterns": (
        [{"pattern": "iter (?P<step>[0-9]+)"}],
        [{"pattern": "step (?P<step>[0-9]+)", "rank": 1}],
    ),
    "health.heartbeatTimeout": ("30s", "20s"),
    "health.startTimeout": ("5m", "9m"),
    "health.placementTimeout": ("10m", "20m"),
    "health.progressTimeout": ("2m", "5m"),
    "health.firstStepTimeout": ("10m", "20m"),
    "health.hangPolicy": ("Observe", "Restart"),
    "health.forceDeletePods": (True, False),
    "activeDeadline": ("1h", "2h"),
    "ttlAfterFinished": ("1h", "2h"),
    "retainFailedWorkers": (1, 5),
}
"""For each field a value, and another one."""

BESIDE: dict[str, Json] = {
    "checkpoint.buddy": {"uploadEvery": "5s"},
    "checkpoint.scoreMetric": {"scoreOrder": "Max"},
    "checkpoint.scoreOrder": {"scoreMetric": "loss"},
    **{
        f"checkpoint.folder.{name}": {"path": "out"}
        for name in ("newest", "complete", "settle", "resumeArgs", "resumeArgsFrom", "carry")
    },
}
"""Fields of the same object without which one is refused."""
ELSEWHERE: dict[str, Json] = {"checkpoint.buddy": {"workers": {"replicas": 2}}}
"""Fields of other objects, likewise."""


def spec_with(path: str, value: Any) -> Json:
    """A spec that says this, and nothing else but what has to stand beside it."""
    *parents, last = path.split(".")
    value = {**BESIDE.get(path, {}), last: value}
    for name in reversed(parents):
        value = {name: value}
    return {"spec": merged(value, ELSEWHERE.get(path, {}))}


def run_with(path: str, value: Any) -> Json:
    return merged(merged(BASE, {"metadata": {"uid": "u"}}), spec_with(path, value))


def config_with(path: str, value: Any) -> RunConfig:
    return config_of(read(run_with(path, value), TRAINRUN, source="a test"))


def pod_of(document: Json) -> Json:
    run = read(document, TRAINRUN, source="a test")
    config = config_of(run)
    action = CreateWorker(
        name="digits-0-1", slot=0, created_for=1, template_hash=config.template_hash
    )
    return worker_pod(run, config, document["spec"]["workers"]["template"], action, PLACE)


def by_path(edit: Edit) -> str:
    return edit.path


def rows(effect: str) -> list[Edit]:
    return [edit for edit in EDITS if edit.effect == effect]


def test_every_field_is_edited_here() -> None:
    assert list(EDITED) == [edit.path for edit in EDITS]


@pytest.mark.case("nodes", "The spec is edited while the run trains, starts or waits")
@pytest.mark.parametrize("edit", EDITS, ids=by_path)
def test_the_api_server_refuses_what_a_run_cannot_follow_and_takes_the_rest(
    trainruns: TrainRuns, edit: Edit
) -> None:
    before, after = EDITED[edit.path]
    trainruns.create(**spec_with(edit.path, before)["spec"])

    refusal = trainruns.refusal_of_edit(spec_with(edit.path, after))

    if edit.effect == "Refused":
        assert f"spec.{edit.path}: Invalid value" in refusal
        assert f"cannot be changed: {edit.note}" in refusal
    else:
        assert refusal == ""


def a_gang(path: str, value: Any) -> tuple[WorkerFact, ...]:
    made = fact(pod_of(run_with(path, value)))
    return tuple(
        a_worker(slot, template_hash=made.template_hash, storage=made.storage) for slot in (0, 1)
    )


@pytest.mark.parametrize("edit", rows("NewWorkers"), ids=by_path)
def test_an_edit_of_what_workers_depend_on_together_replaces_all_of_them(edit: Edit) -> None:
    """Not one by one: the replacement of one would write to another place than its peers."""
    before, after = EDITED[edit.path]
    with_template = edit.path in ("workers.agent", "workers.warmStart.preload")
    said = "workers.template" if with_template else edit.path.removesuffix(".name")
    config = config_with(edit.path, before)
    observed = WorkerObservation(
        config=config, status=TrainRunStatus(), workers=a_gang(edit.path, before)
    )
    assert {outdated(worker, config) for worker in observed.workers} == {""}
    assert [w for w in observed.workers if outdated(w, config_with(edit.path, after)) != said] == []


@pytest.mark.parametrize("edit", rows("NextAnswer"), ids=by_path)
def test_an_edit_of_a_setting_reaches_the_agents_that_run(edit: Edit) -> None:
    told = []
    for value in EDITED[edit.path]:
        config = config_with(edit.path, value)
        now = config.settings
        assert agent_in(pod_of(run_with(edit.path, value))).settings == now
        told.append(asdict(now))
    before, after = told
    assert [name for name in before if before[name] != after[name]] == [_snake(edit.path)]


@pytest.mark.parametrize("edit", rows("NextPass"), ids=by_path)
def test_an_edit_of_what_only_the_operator_reads_leaves_the_pods_as_they_are(edit: Edit) -> None:
    before, after = (pod_of(run_with(edit.path, value)) for value in EDITED[edit.path])
    assert before == after
    old, new = (config_with(edit.path, value) for value in EDITED[edit.path])
    assert old != new


def test_what_is_put_into_a_pod_and_may_be_edited_is_compared_or_told() -> None:
    """A field that is added to the configuration of agents has to take part in one of both."""
    for edit in EDITS:
        before, after = (pod_of(run_with(edit.path, value)) for value in EDITED[edit.path])
        if edit not in REFUSED:
            assert (before == after) == (edit.effect == "NextPass"), edit.path


def agent_in(pod: Json) -> AgentConfig:
    container = pod["spec"]["containers"][0]
    named = {entry["name"]: entry.get("value") for entry in container["env"]}
    return AgentConfig.from_json(named[variables.AGENT_CONFIG].replace("$$", "$"))


SETTINGS = {"progress.output": "outputForms", "progress.patterns": "outputPatterns"}
"""Fields that agents receive by another name."""


def _snake(path: str) -> str:
    parent, _, own = path.rpartition(".")
    name = "folder" if parent == "checkpoint.folder" else SETTINGS.get(path) or own
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


@pytest.mark.parametrize("told", ["", "{", "[]", "{}", "[" * 9000, "x" * 70_000, 7, None])
def test_a_pod_whose_configuration_cannot_be_read_is_not_taken_for_edited(told: object) -> None:
    document = run_with("storage.region", "eu-1")
    pod = pod_of(document)
    for entry in pod["spec"]["containers"][0]["env"]:
        if entry["name"] == variables.AGENT_CONFIG:
            entry["value"] = told
    assert fact(pod).storage is None
    assert outdated(fact(pod), config_with("storage.region", "eu-2")) == ""


def test_a_dollar_in_an_address_is_read_back_as_it_was() -> None:
    document = run_with("storage.endpointURL", "http://s3:9000/$(HOME)/$$x")
    made = fact(pod_of(document))
    assert outdated(made, config_of(read(document, TRAINRUN, source="a test"))) == ""
