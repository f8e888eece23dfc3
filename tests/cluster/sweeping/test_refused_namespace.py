"""Many sweeps: in several namespaces, one of which refuses, and large ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.office import surroundings
from tests.cluster.sweeping.led import watched_runs
from tests.kube.waiting import until
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.cluster.sweeping.clerks import Clerks
from trainrun_operator.cluster.sweeping.manager import SweepManager
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.runtime.clerk_exchange import ClerkExchanges
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage

if TYPE_CHECKING:
    from tests.kube.fake_api import FakeApi


def sweep(namespace: str) -> dict[str, Any]:
    container = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
    return {
        "metadata": {
            "name": "search",
            "namespace": namespace,
            "uid": f"uid-{namespace}",
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": {
            "storage": {"uri": "s3://bucket/sweeps"},
            "objective": {"metric": "loss", "goal": "Minimize"},
            "maxTrials": 1,
            "parameters": [{"name": "lr", "float": {"min": 0.1, "max": 1.0}}],
            "run": {"workers": {"replicas": 1, "template": {"spec": {"containers": [container]}}}},
        },
    }


@contextlib.asynccontextmanager
async def led_by(api: KubeApi) -> AsyncIterator[None]:
    """All sweeps of the two namespaces."""
    runs = watched_runs(api, "team", "gone")
    manager = SweepManager(
        api,
        namespaces=("team", "gone"),
        exchanges=ClerkExchanges(),
        record=lambda _raw, _event, _time: None,
        runs=runs,
    )
    around = surroundings(api, "team", "gone", manager=manager, runs=runs)
    reading = [asyncio.create_task(each.run()) for each in (*manager.index.informers, runs)]
    leading = manager.lead(Clerks(around, ClerkImage(image="ours")), around)
    await asyncio.wait_for(leading, timeout=60)
    yield
    await manager.stop()
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


@pytest.mark.case("operator", "A watched namespace, a right or a CRD is missing")
async def test_the_sweeps_of_the_others_are_led_and_its_own_once_it_can_be_read(
    fake: FakeApi,
) -> None:
    """None was led, in no namespace."""
    api = await KubeApi.connect()

    def led() -> set[str]:
        return {body["metadata"]["namespace"] for body in fake.bodies if "status" in body}

    fake.things, fake.refuses = [sweep("team")], {"gone"}
    async with led_by(api):
        await until(lambda: led() == {"team"})

        fake.things, fake.refuses = [sweep("gone")], set()
        await until(lambda: led() == {"team", "gone"})
    await api.close()


@pytest.mark.case("operator", "Somebody creates hundreds of objects of a megabyte each")
async def test_large_sweeps_take_the_memory_of_one(fake: FakeApi) -> None:
    """Each was read as a whole, and held until the API server had answered it."""
    api = await KubeApi.connect()
    for number in range(5):
        raw = sweep("team")
        raw["metadata"] |= {"name": f"search-{number}", "uid": f"uid-{number}"}
        raw["spec"]["unread"] = "x" * 70_000
        fake.things.append(raw)
        fake.objects[TRAINSWEEP.path("team", f"search-{number}")] = raw

    fake.finish_writes.clear()
    async with led_by(api):
        await until(lambda: fake.writing > 0)
        await asyncio.sleep(0.2)
        fake.finish_writes.set()
        await until(lambda: len({body["metadata"]["uid"] for body in fake.bodies}) == 5)
    await api.close()

    assert fake.most_writing == 1
