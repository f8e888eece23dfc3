"""Which TrainRuns an operator knows of, from what a watch tells and what lists show."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.cluster.office import Office, raw
from tests.kube.fake_api import Answer, status
from tests.kube.waiting import until
from trainrun_operator.kube import informer
from trainrun_operator.kube.api import KubeApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kube.fake_api import FakeApi
    from trainrun_operator.cluster.watch import RunWatch


@pytest_asyncio.fixture
async def api(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeApi]:
    """Listed without pauses worth waiting for."""
    for pause in ("UNWATCHED", "SHORTEST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(informer, pause, 0.01)
    monkeypatch.setattr(informer, "SOON", (0.01, 0.02))
    connected = await KubeApi.connect()
    yield connected
    await connected.close()


@asynccontextmanager
async def relisting(watched: RunWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watched.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_the_watch_tells_is_known_at_once(api: KubeApi) -> None:
    office = Office()
    watched = office.watching(api)

    watched.changed("ADDED", raw("a", uid="a"))
    watched.changed("ADDED", raw("b", uid="b"))
    watched.changed("MODIFIED", raw("b", uid="b", version=2, failurePolicy={"maxFailures": 5}))
    watched.changed("DELETED", raw("a", uid="a"))

    assert office.uids() == {"b"}
    assert office.max_failures() == [5]
    assert not watched.listed.is_set()


async def test_a_creation_and_a_deletion_that_no_watch_told_of_are_found_by_the_lists(
    api: KubeApi, fake: FakeApi
) -> None:
    office = Office()
    watched = office.watching(api)
    fake.things = [raw("a", uid="a"), raw("b", uid="b")]

    async with relisting(watched):
        await watched.listed.wait()
        assert office.uids() == {"a", "b"}
        fake.things = [raw("b", uid="b")]
        await until(lambda: office.uids() == {"b"})


async def test_an_api_server_that_is_away_is_asked_again_and_nothing_is_taken_for_deleted(
    api: KubeApi, fake: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    office = Office()
    watched = office.watching(api)
    watched.changed("ADDED", raw("a", uid="a"))
    fake.things = [raw("a", uid="a")]
    away = status(503, "ServiceUnavailable", "the server is starting")
    fake.answers = [Answer(code=503, body=away)] * 5

    async with relisting(watched):
        await watched.listed.wait()

    assert "/trainruns cannot be read; retrying: the server is" in caplog.text
    assert len(caplog.records) == 1, "said once"
    assert office.uids() == {"a"}


async def test_where_namespaces_are_named_each_is_listed_and_a_run_of_any_is_known(
    api: KubeApi, fake: FakeApi
) -> None:
    office = Office()
    watched = office.watching(api, "one", "two")
    fake.things = [raw("a", uid="a")]

    async with relisting(watched):
        await watched.listed.wait()

    assert len(fake.of("list")) >= 2
    assert office.uids() == {"a"}


@pytest.mark.case("operator", "A watched namespace, a right or a CRD is missing")
async def test_a_namespace_that_refuses_hides_no_run_of_another_and_loses_none_of_its_own(
    api: KubeApi, fake: FakeApi
) -> None:
    """Nobody led anything, in no namespace, until the operator's values were edited."""
    office = Office()
    watched = office.watching(api, "team", "gone")
    elsewhere = raw("a", uid="a")
    elsewhere["metadata"]["namespace"] = "gone"
    watched.changed("ADDED", elsewhere)
    fake.things, fake.refuses = [raw("b", uid="b")], {"gone"}

    async with relisting(watched):
        await watched.listed.wait()
        assert office.uids() == {"a", "b"}
        assert watched.readable == {"team"}
        assert watched.knows("team")
        assert not watched.knows("gone"), "agents would be told that their run is gone"
        assert [it.trouble for it in watched.listings] == [
            "",
            "/apis/trainrun.dev/v1alpha1/namespaces/gone/trainruns is forbidden",
        ]
        fake.things = []
        await until(lambda: office.uids() == {"a"})

        fake.refuses = set()
        await until(lambda: watched.readable == {"team", "gone"})
        await until(lambda: not office.uids())

        fake.refuses = {"team", "gone"}
        await until(lambda: not watched.readable)
        assert watched.knows("team")


async def test_where_all_namespaces_refuse_nobody_says_that_all_is_listed(
    api: KubeApi, fake: FakeApi
) -> None:
    watched = Office().watching(api, "team", "gone")
    fake.refuses = {"team", "gone"}

    async with relisting(watched):
        await until(lambda: all(it.settled.is_set() for it in watched.listings))
        await asyncio.sleep(0.2)
        assert not watched.listed.is_set()
        fake.refuses = {"gone"}
        await watched.listed.wait()


async def test_one_run_of_ten_thousand_levels_is_refused_and_the_others_are_led(
    api: KubeApi, fake: FakeApi
) -> None:
    """It ended the operator, and each that took its place."""
    office = Office()
    watched = office.watching(api)
    template = raw()["spec"]["workers"]["template"]
    deep = raw("deep", uid="deep")
    deep["spec"]["workers"] = {"template": {"spec": {**template["spec"], "deep": "DEEP"}}}
    fake.text = json.dumps([deep, raw("well", uid="well")]).replace(
        '"DEEP"', "[" * 10_000 + "]" * 10_000
    )

    async with relisting(watched):
        await watched.listed.wait()

    assert office.max_failures() == [0]
    assert [event.reason for event in office.events] == ["InvalidSpec"]
    assert office.events[0].message == (
        "team/deep: 1 problem\n  spec.workers.template.spec.deep: is nested more than 100 levels "
        "deep"
    )


async def test_a_list_that_fails_in_a_way_nobody_foresaw_is_tried_again(
    api: KubeApi, fake: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    office = Office()
    watched = office.watching(api)
    fake.answers = [Answer(code=200, body={"odd": True})]
    fake.things = [raw("a", uid="a")]

    async with relisting(watched):
        await watched.listed.wait()

    assert "/trainruns: listing again" in caplog.text
    assert "KeyError" in caplog.text
    assert office.uids() == {"a"}


@pytest.mark.case("operator", "The status is lost or restored from a backup")
@pytest.mark.parametrize("after", [90, 1_000_000_000], ids=["plain", "under higher versions"])
async def test_after_a_restore_of_etcd_runs_are_led_from_what_was_restored(
    api: KubeApi, fake: FakeApi, after: int
) -> None:
    """They were frozen until the operator was started anew: each version that came was older."""
    office = Office()
    watched = office.watching(api, "team")
    fake.things = [raw(version=900, failurePolicy={"maxFailures": 9})]
    fake.version = 1000

    async with relisting(watched):
        await watched.listed.wait()
        fake.things = [raw(version=80, failurePolicy={"maxFailures": 8})]
        fake.version = after
        await until(lambda: office.max_failures() == [8])
        watched.changed("MODIFIED", raw(version=after + 1, failurePolicy={"maxFailures": 7}))
        assert office.max_failures() == [7]


async def test_when_a_watch_of_a_namespace_begins_that_namespace_is_listed(
    api: KubeApi, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has changed before is told by nobody."""
    monkeypatch.setattr(informer, "UNWATCHED", 3600.0)
    office = Office()
    watched = office.watching(api, "team", "other")
    async with relisting(watched):
        await watched.listed.wait()
        fake.things = [raw("a", uid="a")]
        path = "/k8s/apis/trainrun.dev/v1alpha1/namespaces/team/trainruns"
        watched.watched(path, good=True)
        await until(lambda: office.uids() == {"a"})

    assert len(fake.of("list")) == 3


async def test_where_no_watch_begins_lists_go_on(api: KubeApi, fake: FakeApi) -> None:
    """A role may allow to list and not to watch; kopf asks again and again."""
    watched = Office().watching(api)
    path = "/apis/trainrun.dev/v1alpha1/trainruns"
    async with relisting(watched):
        await watched.listed.wait()
        watched.watched(path, good=True)
        await until(lambda: len(fake.of("list")) >= 2)
        await asyncio.sleep(0.3)
        seen = len(fake.of("list"))
        await asyncio.sleep(0.3)
        assert len(fake.of("list")) == seen

        watched.watched(path, good=False)
        await until(lambda: len(fake.of("list")) > seen + 3)


async def test_who_begins_to_lead_waits_for_a_list_that_is_begun_then(
    api: KubeApi, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that the leader before has begun would look lost."""
    monkeypatch.setattr(informer, "UNWATCHED", 3600.0)
    watched = Office().watching(api)
    async with relisting(watched):
        await watched.listed.wait()
        watched.renew()
        fresh = asyncio.create_task(watched.fresh("team"))
        await asyncio.sleep(0)
        assert not fresh.done()
        await asyncio.wait_for(fresh, 30)

    assert len(fake.of("list")) == 2


async def test_a_list_that_is_older_than_what_the_watch_has_told_since_is_no_restored_backup(
    api: KubeApi, fake: FakeApi
) -> None:
    office = Office()
    watched = office.watching(api)
    fake.things, fake.version = [raw(version=90)], 100

    async with relisting(watched):
        await watched.listed.wait()
        watched.changed("MODIFIED", raw(version=101, failurePolicy={"maxFailures": 5}))
        seen = len(fake.of("list"))
        await until(lambda: len(fake.of("list")) > seen + 2)

    assert office.max_failures() == [5]
