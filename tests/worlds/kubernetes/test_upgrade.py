"""The CRD is replaced under a run that version 0.1.0 leads; then this version takes it over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.eventually import eventually
from tests.support.trainruns import CRD
from tests.worlds.kubernetes.test_render import PLACE
from tests.worlds.kubernetes.test_world import Nobody
from trainrun.errors import InvalidSpec
from trainrun_operator.api.run.status_json import json_object, status_from
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.run_object import RunObject, led_version, run_version
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi

RECORDED = Path(__file__).parents[2] / "api" / "recorded"
OLD_CRD = RECORDED / "crd-0.1.0.yaml"
STATUSES = sorted(RECORDED.glob("status-0.1.0-*.json"))

Json = dict[str, Any]


@pytest.fixture
def old(trainruns: TrainRuns) -> Iterator[TrainRuns]:
    """The CRD of version 0.1.0 and a run under it; the server is shared with other tests."""
    trainruns.install(OLD_CRD)
    trainruns.create_from(RECORDED / "trainrun-0.1.0.json")
    yield trainruns
    trainruns.install(CRD)


def world_over(run: RunObject, api: KubeApi) -> KubernetesWorld:
    around = Surroundings(
        api=api,
        pods=PodIndex(
            api, namespaces=(), nodes=False, sealed=lambda _: True, on_change=lambda _: None
        ),
        reads_nodes=False,
        place=PLACE,
        notices=(),
        leads=lambda: True,
    )
    return KubernetesWorld(
        run=run,
        around=around,
        wake=lambda _: None,
        wrote=lambda _old, _new: None,
        tell=lambda _: None,
    )


async def as_0_1_0(trainruns: TrainRuns, api: KubeApi, status: Json) -> Json:
    """Write a status as the operator of version 0.1.0 does; the object as the server keeps it."""
    stored = trainruns.get()
    path = f"{RunObject(led_version(stored)).path}/status"
    written: Json = await api.put(path, {**stored, "status": status})
    return written


@pytest.mark.parametrize("path", STATUSES, ids=lambda path: path.stem)
async def test_a_run_is_taken_over_as_the_version_before_has_left_it(
    old: TrainRuns, api: KubeApi, path: Path
) -> None:
    recorded: Json = json.loads(path.read_text())
    await as_0_1_0(old, api, recorded)

    old.install(CRD)
    stored = old.get()
    assert stored["status"] == recorded
    # The operator of version 0.1.0 may still write for a while.
    recorded["progress"]["step"] += 1
    assert (await as_0_1_0(old, api, recorded))["status"] == recorded

    run = RunObject(led_version(old.get()))
    before = run.current
    assert before.status == status_from(recorded)
    written = before.written()
    assert written is not None
    assert written.run.spec.storage.endpoint_url == "http://minio:9000"
    written = before.written()
    assert written is not None
    assert written.run.spec.storage.credentials_secret_ref is not None
    await world_over(run, api).write_status(before.status)

    written = old.get()["status"]
    assert written == json_object(before.status)
    assert written.keys().isdisjoint(written["internal"])
    assert run.current.status == before.status
    assert run.current.config == before.config


async def test_the_operator_of_before_goes_on_under_the_crd_of_the_next_version(
    trainruns: TrainRuns, api: KubeApi, tmp_path: Path
) -> None:
    """Its field has a default, so the API server adds it to each run, edited or not: from then on
    the operator of before refused all of them, after each write that had succeeded."""
    run = RunObject(led_version(trainruns.create()))
    world = world_over(run, api)
    crd = yaml.safe_load(CRD.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    of_spec = schema["properties"]["spec"]["properties"]
    new = {"type": "string", "default": "5m"}
    of_spec["patience"] = of_spec["storage"]["properties"]["patience"] = new
    newer = tmp_path / "newer.yaml"
    newer.write_text(yaml.safe_dump(crd))
    try:
        trainruns.install(newer)
        eventually(
            lambda: trainruns.get()["spec"].get("patience"), timeout=30, what="it is filled in"
        )
        before = run.current.status
        for attempt in (1, 2):
            await world.observe(Nobody())
            await world.write_status(replace(before, attempt=attempt))
    finally:
        trainruns.install(CRD)

    assert run.refusal is None
    assert run.current.status.attempt == 2
    stored = run.current.kept.raw
    assert stored is not None
    assert stored["spec"]["storage"]["patience"] == "5m"


async def test_what_an_unknown_version_remembers_is_kept_beside_what_we_know(
    trainruns: TrainRuns, api: KubeApi
) -> None:
    trainruns.create()

    kept = await as_0_1_0(trainruns, api, {"internal": {"vote": {"a": [1]}}, "elastic": {"b": 2}})

    assert kept["status"] == {"internal": {"vote": {"a": [1]}}, "elastic": {"b": 2}}


def test_a_status_that_no_version_before_has_written_is_refused_with_its_run(
    trainruns: TrainRuns,
) -> None:
    """One run that cannot be read must not keep the operator from the others."""
    stored = trainruns.create()
    stored["status"] = {"internal": {"ending": {"attempt": 1, "kind": "Vote", "time": "x"}}}

    with pytest.raises(InvalidSpec, match="the status cannot be read; a newer operator may have"):
        run_version(stored)


def test_old_names_are_refused_in_new_runs_and_may_stay_in_old_ones(old: TrainRuns) -> None:
    old.install(CRD)

    refused = old.refusal_of(RECORDED / "trainrun-0.1.0.json", name="other")
    assert "spec.storage.endpointUrl: Invalid value" in refused
    assert "is called endpointURL now" in refused
    assert "is called credentialsSecretRef now" in refused
    old.kubectl("patch", "trainrun", "digits", "--type=merge", '--patch={"spec":{"suspend":true}}')
    assert old.get()["spec"]["storage"]["endpointUrl"] == "http://minio:9000"
