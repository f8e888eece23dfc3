"""What the world of one run asks of an API server."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.test_manager import raw as listed
from tests.kube.fake_api import Answer, status
from tests.worlds.kubernetes.raw_objects import ended
from trainrun.errors import InvalidSpec
from trainrun_operator.api.run.status import StartRecord, json_object
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker, Event
from trainrun_operator.core.run.gang.roster import MAKES_ROOM
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Conflict
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.worlds.base import (
    AgentContact,
    StatusConflict,
    StatusRefused,
    StatusUnwritable,
)
from trainrun_operator.worlds.kubernetes.observing import foreign_pods
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.render import OperatorPlace
from trainrun_operator.worlds.kubernetes.run_object import RunObject, managed_version
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, WorldDependencies

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

    def contact(self, worker: str) -> AgentContact:
        raise AssertionError(worker)


def world_of(
    run: RunObject,
    api: KubeApi,
    wrote: Callable[[TrainRunStatus, TrainRunStatus], None] = lambda _before, _after: None,
    tell: Callable[[Event], None] = lambda _event: None,
) -> KubernetesWorld:
    def learn(raw: dict[str, Any], _known: int) -> None:
        with suppress(InvalidSpec):
            run.learn(raw)

    around = WorldDependencies(
        api=api,
        pods=PodIndex(
            api,
            namespaces=(),
            nodes=False,
            signed=lambda _pod: True,
            on_change=lambda _uid: None,
        ),
        reads_nodes=False,
        place=OperatorPlace(url="https://operator", ca_pem="", signing_key=b"key"),
        notices=(),
        leads=lambda: True,
        learn_run=learn,
    )
    return KubernetesWorld(
        run=run,
        around=around,
        wake=lambda _seconds: None,
        wrote=wrote,
        record_event=tell,
    )


async def test_a_status_is_written_over_the_version_that_it_was_decided_from(fake: FakeApi) -> None:
    """Else what somebody has written in between is overwritten, and nobody learns of a conflict."""
    api = await KubeApi.connect()
    run = RunObject(managed_version(raw(version=7)))
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
    run = RunObject(managed_version(raw(version=7)))
    world = world_of(run, api)
    shown = replace((await world.observe(Nobody())).observation.status, phase="Running")

    fake.finish_writes.clear()
    writing = asyncio.create_task(world.write_status(shown))
    while not fake.writing:
        await asyncio.sleep(0.001)
    metadata = {**raw(version=7)["metadata"], "resourceVersion": "8"}
    stored = {**raw(version=7), "metadata": metadata, "status": json_object(shown)}
    assert not run.learn(stored)
    assert run.current.status.phase == "Running"
    fake.finish_writes.set()
    await writing
    await api.close()


async def test_after_a_conflict_even_a_status_like_ours_is_news(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    run = RunObject(managed_version(raw(version=7)))
    world = world_of(run, api)
    shown = replace((await world.observe(Nobody())).observation.status, phase="Running")

    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(shown)
    assert run.learn({**raw(version=8), "status": json_object(shown)})
    await api.close()


async def test_a_restart_is_counted_although_the_answer_to_its_write_got_lost(
    fake: FakeApi,
) -> None:
    """The metrics would show fewer restarts than the status and the events."""
    api, metrics = await KubeApi.connect(), Metrics()
    run = RunObject(managed_version(raw(version=7)))
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


@pytest.mark.case("operator", "The API server refuses a status (403, 422)")
@pytest.mark.parametrize(
    ("code", "reason", "helps"),
    [(403, "Forbidden", False), (422, "Invalid", False), (503, "Unavailable", True)],
)
async def test_a_status_that_waiting_does_not_help_is_told_from_one_that_it_does(
    fake: FakeApi, code: int, reason: str, helps: bool
) -> None:
    api = await KubeApi.connect()
    world = world_of(RunObject(managed_version(raw(version=7))), api)
    begun = replace((await world.observe(Nobody())).observation.status, attempt=1)
    fake.answers = [Answer(code=code, body=status(code, reason, "cannot update it"))] * 2
    with pytest.raises(StatusUnwritable, match="cannot update it") as caught:
        await world.write_status(begun)
    assert isinstance(caught.value, StatusRefused) is not helps
    await api.close()


@pytest.mark.case("operator", "The answer to a status write is lost")
async def test_after_a_write_without_an_answer_nothing_is_decided_from_the_status_before(
    fake: FakeApi,
) -> None:
    """The watch may lag: a worker was deleted under the attempt that the write had started."""
    api = await KubeApi.connect()
    run = RunObject(managed_version(raw(version=7)))
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
    run = RunObject(managed_version(raw(version=7)))
    world = world_of(run, api)
    before = (await world.observe(Nobody())).observation.status
    begun, odd = replace(before, attempt=1), {**raw(version=8)["spec"], "suspend": "later"}

    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(begun)
    fake.answers = [Answer(code=200, body={**raw(version=8), "spec": odd})]
    assert (await world.observe(Nobody())).config == run.current.config
    assert 'spec.suspend: "later" is a string' in str(run.refusal)
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
    run = RunObject(managed_version(raw(version=700)))
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


@pytest.mark.case("nodes", "A webhook is away, or the API server refuses a creation for now")
@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [
        (500, "InternalError", "Unavailable"),
        (503, "ServiceUnavailable", "Unavailable"),
        (504, "Timeout", "Unavailable"),
        (429, "TooManyRequests", "Unavailable"),
        (409, "Conflict", "Unavailable"),
        (401, "Unauthorized", "Unavailable"),
        (404, "NotFound", "Unavailable"),
        (403, "Forbidden", "Forbidden"),
    ],
)
async def test_whatever_a_creation_is_answered_is_a_refusal_of_its_slot_alone(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch, code: int, reason: str, told: str
) -> None:
    """A webhook that is away, or a quota that others write at the same moment, failed the pass."""
    monkeypatch.setattr("trainrun_operator.kube.api.RETRIES", 0)
    api = await KubeApi.connect()
    world = world_of(RunObject(managed_version(raw(version=7))), api)
    await world.observe(Nobody())
    fake.answers = [Answer(code=code, body=status(code, reason, "failed calling webhook"))]
    await world.apply(CreateWorker(name="run-1-3", slot=1, created_for=3, template_hash="h"))
    (refused,) = (await world.observe(Nobody())).observation.refused
    assert (refused.slot, refused.reason, refused.message) == (1, told, "failed calling webhook")
    await api.close()


async def test_who_takes_over_a_large_gang_between_attempts_does_not_wait_for_its_old_pods(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name was asked for in the first pass, and all again after any error."""
    monkeypatch.setattr(foreign_pods, "LOOK_AGAIN", 0.0)
    api = await KubeApi.connect()
    run = RunObject(managed_version(raw(version=7)))
    record = StartRecord(
        attempt=1,
        roster=(1,) * 40,
        agents="abcd" * 40,
        world_size=40,
        master_addr="10.0.0.1",
        master_port=29500,
        template_hash="h",
        time=datetime.now(UTC),
    )
    run.current = replace(run.current, status=replace(run.current.status, start_record=record))
    world = world_of(run, api)
    gone = Answer(code=404, body=status(404, "NotFound", "it is gone"))
    away = Answer(code=503, body=status(503, "ServiceUnavailable", "it is away"))
    fake.answers = [gone] * 20 + [away] + [gone] * 100
    asked = []
    for _ in range(6):
        before = len(fake.requests)
        await world.observe(Nobody())
        asked.append(len(fake.requests) - before)
    await api.close()

    assert asked == [16, 5, 16, 4, 0, 0]


def large(version: int, **annotations: str) -> dict[str, Any]:
    """A run of which an operator does not keep the spec."""
    run = raw(version)
    run["metadata"]["annotations"] = annotations
    run["spec"]["workers"]["template"]["unread"] = "x" * 70_000
    return run


@pytest.mark.case("operator", "Somebody creates hundreds of objects of a megabyte each")
async def test_a_large_gang_takes_the_memory_of_one_worker(fake: FakeApi) -> None:
    """Each read all of the run, and held it until the API server had time for its pod: one run of a
    thousand took gigabytes."""
    api = await KubeApi.connect()
    run = RunObject(managed_version(large(version=7)))
    fake.objects[run.path] = large(version=7)
    world = world_of(run, api)
    await world.observe(Nobody())
    fake.finish_writes.clear()
    made = asyncio.gather(*(world.apply(creation(slot)) for slot in range(50)))
    async with asyncio.timeout(20):
        while not fake.writing:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.2)
    fake.finish_writes.set()
    await made
    await api.close()

    assert (len(fake.of("list")), fake.most_writing, len(fake.bodies)) == (1, 1, 50)


async def test_a_large_spec_that_is_edited_meanwhile_is_waited_for_and_not_refused(
    fake: FakeApi,
) -> None:
    """An annotation was enough: the run failed with InvalidTemplate."""
    api = await KubeApi.connect()
    run = RunObject(managed_version(large(version=7)))
    fake.objects[run.path] = large(version=8, note="new")
    world = world_of(run, api)
    await world.observe(Nobody())
    for slot in range(50):
        await world.apply(creation(slot))
    refused = (await world.observe(Nobody())).observation.refused
    await api.close()

    assert {(it.reason, it.message) for it in refused} == {
        ("Unavailable", "the API server no longer has the spec in use: edit the run again")
    }
    assert (len(refused), len(fake.of("list")), fake.bodies) == (50, 1, [])


def creation(slot: int) -> CreateWorker:
    return CreateWorker(name=f"run-{slot}-1", slot=slot, created_for=1, template_hash="h")


@pytest.mark.case("nodes", "Ended pods use up a quota on count/pods")
async def test_what_a_quota_refused_is_tried_at_once_where_an_ended_worker_made_room(
    fake: FakeApi,
) -> None:
    told: list[Event] = []
    api = await KubeApi.connect()
    pod = ended()
    run = RunObject(managed_version(raw(version=7)))
    pod["metadata"]["labels"]["trainrun.dev/run-uid"] = run.current.uid
    world = world_of(run, api, tell=told.append)
    world._around.pods.learn(pod)
    agents = RunAgents(run_uid=run.current.uid, on_news=lambda: None, on_progress=lambda: None)
    await world.observe(agents)
    quota = 'pods "run-0-2" is forbidden: exceeded quota: small, requested: count/pods=1'
    fake.answers = [Answer(code=403, body=status(403, "Forbidden", quota))]
    create = CreateWorker(name="run-0-2", slot=0, created_for=2, template_hash="h")
    await world.apply(create)
    await world.apply(create)
    assert len(fake.requests) == 1, "it waits a second"
    (refused,) = (await world.observe(agents)).observation.refused
    assert refused.reason == "QuotaExceeded"

    gone = status(200, "", "") | {"status": "Success"}
    fake.answers = [Answer(code=200, body=gone), Answer(code=201, body=pod)]
    await world.apply(DeleteWorker(name="digits-0-1", reason=MAKES_ROOM))
    assert (await world.observe(agents)).observation.refused == ()
    await world.apply(create)
    await api.close()
    assert [made for made, _ in fake.requests] == ["post", "delete", "post"]
    assert [(event.reason, event.message) for event in told] == [
        (
            "QuotaExceeded",
            "the ended worker digits-0-1 was deleted with its logs: a quota on count/pods, "
            "which includes ended pods, refuses another worker",
        )
    ]


@pytest.mark.parametrize("refused", [True, False], ids=["by a webhook", "of another uid"])
async def test_a_worker_whose_deletion_meets_a_conflict_is_forgotten_only_if_it_is_gone(
    fake: FakeApi, refused: bool
) -> None:
    """A webhook that says 409 made a worker that trains look lost, and unmarked."""
    api = await KubeApi.connect()
    pod = ended()
    run = RunObject(managed_version(raw(version=7)))
    pod["metadata"]["labels"]["trainrun.dev/run-uid"] = run.current.uid
    world = world_of(run, api)
    world._around.pods.learn(pod)
    agents = RunAgents(run_uid=run.current.uid, on_news=lambda: None, on_progress=lambda: None)
    await world.observe(agents)
    why = "not now" if refused else "Precondition failed: UID in precondition: a, in meta: b"
    fake.answers = [Answer(code=409, body=status(409, "Conflict", why))]
    with pytest.raises(Conflict, match=why) if refused else nullcontext():
        await world.apply(DeleteWorker(name="digits-0-1", reason="outdated"))
    fake.answers = [Answer(code=404, body=status(404, "NotFound", "it is gone"))]
    assert len((await world.observe(agents)).observation.workers) == (1 if refused else 0)
    await api.close()


async def test_a_pod_of_its_name_that_cannot_be_looked_at_is_a_refusal_too(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    world = world_of(RunObject(managed_version(raw(version=7))), api)
    await world.observe(Nobody())
    fake.answers = [
        Answer(code=409, body=status(409, "AlreadyExists", "it exists")),
        Answer(code=404, body=status(404, "NotFound", "it has gone since")),
    ]
    await world.apply(CreateWorker(name="run-1-3", slot=1, created_for=3, template_hash="h"))
    (refused,) = (await world.observe(Nobody())).observation.refused
    assert (refused.reason, refused.message) == ("Unavailable", "it has gone since")
    await api.close()


async def test_a_status_of_a_newer_operator_is_not_written_over(fake: FakeApi) -> None:
    api = await KubeApi.connect()
    run = RunObject(managed_version(raw(version=7)))
    world = world_of(run, api)
    before = (await world.observe(Nobody())).observation.status
    fake.answers = [Answer(code=409, body=status(409, "Conflict", "it has changed"))]
    with pytest.raises(StatusConflict, match="it has changed"):
        await world.write_status(replace(before, attempt=1))
    ending = {"internal": {"ending": {"attempt": 1, "kind": "Vote", "time": "x"}}}
    fake.answers = [Answer(code=200, body={**raw(version=8), "status": ending})]
    with pytest.raises(StatusUnwritable, match="the run cannot be read: a newer operator may"):
        await world.observe(Nobody())
    await api.close()
    assert run.current.number == 7


def restarts(metrics: Metrics) -> float:
    families = metrics.registry.collect()
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "trainrun_restarts_total"
    )
