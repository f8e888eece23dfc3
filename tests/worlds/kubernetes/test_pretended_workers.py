"""Pods that somebody else makes to look like workers, before a real API server."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from tests.kube.waiting import until
from tests.worlds.kubernetes.test_render import KEY, PLACE
from trainrun_operator.core.run.observation import Observation, Refused
from trainrun_operator.core.run.plan import CreateWorker, Event
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.worlds.kubernetes.names import (
    CREATION_LABEL,
    RUN_UID_LABEL,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
)
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.strangers import MOST_TOLD
from trainrun_operator.worlds.kubernetes.run_object import RunObject, run_version
from trainrun_operator.worlds.kubernetes.seal import is_ours
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, Surroundings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi

Json = dict[str, Any]

CONTAINER = {"name": "worker", "image": "train:1", "command": ["python3", "train.py"]}
TEMPLATE = {"spec": {"serviceAccountName": "default", "containers": [CONTAINER]}}
ENDED = {
    "phase": "Failed",
    "containerStatuses": [
        {
            "name": "worker",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 1}},
        }
    ],
}


class Led:
    """A run of one worker, its world, and what its user was told besides the core's events."""

    def __init__(self, api: KubeApi, stored: Json) -> None:
        self.api = api
        self.told: list[Event] = []
        self.run = RunObject(run_version(stored))
        uid = self.run.current.uid
        self.agents = RunAgents(run_uid=uid, on_news=lambda: None, on_progress=lambda: None)
        self.pods = PodIndex(
            api,
            namespaces=(),
            nodes=False,
            sealed=lambda pod: is_ours(pod, pod.run_uid, KEY),
            on_change=lambda _: None,
        )
        self.world = KubernetesWorld(
            run=self.run,
            around=Surroundings(
                api=api,
                pods=self.pods,
                reads_nodes=False,
                place=PLACE,
                notices=(),
                leads=lambda: True,
            ),
            wake=lambda _: None,
            wrote=lambda _old, _new: None,
            tell=self.told.append,
        )

    async def observe(self) -> Observation:
        return (await self.world.observe(self.agents)).observation

    async def create(self, creation: int = 1) -> str:
        name = f"digits-0-{creation}"
        action = CreateWorker(
            name=name,
            slot=0,
            created_for=creation,
            template_hash=self.run.current.config.template_hash,
        )
        await self.world.apply(action)
        return name

    async def get(self, name: str) -> Json:
        return await self.api.get(f"{self.path()}/{name}")

    async def copy_of(self, pod: Json, *, name: str, namespace: str = "") -> None:
        """As `kubectl get -o yaml`, an editor and `kubectl create` make it; its process ends."""
        namespace = namespace or pod["metadata"]["namespace"]
        made = copy.deepcopy(pod)
        kept = ("labels", "annotations", "ownerReferences")
        made["metadata"] = {key: pod["metadata"][key] for key in kept} | {"name": name}
        made.pop("status")
        stored = await self.api.post(self.path(namespace), made)
        path = f"{self.path(namespace)}/{name}/status"
        await self.api.put(path, {**stored, "status": ENDED})

    async def is_seen(self, *, strangers: int) -> None:
        uid = self.run.current.uid
        await until(
            lambda: len(self.pods.strangers(uid)) == strangers, what=f"{strangers} strangers"
        )

    def path(self, namespace: str = "") -> str:
        namespace = namespace or self.run.current.run.metadata.namespace
        return f"/api/v1/namespaces/{namespace}/pods"


@pytest_asyncio.fixture
async def led(trainruns: TrainRuns, api: KubeApi) -> AsyncIterator[Led]:
    stored = trainruns.create(workers={"replicas": 1, "template": TEMPLATE})
    led = Led(api, stored)
    led.pods.follow()
    tasks = [asyncio.create_task(informer.run()) for informer in led.pods.informers]
    await led.pods.synced()
    yield led
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def other_namespace(api: KubeApi, namespace: str) -> str:
    name = f"{namespace}-neighbour"
    await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


async def test_a_pod_in_another_namespace_ends_nothing_and_hides_nothing(
    led: Led, other_namespace: str
) -> None:
    name = await led.create()
    await led.copy_of(await led.get(name), name=name, namespace=other_namespace)
    await led.is_seen(strangers=1)

    for _ in range(2):
        (worker,) = (await led.observe()).workers
        assert (worker.name, worker.phase, worker.loss) == (name, "Pending", None)

    assert [(event.type, event.reason) for event in led.told] == [("Warning", "PodIgnored")]
    assert led.told[0].message == (
        f"pod {other_namespace}/{name} has the labels of a worker of run digits but was not "
        "created by this operator: it is ignored"
    )


async def test_a_copy_of_a_worker_made_with_kubectl_ends_nothing(led: Led) -> None:
    name = await led.create()
    await led.copy_of(await led.get(name), name="digits-0-1-copy")
    await led.is_seen(strangers=1)

    (worker,) = (await led.observe()).workers

    assert (worker.name, worker.phase, worker.loss) == (name, "Pending", None)
    assert [event.reason for event in led.told] == ["PodIgnored"]


async def test_who_knows_the_uid_of_a_run_cannot_fill_its_history(
    led: Led, other_namespace: str
) -> None:
    name = await led.create()
    pod = await led.get(name)
    for number in range(MOST_TOLD + 2):
        await led.copy_of(pod, name=f"{name}-{number}", namespace=other_namespace)
    await led.is_seen(strangers=MOST_TOLD + 2)

    assert len((await led.observe()).workers) == 1

    assert len(led.told) == MOST_TOLD


async def test_a_name_that_a_stranger_has_taken_is_told_and_the_stranger_left_alone(
    led: Led,
) -> None:
    labels = {
        RUN_UID_LABEL: led.run.current.uid,
        SLOT_LABEL: "0",
        CREATION_LABEL: "1",
        TEMPLATE_HASH_LABEL: led.run.current.config.template_hash,
    }
    taken = {"metadata": {"name": "digits-0-1", "labels": labels}, "spec": TEMPLATE["spec"]}
    await led.api.post(led.path(), taken)

    await led.create()

    refused: tuple[Refused, ...] = (await led.observe()).refused
    assert [(r.name, r.reason) for r in refused] == [("digits-0-1", "NameTaken")]
    assert refused[0].message == (
        "pod digits-0-1 exists and does not belong to this run; delete it"
    )
    assert (await led.observe()).workers == ()
    assert "deletionTimestamp" not in (await led.get("digits-0-1"))["metadata"]
    assert [event.reason for event in led.told] == ["PodIgnored"]
