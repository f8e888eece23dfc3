"""Runs that their user makes for a drill, on a real API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.api.spec_table import BASE
from tests.kube.objects import pod
from tests.kube.patching import merged
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import AlreadyExists, Conflict, NotFound
from trainrun_operator.worlds.kubernetes.own_run import OwnRun, UsersCluster, users_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.api_server import ApiServer
    from tests.support.trainruns import TrainRuns

Json = dict[str, Any]


def own(api: KubeApi, namespace: str, name: str = "own") -> OwnRun:
    document = merged(BASE, {"metadata": {"name": name, "namespace": namespace}})
    return UsersCluster(api=api).own_run(document)


async def a_worker(api: KubeApi, namespace: str, uid: str, *, finalizers: list[str]) -> str:
    """Of slot 1; returns its path. Finalizers keep it, as a kubelet does."""
    labels = {"trainrun.dev/run-uid": uid, "trainrun.dev/slot": "1"}
    body = merged(pod("own-1-1"), {"metadata": {"labels": labels, "finalizers": finalizers}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await api.post(pods, body)
    return f"{pods}/own-1-1"


@pytest.mark.usefixtures("trainruns")
async def test_it_is_made_read_suspended_and_removed(api: KubeApi, namespace: str) -> None:
    run = own(api, namespace)
    made = await run.create()
    assert not made.run.spec.suspend
    await run.suspend()
    now = await run.read()
    assert now is not None
    assert now.run.spec.suspend
    assert await run.remove(patience=10)
    with pytest.raises(NotFound):
        await run.read()
    await run.suspend()
    assert await run.remove(patience=10), "what is gone already is no trouble"


@pytest.mark.usefixtures("trainruns")
async def test_a_worker_is_deleted_at_once_or_with_its_grace(api: KubeApi, namespace: str) -> None:
    run = own(api, namespace)
    uid = (await run.create()).uid
    assert not await run.delete_pod(1, grace=0), "there is none yet"
    path = await a_worker(api, namespace, uid, finalizers=["example.com/kubelet"])
    assert await run.works()
    assert not await run.delete_pod(0, grace=0), "another slot's"
    assert await run.delete_pod(1, grace=None)
    deleted: Json = (await api.get(path))["metadata"]
    assert "deletionTimestamp" in deleted
    assert await run.delete_pod(1, grace=0)
    assert (await api.get(path))["metadata"]["deletionGracePeriodSeconds"] == 0
    assert not await run.remove(patience=1), "its pod is still there"
    raw = await api.get(path)
    raw["metadata"]["finalizers"] = []
    await api.put(path, raw)
    assert await run.remove(patience=10)
    assert not await run.works()


@pytest.mark.usefixtures("trainruns")
async def test_what_was_interrupted_while_it_was_made_is_removed_all_the_same(
    api: KubeApi, namespace: str
) -> None:
    run = own(api, namespace)
    making = asyncio.create_task(run.create())
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert await run.remove(patience=10)
    with pytest.raises(NotFound):
        await run.read()


@pytest.mark.usefixtures("trainruns")
async def test_a_run_that_was_there_before_is_never_removed(api: KubeApi, namespace: str) -> None:
    theirs, ours = own(api, namespace, "same"), own(api, namespace, "same")
    await theirs.create()
    with pytest.raises(AlreadyExists):
        await ours.create()
    assert await ours.remove(patience=10)
    assert await theirs.read() is not None


async def test_rights_that_are_missing_are_named(
    apiserver: ApiServer,
    trainruns: TrainRuns,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainruns.kubectl("create", "serviceaccount", "ann")
    trainruns.kubectl(
        "create", "role", "ann", "--verb=create,get,update,delete", "--resource=trainruns"
    )
    trainruns.kubectl(
        "create", "rolebinding", "ann", "--role=ann", f"--serviceaccount={namespace}:ann"
    )
    token = trainruns.kubectl("create", "token", "ann").strip()
    monkeypatch.setenv("KUBECONFIG", str(apiserver.kubeconfig(tmp_path / "ann", token)))
    async with users_cluster() as cluster:
        assert await cluster.missing_rights(namespace) == ["list pods", "delete pods"]


@pytest.mark.usefixtures("trainruns")
async def test_runs_are_found_by_a_label_and_each_is_deleted_as_the_one_that_was_read(
    api: KubeApi, namespace: str
) -> None:
    for name, value in (("a", "bert"), ("b", "llama")):
        labels = {"metadata": {"name": name, "namespace": namespace, "labels": {"of": value}}}
        await api.post(TRAINRUN.path(namespace), merged(BASE, labels))
    cluster = UsersCluster(api=api)
    (found,) = await cluster.runs_with(namespace, "of", "bert")
    assert found.run.metadata.name == "a"
    earlier = found.run.metadata.model_copy(update={"uid": "of-an-earlier-one"})
    with pytest.raises(Conflict):
        await cluster.delete_run(
            replace(found, run=found.run.model_copy(update={"metadata": earlier}))
        )
    await cluster.delete_run(found)
    assert await cluster.runs_with(namespace, "of", "bert") == []
    assert len(await cluster.runs_with(namespace, "of", "llama")) == 1
    await cluster.delete_run(found)
