"""Events of a run, as people see them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import yaml

from trainrun_operator.api.base import API_VERSION
from trainrun_operator.kube.errors import AlreadyExists, Forbidden, NotFound
from trainrun_operator.kube.events import EventRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kube.api_server import ApiServer
    from trainrun_operator.kube.api import KubeApi

MODULE = "trainrun_operator.kube.events"
CRD = Path(__file__).parents[2] / "crds" / "trainrun.dev_trainruns.yaml"
NOW = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=UTC)


def events(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


def run_in(namespace: str, name: str = "digits", uid: str = "run-uid") -> dict[str, Any]:
    named = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": "7"}
    return {"apiVersion": API_VERSION, "kind": "TrainRun", "metadata": named}


def record(
    recorder: EventRecorder, run: dict[str, Any], message: str, time: datetime = NOW
) -> None:
    recorder.record(about=run, kind="Warning", reason="Restarting", message=message, time=time)


@pytest_asyncio.fixture
async def recorder(api: KubeApi) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(api, instance="operator-1")
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def written(api: KubeApi, namespace: str) -> list[dict[str, Any]]:
    return await api.list_all(events(namespace))


async def test_an_event_says_what_happened_to_which_run_and_when(
    api: KubeApi, namespace: str, recorder: EventRecorder
) -> None:
    record(recorder, run_in(namespace), "rank 1 exited with code 3")
    await recorder.flush()

    [event] = await written(api, namespace)
    assert event["metadata"]["name"].startswith("digits.")
    assert event["involvedObject"] == {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainRun",
        "namespace": namespace,
        "name": "digits",
        "uid": "run-uid",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"]) == ("Warning", "Restarting")
    assert event["message"] == "rank 1 exited with code 3"
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-11-21T12:30:15Z"
    assert event["count"] == 1
    assert event["reportingComponent"] == "trainrun-operator"
    assert event["reportingInstance"] == "operator-1"


async def test_describe_shows_them(
    api: KubeApi, namespace: str, apiserver: ApiServer, recorder: EventRecorder
) -> None:
    crd = yaml.safe_load(CRD.read_text())
    with suppress(AlreadyExists):
        await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    container = {"name": "worker", "image": "none", "command": ["python", "train.py"]}
    run = {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainRun",
        "metadata": {"name": "digits"},
        "spec": {
            "workers": {
                "replicas": 1,
                "template": {"spec": {"containers": [container]}},
            },
            "storage": {"uri": "s3://bucket/runs"},
        },
    }
    path = f"/apis/trainrun.dev/v1alpha1/namespaces/{namespace}/trainruns"
    made = await _created(api, path, run)
    record(recorder, run_in(namespace, uid=made["metadata"]["uid"]), "rank 1 exited with code 3")
    await recorder.flush()

    shown = await asyncio.to_thread(
        apiserver.kubectl, "-n", namespace, "describe", "trainrun", "digits"
    )

    [line] = [line for line in shown.splitlines() if "rank 1 exited" in line]
    kind, reason, *_ = line.split()
    assert (kind, reason) == ("Warning", "Restarting")
    assert "trainrun-operator" in line


async def _created(api: KubeApi, path: str, run: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            try:
                return await api.post(path, run)
            except NotFound:  # the definition is not served yet
                await asyncio.sleep(0.05)


async def test_the_order_is_kept(api: KubeApi, namespace: str, recorder: EventRecorder) -> None:
    for number in range(20):
        record(recorder, run_in(namespace), f"number {number}")
    await recorder.flush(timeout=20)

    found = await written(api, namespace)
    found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert [event["message"] for event in found] == [f"number {n}" for n in range(20)]


async def test_the_same_event_is_written_once(
    api: KubeApi, namespace: str, recorder: EventRecorder
) -> None:
    record(recorder, run_in(namespace), "once")
    record(recorder, run_in(namespace), "once")
    await recorder.flush()

    assert len(await written(api, namespace)) == 1


async def test_a_long_message_is_cut(api: KubeApi, namespace: str, recorder: EventRecorder) -> None:
    record(recorder, run_in(namespace), "x" * 5000)
    await recorder.flush()

    [event] = await written(api, namespace)
    assert event["message"] == "x" * 1023 + "…"


async def test_events_wait_for_an_api_server_that_is_away(
    api: KubeApi,
    namespace: str,
    apiserver: ApiServer,
    recorder: EventRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{MODULE}.FIRST_PAUSE", 0.05)
    monkeypatch.setattr(f"{MODULE}.LONGEST_PAUSE", 0.1)
    apiserver.kill()
    record(recorder, run_in(namespace), "while it was away")
    await asyncio.sleep(0.3)
    apiserver.start()

    await recorder.flush(timeout=20)
    assert [event["message"] for event in await written(api, namespace)] == ["while it was away"]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ('cannot create resource "events" in API group ""', 1),
        ("unable to create new content in namespace x because it is being terminated", 0),
    ],
)
async def test_events_wait_for_an_api_server_that_has_not_read_its_roles_yet(
    api: KubeApi,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    told: int,
) -> None:
    monkeypatch.setattr(f"{MODULE}.FIRST_PAUSE", 0.01)
    refusals = [Forbidden(message, status=403, reason="Forbidden")] * 2
    post = api.post

    async def refusing(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if refusals:
            raise refusals.pop()
        return await post(path, body)

    monkeypatch.setattr(api, "post", refusing)
    recorder = EventRecorder(api, instance="operator-1")
    record(recorder, run_in(namespace), "right after it was started")
    await recorder.flush()

    assert len(await written(api, namespace)) == told


async def test_an_event_of_a_run_whose_namespace_is_gone_does_not_hold_up_the_others(
    api: KubeApi, namespace: str, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    record(recorder, run_in("no-such-namespace"), "nobody will see this")
    record(recorder, run_in(namespace), "somebody will see this")
    await recorder.flush()

    assert len(await written(api, namespace)) == 1
    assert "event Restarting was refused" in caplog.text


async def test_what_is_recorded_while_nobody_writes_is_bounded_and_the_newest_is_kept(
    api: KubeApi,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(f"{MODULE}.QUEUE_LIMIT", 3)
    recorder = EventRecorder(api)
    for number in range(5):
        record(recorder, run_in(namespace), f"number {number}")

    await recorder.flush()

    assert {event["message"] for event in await written(api, namespace)} == {
        "number 2",
        "number 3",
        "number 4",
    }
    assert "2 events were dropped: too many were waiting" in caplog.text


async def test_what_was_recorded_last_is_written_after_the_writer_has_ended(
    api: KubeApi, namespace: str
) -> None:
    recorder = EventRecorder(api)
    task = asyncio.create_task(recorder.run())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    record(recorder, run_in(namespace), "the operator ends")

    await recorder.flush()

    assert len(await written(api, namespace)) == 1


async def test_an_event_about_a_node_stands_in_the_namespace_default(api: KubeApi) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7", "uid": "n7"}}
    recorder = EventRecorder(api, instance="operator-1", optional=True)
    recorder.record(about=node, kind="Warning", reason="TrainRunIncidents", message="x", time=NOW)
    await recorder.flush()

    [event] = [e for e in await written(api, "default") if e["involvedObject"]["name"] == "n7"]
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["uid"] == "n7"
