"""Which runs a manager knows, from what it is told of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.office import Office, raw
from tests.kube.fake_api import Answer, status
from tests.kube.waiting import until
from tests.runtime.states import a_state
from tests.support.eventually import eventually
from tests.support.kstatus import kstatus
from tests.support.trainruns import CRD
from trainrun_operator.cluster import unmanaged_runs
from trainrun_operator.core.run.config import RunConfig, config_of
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.worlds.kubernetes import run_object

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.kube.fake_api import FakeApi
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.api.resources import TrainRun


def test_a_run_is_known_once_it_was_seen_and_forgotten_when_it_is_deleted() -> None:
    office = Office()
    office.sees(raw())
    assert office.uids() == {"uid-1"}
    office.watch.forget("team", "uid-1")
    assert office.uids() == set()


def test_an_older_version_never_replaces_a_newer_one() -> None:
    office = Office()
    office.sees(raw(version=7, failurePolicy={"maxFailures": 7}))
    office.sees(raw(version=3, failurePolicy={"maxFailures": 3}))
    assert office.max_failures() == [7]


async def test_the_state_of_a_run_tells_how_long_its_agents_have_owed_a_step() -> None:
    office = Office()
    office.sees(raw())
    ((_, _, _, owed),) = office.manager.states()
    assert owed() is None
    agents = office.manager._runs["uid-1"].agents
    agents.expect(["run-0-1"])
    agents.receive(replace(a_state(), run_uid="uid-1", phase="Running", owes=5.0))
    assert owed() == (5.0, 0.0), "how many it may is not known yet"


def test_late_news_of_a_run_whose_name_another_one_has_leave_nothing_behind() -> None:
    office = Office()
    office.sees(raw(uid="second", version=20))
    office.watch.changed("ADDED", raw(uid="first", version=10))
    office.watch.changed("DELETED", raw(uid="first", version=15))
    assert office.uids() == {"second"}
    assert office.max_failures() == [0]


def test_a_run_that_is_being_deleted_is_left_alone() -> None:
    office = Office()
    office.sees(raw())
    leaving = raw(version=2)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    office.sees(leaving)
    assert office.max_failures() == []


def test_a_spec_that_cannot_be_read_is_told_once_per_generation() -> None:
    office = Office()
    broken = raw(failurePolicy={"maxFailures": "many"})
    for _ in range(3):
        office.sees(broken)
    assert [event.reason for event in office.events] == ["InvalidSpec"]
    assert "spec.failurePolicy.maxFailures" in office.events[0].message
    office.sees(raw(version=2, failurePolicy={"maxFailures": "few"}))
    assert len(office.events) == 2


async def test_an_edit_that_cannot_be_read_is_told_once_and_the_spec_before_holds() -> None:
    office = Office()
    office.sees(raw(failurePolicy={"maxFailures": 7}))
    broken = raw(version=2, failurePolicy={"maxFailures": "many"})
    for _ in range(3):
        office.sees(broken)
    assert [event.reason for event in office.events] == ["InvalidSpec"]
    assert "spec.failurePolicy.maxFailures" in office.events[0].message
    assert office.max_failures() == [7]
    office.sees(raw(version=3, failurePolicy={"maxFailures": 3}))
    assert office.max_failures() == [3]
    office.sees(raw(version=4, failurePolicy={"maxFailures": "many"}))
    assert [event.reason for event in office.events] == ["InvalidSpec"] * 2


async def stored(fake: FakeApi, *seen: dict[str, Any]) -> dict[str, Any]:
    """What an operator that leads has made of the newest of these runs, seen one after another."""
    office, api = Office(), await KubeApi.connect()
    office.manager.lead(office.around(api))
    for number, it in enumerate(seen, start=1):
        office.sees(it)
        await until(lambda number=number: len(fake.bodies) == number)
        office.sees(newest := {**it, "status": fake.bodies[-1]["status"]})
    await office.manager.stop()
    await api.close()
    assert len(fake.of("put")) == len(seen), "it is told once"
    assert [event.reason for event in office.events] == ["InvalidSpec"] * len(seen)
    return newest


async def test_a_run_that_cannot_be_read_needs_its_user_as_gitops_tools_see_it(
    fake: FakeApi,
) -> None:
    """It was in progress for ever."""
    broken = raw(failurePolicy={"maxFailures": "many"})
    waits = {"type": "Reconciling", "status": "True", "message": "waiting for the first workers"}
    running = {"type": "Running", "status": "False"}
    broken["status"] = {"observedGeneration": 1, "conditions": [running, waits]}
    edited = raw(version=2, failurePolicy={"maxFailures": "few"})
    edited["status"] = {"conditions": [running, {**waits, "type": "Stalled"}]}

    told = await stored(fake, broken, edited)

    word, message = kstatus(told)
    assert word == "Failed"
    assert 'spec.failurePolicy.maxFailures: "few" is a string' in message
    assert [it["type"] for it in told["status"]["conditions"]] == ["Running", "Stalled"]
    assert (told["status"]["reason"], told["status"]["observedGeneration"]) == ("InvalidSpec", 2)


async def test_a_run_that_has_ended_needs_nobody_though_its_spec_cannot_be_read(
    fake: FakeApi,
) -> None:
    office, api = Office(), await KubeApi.connect()
    office.manager.lead(office.around(api))
    done = raw(failurePolicy={"maxFailures": "many"})
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    office.sees(done)
    other = raw("other", uid="other", failurePolicy={"maxFailures": "many"})
    office.sees(other)
    await until(lambda: fake.bodies)
    await office.manager.stop()
    await api.close()
    assert [it["metadata"]["name"] for it in fake.bodies] == ["other"]


async def test_agents_of_a_run_that_this_operator_cannot_read_are_put_off_not_sent_away() -> None:
    office = Office()
    office.sees(raw(failurePolicy={"maxFailures": "many"}))
    assert await office.status_for("uid-1") == 503


@pytest.mark.case("operator", "A watched namespace, a right or a CRD is missing")
async def test_a_run_whose_pods_cannot_be_listed_is_left_alone_until_they_can(
    fake: FakeApi,
) -> None:
    """Its workers would look lost, and its agents silent."""
    office, api = Office(), await KubeApi.connect()
    around = office.around(api, "other", "team")
    pods = around.pods
    fake.refuses = {"team"}
    reading = [asyncio.create_task(informer.run()) for informer in pods.informers]
    await asyncio.wait_for(pods.settle(), timeout=30)
    office.sees(raw())
    office.manager.lead(around)
    assert await office.status_for("uid-1") == 503
    assert not fake.of("put")

    fake.refuses = set()
    await until(lambda: fake.of("put"), what="the run is led")
    await office.manager.stop()
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await api.close()


async def test_a_run_that_was_deleted_under_somebodys_finalizer_says_so(fake: FakeApi) -> None:
    """It stayed `Running 2/2`, and its workers were gone."""
    office, api = Office(), await KubeApi.connect()
    leaving = raw(version=2)
    leaving["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["foregroundDeletion", "example.com/archive"],
    }
    leaving["status"] = {
        "phase": "Running",
        "workers": {"ready": 2, "total": 2, "text": "2/2", "selector": "run"},
        "conditions": [{"type": "Running", "status": "True"}],
    }
    office.sees(leaving)
    office.manager.lead(office.around(api))
    await until(lambda: fake.bodies)
    told = fake.bodies[0]["status"]
    office.sees({**leaving, "status": told})
    by_kubernetes = {**leaving["metadata"], "finalizers": ["foregroundDeletion"], "uid": "uid-2"}
    office.sees({**leaving, "metadata": {**by_kubernetes, "name": "other"}})
    await office.manager.stop()
    await api.close()

    workers = {"ready": 0, "total": 2, "text": "0/2", "selector": "run"}
    assert (told["phase"], told["reason"], told["workers"]) == ("Terminating", "Deleted", workers)
    assert [it["type"] for it in told["conditions"]] == ["Running", "Deleted"]
    (event,) = office.events
    assert (event.reason, event.message.rpartition(": ")[2]) == ("Deleted", "example.com/archive")
    assert len(fake.of("put")) == 1, "it is told once"


async def test_a_neighbour_is_told_once_the_api_server_takes_it(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmanaged_runs, "RETRY", 0.01)
    office, api = Office(), await KubeApi.connect()
    around = office.around(api)
    away = status(503, "ServiceUnavailable", "the server is starting")
    fake.answers = [Answer(code=503, body=away)] * 2
    office.sees(held("theirs/k1"))
    office.manager.lead(around)
    await until(lambda: fake.bodies)
    await office.manager.stop()
    await api.close()
    assert [each["type"] for each in fake.bodies[0]["status"]["conditions"]] == ["Contested"]
    assert len(fake.of("put")) == 3


async def test_agents_of_a_run_that_is_gone_are_sent_away() -> None:
    office = Office()
    office.sees(raw(failurePolicy={"maxFailures": "many"}))
    office.watch.forget("team", "uid-1")
    assert await office.status_for("uid-1") == 410


def test_a_spec_that_was_repaired_is_led_like_any_other() -> None:
    office = Office()
    office.sees(raw(failurePolicy={"maxFailures": "many"}))
    office.sees(raw(version=2, failurePolicy={"maxFailures": 2}))
    assert office.max_failures() == [2]


async def test_a_run_that_nobody_foresaw_is_refused_alone_and_its_user_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def surprised(run: TrainRun) -> RunConfig:
        if run.metadata.name == "odd":
            raise RecursionError("maximum recursion depth exceeded")
        return config_of(run)

    monkeypatch.setattr(run_object, "config_of", surprised)
    office = Office()
    odd, well = raw("odd", uid="odd"), raw("well", uid="well")
    for _ in range(2):
        office.sees(odd, well)

    assert office.max_failures() == [0]
    assert [event.reason for event in office.events] == ["InvalidSpec"]
    assert office.events[0].message.startswith(
        "this operator cannot read it: RecursionError: maximum recursion depth exceeded (test_"
    )
    assert caplog.text.count("TrainRun odd cannot be read") == 1
    assert await office.status_for("odd") == 503


def held(by: str, *, version: int = 1) -> dict[str, Any]:
    """The run with a status that names this holder."""
    return {**raw(version=version), "status": {"internal": {"holder": by}}}


def test_a_run_that_another_controller_manages_is_none_of_ours() -> None:
    office = Office()
    office.sees(raw(managedBy="example.com/other", failurePolicy={"maxFailures": "many"}))
    assert office.max_failures() == []
    assert office.events == []
    office.sees(raw(version=2, managedBy="trainrun.dev/operator"))
    assert office.max_failures() == [0]


async def test_a_run_of_another_installation_has_no_agents_here_and_counts_in_no_metric() -> None:
    office = Office()
    office.sees(held("theirs/k1"))
    assert office.uids() == {"uid-1"}
    assert list(office.manager.states()) == []
    assert await office.status_for("uid-1") == 410


def test_a_run_of_another_installation_that_cannot_be_read_is_not_ours_to_complain_about() -> None:
    office = Office()
    unreadable = held("theirs/k1")
    unreadable["spec"]["storage"] = {}
    office.sees(unreadable)
    assert office.events == []


def test_a_run_that_another_installation_has_taken_over_is_let_go() -> None:
    office = Office()
    office.sees(held("ours/k1"))
    assert len(list(office.manager.states())) == 1
    office.sees(held("theirs/k1", version=3))
    assert list(office.manager.states()) == []


def test_a_list_that_is_late_does_not_take_a_run_from_us() -> None:
    office = Office()
    office.sees(held("ours/k1", version=3))
    office.sees(held("theirs/k1", version=2))
    assert len(list(office.manager.states())) == 1


def test_a_run_that_another_installation_led_in_the_backup_is_let_go() -> None:
    office = Office()
    office.sees(held("ours/k1", version=900))
    office.watch.learn(held("theirs/k1", version=80), previous=900)
    assert list(office.manager.states()) == []


def test_a_run_whose_status_was_lost_is_led_by_whoever_sees_it() -> None:
    office = Office()
    office.sees(held("theirs/k1"))
    office.sees(raw(version=2))
    assert len(list(office.manager.states())) == 1
    office.watch.forget("team", "uid-1")
    assert office.uids() == set()


async def test_a_run_that_was_stored_before_a_rule_is_told_on_a_real_api_server(
    trainruns: TrainRuns, api: KubeApi, tmp_path: Path
) -> None:
    crd = yaml.safe_load(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["failurePolicy"]["properties"]["maxFailures"]["minimum"]
    before = tmp_path / "before.yaml"
    before.write_text(yaml.safe_dump(crd))
    trainruns.install(before)
    try:
        trainruns.create(failurePolicy={"maxFailures": -7})
    finally:
        trainruns.install(CRD)
    change = {"spec": {"failurePolicy": {"maxFailures": -8}}}
    eventually(lambda: trainruns.refusal_of_edit(change), timeout=30, what="the rule is in force")
    office = Office()
    office.manager.lead(office.around(api))
    office.sees(trainruns.get())
    await until(lambda: kstatus(trainruns.get())[0] == "Failed")
    await office.manager.stop()
    assert "spec.failurePolicy.maxFailures" in kstatus(trainruns.get())[1]
