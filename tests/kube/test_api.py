"""Calls to a real API server."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from tests.kube.api_server import POWERLESS_TOKEN, ApiServer
from tests.kube.objects import config_map, config_maps
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NoCluster,
    NotFound,
    Unauthorized,
    Unavailable,
    error_of_status,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_object_is_created_read_replaced_and_deleted(api: KubeApi, namespace: str) -> None:
    made = await api.post(config_maps(namespace), config_map("one", a="1"))
    made["data"]["a"] = "2"
    await api.put(config_maps(namespace, "one"), made)

    assert (await api.get(config_maps(namespace, "one")))["data"] == {"a": "2"}
    gone = await api.delete(config_maps(namespace, "one"))
    assert gone["status"] == "Success"


async def test_what_is_not_there_is_not_found(api: KubeApi, namespace: str) -> None:
    with pytest.raises(NotFound, match='configmaps "none" not found') as caught:
        await api.get(config_maps(namespace, "none"))
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")


async def test_a_name_that_is_taken_is_told_from_a_version_that_is_old(
    api: KubeApi, namespace: str
) -> None:
    first = await api.post(config_maps(namespace), config_map("one"))
    await api.put(config_maps(namespace, "one"), {**first, "data": {"a": "1"}})

    with pytest.raises(AlreadyExists, match='configmaps "one" already exists'):
        await api.post(config_maps(namespace), config_map("one"))
    with pytest.raises(Conflict, match="the object has been modified"):
        await api.put(config_maps(namespace, "one"), first)


async def test_a_part_of_an_object_is_changed_in_the_version_that_was_read(
    api: KubeApi, namespace: str
) -> None:
    path = config_maps(namespace, "one")
    made = await api.post(config_maps(namespace), config_map("one", a="1", b="1"))
    read = {"resourceVersion": made["metadata"]["resourceVersion"]}
    changed = await api.patch(path, {"metadata": read, "data": {"a": "2"}}, manager="me")
    assert changed["data"] == {"a": "2", "b": "1"}
    assert "me" in [it["manager"] for it in changed["metadata"]["managedFields"]]

    with pytest.raises(Conflict, match="the object has been modified"):
        await api.patch(path, {"metadata": read, "data": {"b": "2"}}, manager="me")


async def test_a_precondition_on_the_uid_protects_another_object_of_the_same_name(
    api: KubeApi, namespace: str
) -> None:
    await api.post(config_maps(namespace), config_map("one"))

    with pytest.raises(Conflict, match="the UID in the precondition"):
        await api.delete(config_maps(namespace, "one"), body={"preconditions": {"uid": "another"}})


async def test_an_invalid_object_is_refused_with_the_field_that_is_wrong(
    api: KubeApi, namespace: str
) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name: Invalid value") as caught:
        await api.post(config_maps(namespace), config_map("Not A Name"))
    assert caught.value.status == 422


async def test_a_used_up_quota_is_forbidden_and_says_which(api: KubeApi, namespace: str) -> None:
    hard = {"metadata": {"name": "quota"}, "spec": {"hard": {"count/configmaps": "0"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    made = await api.post(path, hard)
    # There is no controller that would count what is there.
    made["status"] = {"hard": {"count/configmaps": "0"}, "used": {"count/configmaps": "0"}}
    await api.put(f"{path}/quota/status", made)

    async def fill() -> None:
        for number in range(500):  # the API server learns of the quota a moment later
            await api.post(config_maps(namespace), config_map(f"m{number}"))

    with pytest.raises(Forbidden, match="exceeded quota: quota"):
        await fill()


async def test_a_user_without_rights_is_forbidden(
    apiserver: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apiserver.kubeconfig(tmp_path / "config", POWERLESS_TOKEN)
    monkeypatch.setenv("KUBECONFIG", str(config))
    api = await KubeApi.connect()

    with pytest.raises(Forbidden, match='User "nobody" cannot list resource "configmaps"'):
        await api.get(config_maps(namespace))
    await api.close()


async def test_an_unknown_token_is_unauthorized_until_the_kubeconfig_has_a_good_one(
    apiserver: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apiserver.kubeconfig(tmp_path / "config", "wrong")
    monkeypatch.setenv("KUBECONFIG", str(config))
    api = await KubeApi.connect()

    with pytest.raises(Unauthorized, match="Unauthorized"):
        await api.get(config_maps(namespace))
    apiserver.kubeconfig(config)
    assert (await api.get(config_maps(namespace)))["kind"] == "ConfigMapList"
    await api.close()


async def test_a_history_that_is_not_kept_any_more_is_gone(
    api: KubeApi, apiserver: ApiServer, namespace: str
) -> None:
    first = await api.post(config_maps(namespace), config_map("one"))
    apiserver.forget_history()

    old = {"resourceVersion": str(int(first["metadata"]["resourceVersion"]) - 1)}
    async with aclosing(api.stream(config_maps(namespace), params=old)) as events:
        event = await anext(events)

    assert event["type"] == "ERROR"
    assert isinstance(error_of_status(event["object"]), Gone)


async def test_a_server_that_is_away_is_unavailable_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apiserver: ApiServer
) -> None:
    away = ApiServer(directory=apiserver.directory)
    monkeypatch.setenv("KUBECONFIG", str(away.kubeconfig(tmp_path / "config")))
    calls: list[tuple[str, str]] = []
    api = await KubeApi.connect()
    api.observe_call = lambda verb, code: calls.append((verb, code))

    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"get /api/v1/pods: Cannot connect to host"):
        await api.get("/api/v1/pods")
    assert time.monotonic() - started < 5
    assert calls == [("get", "unreachable")]
    await api.close()


async def test_a_server_that_hangs_is_unavailable_after_the_timeout(
    api: KubeApi, apiserver: ApiServer
) -> None:
    apiserver.pause()
    try:
        with pytest.raises(Unavailable, match="get /api/v1/pods"):
            await api.get("/api/v1/pods", timeout=0.5)
    finally:
        apiserver.resume()


async def test_a_list_is_read_in_parts(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.api.PAGE", 2)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(api.post(config_maps(namespace), config_map(f"m{number}")))

    names: list[str] = []
    asked: list[str] = []
    api.observe_call = lambda verb, _code: asked.append(verb)

    version = await api.each(
        config_maps(namespace), lambda raw: names.append(raw["metadata"]["name"])
    )

    assert names == [f"m{number}" for number in range(5)]
    assert version >= 5
    assert asked.count("get") == 3


async def test_an_event_of_a_watch_may_be_larger_than_128_kb(api: KubeApi, namespace: str) -> None:
    listed = await api.get(config_maps(namespace))
    await api.post(config_maps(namespace), config_map("large", text="x" * 700_000))

    version = {"resourceVersion": listed["metadata"]["resourceVersion"]}
    async with aclosing(api.stream(config_maps(namespace), params=version)) as events:
        event = await anext(events)

    assert event["type"] == "ADDED"
    assert len(event["object"]["data"]["text"]) == 700_000


async def test_calls_are_told_with_verb_and_code(api: KubeApi, namespace: str) -> None:
    calls: list[tuple[str, str]] = []
    api.observe_call = lambda verb, code: calls.append((verb, code))

    await api.post(config_maps(namespace), config_map("one"))
    with pytest.raises(NotFound):
        await api.delete(config_maps(namespace, "two"))

    assert calls == [("post", "201"), ("delete", "404")]


async def test_without_a_cluster_it_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    with pytest.raises(NoCluster, match="set KUBECONFIG to a file that names one"):
        await KubeApi.connect()
