"""This version beside the next one: under its CRD, and with what its operator has written."""

from __future__ import annotations

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
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.run_object import RunObject, managed_version, run_version
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, WorldDependencies

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi

Json = dict[str, Any]


def world_over(run: RunObject, api: KubeApi) -> KubernetesWorld:
    around = WorldDependencies(
        api=api,
        pods=PodIndex(
            api, namespaces=(), nodes=False, signed=lambda _: True, on_change=lambda _: None
        ),
        reads_nodes=False,
        place=PLACE,
        notices=(),
        leads=lambda: True,
        learn_run=lambda raw, _known: run.learn(raw),
    )
    return KubernetesWorld(
        run=run,
        around=around,
        wake=lambda _: None,
        wrote=lambda _old, _new: None,
        record_event=lambda _: None,
    )


async def as_another_version(trainruns: TrainRuns, api: KubeApi, status: Json) -> Json:
    """Write a status as its operator does; the object as the server keeps it."""
    stored = trainruns.get()
    path = f"{RunObject(managed_version(stored)).path}/status"
    written: Json = await api.put(path, {**stored, "status": status})
    return written


async def test_the_operator_goes_on_under_the_crd_of_the_next_version(
    trainruns: TrainRuns, api: KubeApi, tmp_path: Path
) -> None:
    """Its field has a default, so the API server adds it to each run, edited or not: an operator
    that refused it would lead none of them."""
    run = RunObject(managed_version(trainruns.create()))
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
    stored = run.current.trimmed.raw
    assert stored is not None
    assert stored["spec"]["storage"]["patience"] == "5m"


async def test_what_an_unknown_version_remembers_is_kept_beside_what_we_know(
    trainruns: TrainRuns, api: KubeApi
) -> None:
    trainruns.create()

    kept = await as_another_version(
        trainruns, api, {"internal": {"vote": {"a": [1]}}, "elastic": {"b": 2}}
    )

    assert kept["status"] == {"internal": {"vote": {"a": [1]}}, "elastic": {"b": 2}}


def test_a_status_that_cannot_be_read_is_refused_with_its_run(
    trainruns: TrainRuns,
) -> None:
    """One run that cannot be read must not keep the operator from the others."""
    stored = trainruns.create()
    stored["status"] = {"internal": {"ending": {"attempt": 1, "kind": "Vote", "time": "x"}}}

    with pytest.raises(InvalidSpec, match="the status cannot be read; a newer operator may have"):
        run_version(stored)
