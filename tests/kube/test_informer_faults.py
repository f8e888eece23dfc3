"""An informer whose API server misbehaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.kube.fake_api import Answer, status, thing
from tests.kube.objects import Colored, colors_told
from tests.kube.waiting import until
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import Informer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kube.fake_api import FakeApi, Raw


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainrun_operator.kube.informer.SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr("trainrun_operator.kube.informer.LONGEST_PAUSE", 0.05)


class Following:
    """An informer at work, and what it told."""

    def __init__(self, api: KubeApi) -> None:
        self.changes: list[tuple[Colored | None, Colored | None]] = []
        self.informer: Informer[Colored] = Informer(
            api,
            path="/things",
            params={"labelSelector": "ours"},
            project=lambda raw: (raw["metadata"]["name"], raw["color"]),
            key=lambda item: item[0],
            on_change=self._changed,
        )

    @property
    def colors(self) -> dict[str, str]:
        return colors_told(self.changes)

    def _changed(self, before: Colored | None, after: Colored | None) -> None:
        self.changes.append((before, after))
        if after is not None and after[1] == "poison":
            raise RuntimeError("a listener that fails")


@pytest_asyncio.fixture
async def following(fake: FakeApi) -> AsyncIterator[Following]:
    """Its first list is a red `a`, and its watch is open."""
    fake.things = [thing("a", 1, color="red")]
    api = await KubeApi.connect()
    following = Following(api)
    following.informer.follow()
    task = asyncio.create_task(following.informer.run())
    await until(lambda: fake.watching)
    yield following
    assert not task.done(), "an informer never ends"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()


def changed(name: str, version: int, color: str) -> Raw:
    return thing(name, version, color=color)


async def test_it_watches_from_its_list_on_with_bookmarks_and_an_end(
    fake: FakeApi, following: Following
) -> None:
    [params] = fake.of("watch")

    assert 240 <= int(params.pop("timeoutSeconds")) <= 360
    assert params == {
        "labelSelector": "ours",
        "watch": "1",
        "resourceVersion": "100",
        "allowWatchBookmarks": "true",
    }
    assert following.informer.synced.is_set()


async def test_a_watch_that_ended_goes_on_from_the_last_bookmark(
    fake: FakeApi, following: Following
) -> None:
    await fake.bookmark(150)
    await fake.end()
    await until(lambda: len(fake.of("watch")) == 2)

    assert fake.of("watch")[1]["resourceVersion"] == "150"
    assert len(fake.of("list")) == 1


async def test_a_broken_connection_goes_on_from_the_last_event(
    fake: FakeApi, following: Following
) -> None:
    await fake.emit("MODIFIED", changed("a", 120, "blue"))
    await until(lambda: following.colors == {"a": "blue"})
    await fake.cut()
    await until(lambda: fake.watching)

    assert fake.of("watch")[1]["resourceVersion"] == "120"
    assert len(fake.of("list")) == 1


async def test_an_event_that_was_cut_in_the_middle_is_asked_for_again(
    fake: FakeApi, following: Following
) -> None:
    await fake.write(b'{"type": "MODIFIED", "object": {"metadata": {"na')
    await fake.cut()
    await until(lambda: fake.watching)
    await fake.emit("MODIFIED", changed("a", 120, "blue"))

    await until(lambda: following.colors == {"a": "blue"})


@pytest.mark.parametrize("where", ["as an event", "as the answer"])
async def test_lost_history_leads_to_a_list_that_tells_the_deletions(
    fake: FakeApi, following: Following, where: str
) -> None:
    fake.things, fake.version = [changed("b", 190, "green")], 200
    expired = status(410, "Expired", "too old resource version: 100 (190)")
    if where == "as an event":
        await fake.emit("ERROR", expired)
    else:
        fake.answers = [Answer(code=410, body=expired)]
        await fake.end()
    await until(lambda: len(fake.of("list")) == 2 and fake.watching)

    assert following.changes[1:] == [(("a", "red"), None), (None, ("b", "green"))]
    assert fake.of("watch")[-1]["resourceVersion"] == "200"


async def test_another_error_in_the_stream_does_not_end_it(
    fake: FakeApi, following: Following
) -> None:
    await fake.emit("ERROR", status(500, "InternalError", "etcdserver: leader changed"))
    await until(lambda: len(fake.of("watch")) == 2 and fake.watching)
    await fake.emit("MODIFIED", changed("a", 120, "blue"))

    await until(lambda: following.colors == {"a": "blue"})


async def test_errors_without_end_lead_to_a_list(fake: FakeApi, following: Following) -> None:
    future = status(504, "Timeout", "Too large resource version: 100, current: 3")
    fake.answers = [Answer(code=504, body=future) for _ in range(3)]
    await fake.cut()

    await until(lambda: len(fake.of("list")) == 2)


async def test_a_watch_that_is_silent_is_begun_again(
    fake: FakeApi, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.api.SILENCE_TIMEOUT", 0.1)
    await fake.end()

    await until(lambda: len(fake.of("watch")) == 4)
    assert len(fake.of("list")) <= 2


async def test_a_restored_backup_is_believed(fake: FakeApi, following: Following) -> None:
    fake.things, fake.version = [thing("a", 1, color="as it was")], 50
    await fake.emit("ERROR", status(410, "Expired", "too old"))

    await until(lambda: following.colors == {"a": "as it was"})


async def test_an_object_that_cannot_be_read_does_not_hide_the_others(
    fake: FakeApi, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await fake.emit("ADDED", thing("b", 110))
    await fake.emit("ADDED", changed("c", 111, "green"))

    await until(lambda: following.colors == {"a": "red", "c": "green"})
    assert "/things: b cannot be read" in caplog.text


async def test_a_listener_that_fails_does_not_stop_the_watch(
    fake: FakeApi, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await fake.emit("ADDED", changed("b", 110, "poison"))
    await fake.emit("ADDED", changed("c", 111, "green"))

    await until(lambda: "c" in following.colors)
    assert "/things: a change could not be processed" in caplog.text


async def test_the_first_list_is_tried_until_it_succeeds(fake: FakeApi) -> None:
    fake.answers = [
        Answer(code=503, body=status(503, "ServiceUnavailable", "not yet")) for _ in range(4)
    ]
    api = await KubeApi.connect()
    following = Following(api)
    task = asyncio.create_task(following.informer.run())

    await until(following.informer.synced.is_set)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()


async def test_a_list_that_is_refused_is_told_once_and_a_refusal_is_heard(
    fake: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    """A namespace that is gone made the process look dead, and the kubelet end it."""
    now = 0.0
    api = await KubeApi.connect()
    informer: Informer[Colored] = Informer(
        api,
        path="/api/v1/namespaces/team/things",
        params={},
        project=lambda raw: (raw["metadata"]["name"], raw["color"]),
        key=lambda item: item[0],
        on_change=lambda _before, _after: None,
        clock=lambda: now,
    )
    informer.follow()
    fake.refuses = {"team"}
    task = asyncio.create_task(informer.run())
    await until(informer.listing.settled.is_set)
    assert informer.listing.trouble == "/api/v1/namespaces/team/things is forbidden"
    assert not informer.synced.is_set()
    now = 1000.0
    asked = len(fake.of("list"))
    await until(lambda: len(fake.of("list")) > asked + 3)
    assert informer.silent_for() == 0.0
    assert len([it for it in caplog.records if "is forbidden" in it.message]) == 1

    fake.refuses = set()
    await until(informer.synced.is_set)
    assert not informer.listing.trouble
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()


async def test_it_lists_once_and_lists_again_and_watches_once_it_is_to_follow(
    fake: FakeApi,
) -> None:
    fake.things = [thing("a", 1, color="red")]
    api = await KubeApi.connect()
    following = Following(api)
    task = asyncio.create_task(following.informer.run())
    await until(following.informer.synced.is_set)
    fake.things = [thing("b", 2, color="blue")]

    following.informer.follow()
    assert not following.informer.synced.is_set()
    assert fake.of("watch") == []
    await until(lambda: fake.watching)

    assert following.informer.synced.is_set()
    assert following.colors == {"b": "blue"}
    assert len(fake.of("list")) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()


async def test_it_knows_how_long_it_has_heard_nothing(fake: FakeApi) -> None:
    now = 0.0
    api = await KubeApi.connect()
    informer: Informer[Colored] = Informer(
        api,
        path="/things",
        params={},
        project=lambda raw: (raw["metadata"]["name"], ""),
        key=lambda item: item[0],
        on_change=lambda _old, _new: None,
        clock=lambda: now,
    )
    task = asyncio.create_task(informer.run())
    await until(informer.synced.is_set)
    now = 1000.0
    assert informer.silent_for() == 0.0, "nothing is to be heard before it follows"

    informer.follow()
    await until(lambda: fake.watching)
    now = 1060.0
    assert informer.silent_for() == 60.0

    await fake.bookmark(150)
    await until(lambda: informer.silent_for() == 0.0)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()


async def test_an_answer_of_an_unknown_shape_does_not_end_it(
    fake: FakeApi, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    fake.answers = [
        Answer(code=410, body=status(410, "Expired", "too old")),
        Answer(code=200, body={}),
    ]
    await fake.end()
    await until(lambda: len(fake.of("list")) == 3 and fake.watching)

    assert "/things: listing again" in caplog.text
    assert following.colors == {"a": "red"}
