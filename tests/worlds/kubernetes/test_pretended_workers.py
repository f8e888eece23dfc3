"""Pods that somebody else makes to look like workers, before a real API server."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.kube.patching import patch
from tests.kube.waiting import until
from tests.worlds.kubernetes.test_render import KEY, PLACE
from trainrun_operator.api.run.status import Condition, StartRecord
from trainrun_operator.core.run.boundary import CreateWorker, Event, Observation, Refused
from trainrun_operator.kube.errors import NotFound, Unavailable
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.worlds.kubernetes.names import (
    CREATION_LABEL,
    RUN_UID_LABEL,
    SIGNATURE_ANNOTATION,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
)
from trainrun_operator.worlds.kubernetes.observing import foreign_pods
from trainrun_operator.worlds.kubernetes.observing.foreign_pods import MOST_REPORTED
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import is_ours
from trainrun_operator.worlds.kubernetes.run_object import RunObject, managed_version
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, WorldDependencies

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
        self.woken: list[float] = []
        """Within how many seconds a pass was asked for."""
        self.run = RunObject(managed_version(stored))
        uid = self.run.current.uid
        self.agents = RunAgents(run_uid=uid, on_news=lambda: None, on_progress=lambda: None)
        self.pods = self.index()
        self.take_over()

    def index(self) -> PodIndex:
        return PodIndex(
            self.api,
            namespaces=(),
            nodes=False,
            signed=lambda pod: is_ours(pod, pod.run_uid, KEY),
            on_change=lambda _: None,
        )

    def take_over(self) -> None:
        """As an operator that has not led this run before."""
        self.world = KubernetesWorld(
            run=self.run,
            around=WorldDependencies(
                api=self.api,
                pods=self.pods,
                reads_nodes=False,
                place=PLACE,
                notices=(),
                leads=lambda: True,
                learn_run=lambda raw, _known: self.run.learn(raw),
            ),
            wake=self.woken.append,
            wrote=lambda _old, _new: None,
            record_event=self.told.append,
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

    def has(self, **changes: Any) -> None:
        """The status of the run, changed so."""
        version = self.run.current
        self.run.current = replace(version, status=replace(version.status, **changes))

    def started(self, *, at: datetime | None = None) -> None:
        """The first attempt, with the first worker of slot 0."""
        record = StartRecord(
            attempt=1,
            roster=(1,),
            agents="abcd",
            world_size=1,
            master_addr="10.0.0.1",
            master_port=29500,
            template_hash=self.run.current.config.template_hash,
            time=at or datetime.now(UTC),
        )
        self.has(attempt=1, start_record=record)

    async def unmark(self, name: str, change: Json) -> None:
        uid = self.run.current.uid
        await until(lambda: bool(self.pods.of(uid)), what="it is seen")
        await patch(self.api, f"{self.path()}/{name}", {"metadata": change})
        await until(lambda: bool(self.pods.vanished(uid)), what="it is missed")

    def forget_vanished(self) -> None:
        for pod in self.pods.vanished(self.run.current.uid):
            self.pods.looked_after(pod)

    async def refuse_deletions(self, *, of: str) -> str:
        """By a webhook that does not answer, in this namespace; its path."""
        namespace = self.run.current.namespace
        names = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        rule = {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"]}
        webhook = {
            "name": "pods.example.org",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{**rule, "resources": ["pods"]}],
            "namespaceSelector": names,
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        await self.api.post(hooks, {"metadata": {"name": namespace}, "webhooks": [webhook]})
        async with asyncio.timeout(20):
            with suppress(Unavailable):
                while await self.api.delete(f"{self.path()}/{of}", body={"dryRun": ["All"]}):
                    await asyncio.sleep(0.05)
        return f"{hooks}/{namespace}"

    async def is_there(self, name: str) -> bool:
        try:
            return bool(await self.get(name))
        except NotFound:
            return False

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

    async def is_seen(self, *, foreign_pods: int) -> None:
        uid = self.run.current.uid
        await until(
            lambda: len(self.pods.foreign_pods(uid)) == foreign_pods,
            what=f"{foreign_pods} strangers",
        )

    def path(self, namespace: str = "") -> str:
        namespace = namespace or self.run.current.namespace
        return f"/api/v1/namespaces/{namespace}/pods"


@pytest_asyncio.fixture
async def led(trainruns: TrainRuns, api: KubeApi) -> AsyncIterator[Led]:
    stored = trainruns.create(workers={"replicas": 1, "template": TEMPLATE})
    led = Led(api, stored)
    led.pods.follow()
    tasks = [asyncio.create_task(informer.run()) for informer in led.pods.informers]
    await led.pods.settle()
    yield led
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def other_namespace(api: KubeApi, namespace: str) -> str:
    name = f"{namespace}-neighbour"
    await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.mark.case("strangers", "A pod in another namespace has a worker's labels")
async def test_a_pod_in_another_namespace_ends_nothing_and_hides_nothing(
    led: Led, other_namespace: str
) -> None:
    name = await led.create()
    await led.copy_of(await led.get(name), name=name, namespace=other_namespace)
    await led.is_seen(foreign_pods=1)

    for _ in range(2):
        (worker,) = (await led.observe()).workers
        assert (worker.name, worker.phase, worker.loss) == (name, "Pending", None)

    assert [(event.type, event.reason) for event in led.told] == [("Warning", "PodIgnored")]
    assert led.told[0].message == (
        f"pod {other_namespace}/{name} has the labels of a worker of run digits, but this "
        "operator did not create it: it is ignored"
    )


@pytest.mark.case("strangers", "Somebody copies a worker with kubectl")
async def test_a_copy_of_a_worker_made_with_kubectl_ends_nothing(led: Led) -> None:
    name = await led.create()
    await led.copy_of(await led.get(name), name="digits-0-1-copy")
    await led.is_seen(foreign_pods=1)

    (worker,) = (await led.observe()).workers

    assert (worker.name, worker.phase, worker.loss) == (name, "Pending", None)
    assert [event.reason for event in led.told] == ["PodIgnored"]


async def test_who_knows_the_uid_of_a_run_cannot_fill_its_history(
    led: Led, other_namespace: str
) -> None:
    name = await led.create()
    pod = await led.get(name)
    for number in range(MOST_REPORTED + 2):
        await led.copy_of(pod, name=f"{name}-{number}", namespace=other_namespace)
    await led.is_seen(foreign_pods=MOST_REPORTED + 2)

    assert len((await led.observe()).workers) == 1

    assert len(led.told) == MOST_REPORTED


@pytest.mark.case("strangers", "A foreign pod has the name of the next worker")
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
        "pod digits-0-1 exists but does not belong to this run; delete it"
    )
    assert (await led.observe()).workers == ()
    assert "deletionTimestamp" not in (await led.get("digits-0-1"))["metadata"]
    assert [event.reason for event in led.told] == ["PodIgnored"]


UNMARKED = pytest.mark.parametrize(
    "change",
    [
        {"labels": {RUN_UID_LABEL: None}},
        {"labels": {SLOT_LABEL: None}},
        {"annotations": {SIGNATURE_ANNOTATION: None}},
        {"ownerReferences": None},
        {"labels": None, "annotations": None, "ownerReferences": None},
    ],
    ids=["run label", "slot label", "seal", "owner", "everything"],
)


@pytest.mark.case(
    "strangers", "Somebody removes a worker's label, seal or ownerReference", counted="its cause"
)
@UNMARKED
async def test_a_worker_that_somebody_unmarks_does_not_train_on_unseen(
    led: Led, change: Json
) -> None:
    name = await led.create()
    await led.observe()
    await led.unmark(name, change)

    assert (await led.observe()).workers == ()

    with pytest.raises(NotFound):
        await led.get(name)
    assert [event.reason for event in led.told] == ["PodDisowned"]
    assert led.told[0].message.startswith(
        f"a label, the signature or the ownerReference of worker {name} was removed from outside, "
    )
    assert led.pods.vanished(led.run.current.uid) == ()


async def test_an_unmarked_worker_that_is_gone_is_looked_for_once_and_not_told(led: Led) -> None:
    name = await led.create()
    uid = led.run.current.uid
    await led.unmark(name, {"labels": None})
    await led.api.delete(f"{led.path()}/{name}", body={"gracePeriodSeconds": 0})
    await led.observe()
    assert (led.told, led.pods.vanished(uid)) == ([], ())


async def test_a_worker_that_is_marked_again_before_it_is_looked_at_trains_on(led: Led) -> None:
    """The watch may be behind: what the API server says at that moment counts."""
    name = await led.create()
    (pod,) = led.pods.of(led.run.current.uid)
    led.pods.miss(pod)

    (worker,) = (await led.observe()).workers

    assert (worker.name, led.told, led.pods.vanished(led.run.current.uid)) == (name, [], ())
    assert "deletionTimestamp" not in (await led.get(name))["metadata"]


@UNMARKED
async def test_a_worker_that_was_unmarked_before_a_take_over_does_not_train_on_unseen(
    led: Led, change: Json
) -> None:
    name = await led.create()
    led.started()
    await led.unmark(name, change)
    led.forget_vanished()  # who led before has died with it
    led.take_over()

    assert (await led.observe()).workers == ()

    with pytest.raises(NotFound):
        await led.get(name)
    assert [event.reason for event in led.told] == ["PodDisowned"]


async def test_a_marked_worker_that_the_watch_has_not_shown_yet_is_no_unmarked_one(
    led: Led,
) -> None:
    name = await led.create()
    led.started()
    led.pods = led.index()  # it has listed nothing so far
    led.take_over()

    (worker,) = (await led.observe()).workers

    assert (worker.name, led.told) == (name, [])


async def test_a_pod_that_was_made_after_a_worker_of_its_name_is_left_alone(led: Led) -> None:
    led.started(at=datetime.now(UTC) - timedelta(hours=1))
    bare = {"metadata": {"name": "digits-0-1"}, "spec": TEMPLATE["spec"]}
    await led.api.post(led.path(), bare)

    assert (await led.observe()).workers == ()

    assert "deletionTimestamp" not in (await led.get("digits-0-1"))["metadata"]
    assert led.told == []


async def test_a_worker_that_is_unmarked_while_the_run_is_suspended_is_deleted(led: Led) -> None:
    name = await led.create()
    suspended = Condition(
        type="Suspended", status="True", reason="Suspended", last_transition_time=datetime.now(UTC)
    )
    led.has(conditions=(suspended,))
    await led.observe()
    await led.unmark(name, {"labels": {RUN_UID_LABEL: None}})

    assert (await led.observe()).workers == ()

    with pytest.raises(NotFound):
        await led.get(name)
    assert [event.reason for event in led.told] == ["PodDisowned"]


@pytest.mark.parametrize("unmarked", [True, False], ids=["unmarked", "of another installation"])
async def test_a_webhook_that_is_away_keeps_a_pod_that_is_no_worker_and_fails_no_pass(
    led: Led, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, unmarked: bool
) -> None:
    monkeypatch.setattr(foreign_pods, "LOOK_AGAIN", 0.5)
    name = await led.create()
    if unmarked:
        await led.unmark(name, {"labels": {RUN_UID_LABEL: None}})
    else:
        await led.unmark(name, {"annotations": {SIGNATURE_ANNOTATION: None}})
        led.forget_vanished()
        led.has(taken_over=datetime.now(UTC))
    hook = await led.refuse_deletions(of=name)

    assert (await led.observe()).workers == ()
    assert (led.woken, led.told) == ([0.5], [])
    await led.get(name)
    await asyncio.sleep(0.6)
    await led.observe()
    assert led.woken == [0.5, 0.5]
    assert caplog.text.count("a pod that is not a worker stays") == 1

    await led.api.delete(hook)
    async with asyncio.timeout(20):
        while await led.is_there(name):
            await led.observe()
            await asyncio.sleep(0.1)
    assert [event.reason for event in led.told] == (["PodDisowned"] if unmarked else [])
