"""Calls to an API server that is busy, and credentials that change."""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING

import pytest

from tests.kube.api_server import ADMIN_TOKEN, ApiServer
from tests.kube.fake_api import Answer, status
from tests.kube.waiting import until
from trainrun_operator.kube.api import WRITES_IN_FLIGHT, KubeApi
from trainrun_operator.kube.errors import Unauthorized, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.fake_api import FakeApi

IN_CLUSTER = "kubernetes.aio.config.incluster_config"
BUSY = status(429, "TooManyRequests", "the server has received too many requests")


async def test_a_busy_server_is_asked_again_after_the_time_that_it_named(fake: FakeApi) -> None:
    fake.answers = [Answer(code=429, body=BUSY, headers={"Retry-After": "1"})]
    api = await KubeApi.connect()

    started = time.monotonic()
    assert await api.post("/things", {"a": 1}) == {"a": 1}
    assert 1.0 <= time.monotonic() - started < 10
    await api.close()


async def test_a_server_that_stays_busy_is_unavailable(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.api.LONGEST_PAUSE", 0.01)
    fake.answers = [Answer(code=429, body=BUSY, headers={"Retry-After": "3600"})] * 5
    api = await KubeApi.connect()

    with pytest.raises(Unavailable, match="too many requests"):
        await api.post("/things", {})
    assert len(fake.of("post")) == 5
    await api.close()


async def test_a_thousand_writes_do_not_arrive_at_once(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    fake.finish_writes.clear()

    writes = [asyncio.create_task(api.post("/things", {})) for _ in range(100)]
    await until(lambda: fake.writing == WRITES_IN_FLIGHT)
    urgent = asyncio.create_task(api.put("/things", {}, urgent=True))
    await until(lambda: fake.of("put"), what="an urgent write does not wait for others")
    fake.finish_writes.set()
    await asyncio.gather(*writes, urgent)

    assert fake.most_writing == WRITES_IN_FLIGHT + 1
    await api.close()


async def test_a_write_that_waited_for_others_is_not_sent_if_it_must_not_be_any_more(
    fake: FakeApi,
) -> None:
    api = await KubeApi.connect()
    fake.finish_writes.clear()
    leading = True

    def guard() -> None:
        if not leading:
            raise RuntimeError("another operator leads now")

    writes = [asyncio.create_task(api.post("/things", {})) for _ in range(WRITES_IN_FLIGHT)]
    await until(lambda: fake.writing == WRITES_IN_FLIGHT)
    queued = [
        asyncio.create_task(api.post("/things", {}, guard=guard)),
        asyncio.create_task(api.put("/things", {}, guard=guard)),
        asyncio.create_task(api.delete("/things", guard=guard)),
    ]
    leading = False
    fake.finish_writes.set()
    await asyncio.gather(*writes)

    for each in queued:
        with pytest.raises(RuntimeError, match="another operator leads now"):
            await each
    assert (len(fake.of("put")), len(fake.of("delete"))) == (0, 0)
    await api.close()


async def test_writes_say_who_has_written(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    await api.post("/things", {})
    assert fake.of("post") == [{"fieldManager": "trainrun-operator"}]
    assert fake.agents == {"trainrun-operator"}
    await api.close()


async def test_an_answer_that_is_no_json_is_not_the_api_servers(fake: FakeApi) -> None:
    fake.answers = [Answer(code=502, body={"a": "proxy"})]
    api = await KubeApi.connect()

    with pytest.raises(Unavailable, match="proxy") as caught:
        await api.get("/things")
    assert caught.value.status == 502
    await api.close()


@pytest.fixture
def token_file(apiserver: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a pod."""
    token = tmp_path / "token"
    token.write_text(ADMIN_TOKEN)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(apiserver.port))
    monkeypatch.setattr(f"{IN_CLUSTER}.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(f"{IN_CLUSTER}.SERVICE_CERT_FILENAME", str(apiserver.ca))
    return token


async def test_in_a_pod_the_service_account_is_used(token_file: Path) -> None:
    api = await KubeApi.connect()

    assert (await api.get("/api/v1/namespaces"))["kind"] == "NamespaceList"
    await api.close()


async def test_a_token_that_was_rotated_is_read_again_when_the_old_one_is_refused(
    token_file: Path,
) -> None:
    token_file.write_text("expired")
    api = await KubeApi.connect()
    with pytest.raises(Unauthorized):
        await api.get("/api/v1/namespaces")

    token_file.write_text(f"{ADMIN_TOKEN}\n")

    found = await asyncio.gather(*(api.get("/api/v1/namespaces") for _ in range(5)))
    assert [answer["kind"] for answer in found] == ["NamespaceList"] * 5
    await api.close()


async def test_a_token_that_is_missing_for_a_moment_is_no_catastrophe(token_file: Path) -> None:
    api = await KubeApi.connect()
    token_file.unlink()

    # The one that was read last is still good.
    assert (await api.get("/api/v1/namespaces"))["kind"] == "NamespaceList"
    await api.close()


async def test_the_end_of_an_outage_is_remembered(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.api.OUTAGE", 0.2)
    broken = status(500, "InternalError", "etcd is away")
    api = await KubeApi.connect()
    assert api.since_outage == inf

    fake.answers = [Answer(code=500, body=broken)]
    with pytest.raises(Unavailable, match="etcd is away"):
        await api.post("/things", {})
    await api.post("/things", {})
    assert api.since_outage == inf, "one bad answer is no outage"

    fake.answers = [Answer(code=500, body=broken)]
    with pytest.raises(Unavailable, match="etcd is away"):
        await api.post("/things", {})
    await until(lambda: api.since_outage == 0.0)
    await api.post("/things", {})
    assert 0.0 < api.since_outage < 10
    await api.close()
