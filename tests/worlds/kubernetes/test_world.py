"""What the world of one run asks of an API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.test_manager import raw as listed
from tests.kube.fake_api import Answer, status
from trainrun_operator.api.run.status_json import json_object
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.worlds.base import (
    Heard,
    StatusConflict,
    StatusRefused,
    StatusUnwritable,
)
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.render import OperatorPlace
from trainrun_operator.worlds.kubernetes.run_object import RunObject, run_version
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kube.fake_api import FakeApi
    from trainrun_operator.api.run.status import TrainRunStatus


def raw(version: int) -> dict[str, Any]:
    kind = {"apiVersion": "trainrun.dev/v1alpha1", "kind": "TrainRun"}
    return {**listed(version=version), **kind}


class Nobody:
    """Agents that were never heard."""

    listening_for = timedelta(0)
    ordered = 0
    last_words = ()

    def heard(self, worker: str) -> Heard:
        raise AssertionError(worker)


def world_of(
    run: RunObject,
    api: KubeApi,
    wrote: Callable[[TrainRunStatus, TrainRunStatus], None] = lambda _before, _after: None,
) -> KubernetesWorld:
    around = Surroundings(
        api=api,
        pods=PodIndex(
            api,
            namespaces=(),
            nodes=False,
            sealed=lambda _pod: True,
            on_change=lambda _uid: None,
        ),
        reads_nodes=False,
        place=OperatorPlace(url="https://operator", ca_pem="", seal_key=b"key"),
        notices=(),
        leads=lambda: True,
    )
    return KubernetesWorld(
        run=run,
        around=around,
        wake=lambda _seconds: None,
        wrote=wrote,
        tell=lambda _event: None,
    )


async def test_a_status_is_written_over_the_version_that_it_was_decided_from(fake: FakeApi) -> None:
    """Else what somebody has written in between is overwritten, and nobody learns of a conflict."""
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api)
    seen = await world.observe(Nobody())

    run.learn(raw(version=8))
    await world.write_status(replace(seen.observation.status, attempt=3))
    await api.close()

    (written,) = fake.bodies
    assert written["metadata"]["resourceVersion"] == "7"
    assert written["status"]["attempt"] == 3


async def test_the_watch_of_a_status_that_is_being_written_brings_no_news(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api)
    shown = replace((await world.observe(Nobody())).observation.status, phase="Running")

    fake.finish_writes.clear()
    writing = asyncio.create_task(world.write_status(shown))
    while not fake.writing:
        await asyncio.sleep(0.001)
    metadata = {**run.current.raw["metadata"], "resourceVersion": "8"}
    stored = {**run.current.raw, "metadata": metadata, "status": json_object(shown)}
    assert not run.learn(stored)
    assert run.current.status.phase == "Running"
    fake.finish_writes.set()
    await writing
    await api.close()


async def test_after_a_conflict_even_a_status_like_ours_is_news(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api)
    shown = replace((await world.observe(Nobody())).observation.status, phase="Running")

    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(shown)
    metadata = {**run.current.raw["metadata"], "resourceVersion": "8"}
    assert run.learn({**run.current.raw, "metadata": metadata, "status": json_object(shown)})
    await api.close()


async def test_a_restart_is_counted_although_the_answer_to_its_write_got_lost(
    fake: FakeApi,
) -> None:
    """The metrics would show fewer restarts than the status and the events."""
    api, metrics = await KubeApi.connect(), Metrics()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api, metrics.wrote)
    seen = await world.observe(Nobody())
    assert restarts(metrics) == 0

    begun = replace(seen.observation.status, attempt=2, restarts=1)
    run.learn({**raw(version=8), "status": json_object(begun)})  # the watch tells what we wrote
    await world.observe(Nobody())
    await world.observe(Nobody())
    assert restarts(metrics) == 1

    await world.write_status(replace(begun, attempt=3, restarts=2))
    run.learn({**raw(version=9), "status": json_object(replace(begun, attempt=3, restarts=2))})
    await world.observe(Nobody())
    assert restarts(metrics) == 2
    await api.close()
    assert len(fake.bodies) == 1


@pytest.mark.parametrize(
    ("code", "reason", "helps"),
    [(403, "Forbidden", False), (422, "Invalid", False), (503, "Unavailable", True)],
)
async def test_a_status_that_waiting_does_not_help_is_told_from_one_that_it_does(
    fake: FakeApi, code: int, reason: str, helps: bool
) -> None:
    api = await KubeApi.connect()
    world = world_of(RunObject(run_version(raw(version=7))), api)
    begun = replace((await world.observe(Nobody())).observation.status, attempt=1)
    fake.answers = [Answer(code=code, body=status(code, reason, "cannot update it"))] * 2
    with pytest.raises(StatusUnwritable, match="cannot update it") as caught:
        await world.write_status(begun)
    assert isinstance(caught.value, StatusRefused) is not helps
    await api.close()


async def test_after_a_write_without_an_answer_nothing_is_decided_from_the_status_before(
    fake: FakeApi,
) -> None:
    """The watch may lag: a worker was deleted under the attempt that the write had started."""
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api)
    before = (await world.observe(Nobody())).observation.status
    begun = replace(before, attempt=1)

    fake.answers = [lost := Answer(code=504, body=status(504, "Timeout", "no answer")), lost]
    with pytest.raises(StatusUnwritable, match=r"the status cannot be written: .*no answer"):
        await world.write_status(begun)
    with pytest.raises(StatusUnwritable, match=r"the run cannot be read: .*no answer"):
        await world.observe(Nobody())

    written = {**raw(version=8), "status": json_object(begun)}
    fake.answers = [Answer(code=200, body=written)]
    assert (await world.observe(Nobody())).observation.status.attempt == 1
    await world.observe(Nobody())
    await api.close()
    assert [made for made, _ in fake.requests] == [
        "put",
        "list",
        "list",
    ]  # the fake takes any GET for a list


async def test_an_edit_that_cannot_be_read_does_not_keep_the_status_from_being_written(
    fake: FakeApi,
) -> None:
    """The run went on under no operator: each pass failed, and each write met a conflict."""
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api)
    before = (await world.observe(Nobody())).observation.status
    begun, odd = replace(before, attempt=1), {**raw(version=8)["spec"], "suspend": "later"}

    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(begun)
    fake.answers = [Answer(code=200, body={**raw(version=8), "spec": odd})]
    assert (await world.observe(Nobody())).config == run.current.config
    assert 'spec.suspend: "later" is a string' in run.refusal
    written = {**raw(version=9), "spec": odd, "status": json_object(begun)}
    fake.answers = [Answer(code=200, body=written)]
    await world.write_status(begun)
    assert (await world.observe(Nobody())).observation.status.attempt == 1
    await world.write_status(replace(begun, attempt=2))
    await api.close()
    assert fake.bodies[-1]["metadata"]["resourceVersion"] == "9"
    assert [made for made, _ in fake.requests] == ["put", "list", "put", "put"]


async def test_after_a_backup_was_restored_the_next_conflict_ends_the_standstill(
    fake: FakeApi,
) -> None:
    """Each write met a conflict for ever: what the API server said was older than what we knew."""
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=700)))
    world = world_of(run, api)
    begun = replace((await world.observe(Nobody())).observation.status, attempt=5)
    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(begun)

    of_then = {**raw(version=80), "status": json_object(replace(begun, attempt=2))}
    fake.answers = [Answer(code=200, body=of_then)]
    assert (await world.observe(Nobody())).observation.status.attempt == 2
    await world.write_status(begun)
    await api.close()
    assert fake.bodies[-1]["metadata"]["resourceVersion"] == "80"


async def test_a_status_of_a_newer_operator_is_not_written_over(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    run = RunObject(run_version(raw(version=7)))
    world = world_of(run, api)
    before = (await world.observe(Nobody())).observation.status
    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(replace(before, attempt=1))
    ending = {"internal": {"ending": {"attempt": 1, "kind": "Vote", "time": "x"}}}
    fake.answers = [Answer(code=200, body={**raw(version=8), "status": ending})]
    with pytest.raises(StatusUnwritable, match=r"the run cannot be read: .*a newer operator may"):
        await world.observe(Nobody())
    await api.close()
    assert run.current.raw["metadata"]["resourceVersion"] == "7"


def restarts(metrics: Metrics) -> float:
    families = metrics.registry.collect()
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "trainrun_restarts_total"
    )
