"""An informer and a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.kube.objects import Colored, colors_told, config_map, config_maps
from tests.kube.patching import patch
from tests.kube.waiting import until
from trainrun_operator.kube.errors import Unavailable
from trainrun_operator.kube.informer import Informer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kube.api_server import ApiServer
    from trainrun_operator.kube.api import KubeApi


OURS = {"ours": "yes"}


def colored(name: str, color: str) -> dict[str, Any]:
    return config_map(name, labels=OURS, color=color)


class Following:
    def __init__(self, api: KubeApi, namespace: str) -> None:
        self.changes: list[tuple[Colored | None, Colored | None]] = []
        self.informer: Informer[Colored] = Informer(
            api,
            path=config_maps(namespace),
            params={"labelSelector": "ours=yes"},
            project=lambda raw: (raw["metadata"]["name"], raw["data"]["color"]),
            key=lambda item: item[0],
            on_change=lambda old, new: self.changes.append((old, new)),
        )
        self.informer.follow()
        self.task = asyncio.create_task(self.informer.run())

    @property
    def colors(self) -> dict[str, str]:
        return colors_told(self.changes)


@pytest_asyncio.fixture
async def following(api: KubeApi, namespace: str) -> AsyncIterator[Following]:
    following = Following(api, namespace)
    await until(following.informer.synced.is_set)
    yield following
    following.task.cancel()
    await asyncio.gather(following.task, return_exceptions=True)


async def test_it_follows_what_is_created_changed_and_deleted(
    api: KubeApi, namespace: str, following: Following
) -> None:
    await api.post(config_maps(namespace), colored("a", "red"))
    await patch(api, config_maps(namespace, "a"), {"data": {"other": "thing"}})
    await patch(api, config_maps(namespace, "a"), {"data": {"color": "blue"}})
    await api.delete(config_maps(namespace, "a"))

    red, blue = ("a", "red"), ("a", "blue")
    await until(lambda: following.changes == [(None, red), (red, blue), (blue, None)])


async def test_what_is_there_already_is_read_in_parts(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.api.PAGE", 2)
    for number in range(5):
        await api.post(config_maps(namespace), colored(f"m{number}", "red"))

    following = Following(api, namespace)
    await until(following.informer.synced.is_set)

    assert len(following.colors) == 5
    following.task.cancel()
    await asyncio.gather(following.task, return_exceptions=True)


async def test_our_own_write_is_known_at_once_and_told_once(
    api: KubeApi, namespace: str, following: Following
) -> None:
    following.informer.learn(await api.post(config_maps(namespace), colored("a", "red")))
    assert following.colors == {"a": "red"}

    following.informer.learn(await api.post(config_maps(namespace), colored("b", "red")))
    await api.post(config_maps(namespace), colored("last", "red"))
    await until(lambda: "last" in following.colors)
    assert [after[0] for _, after in following.changes if after] == ["a", "b", "last"]


async def test_our_own_deletion_is_known_at_once_and_told_once(
    api: KubeApi, namespace: str, following: Following
) -> None:
    made = await api.post(config_maps(namespace), colored("a", "red"))
    following.informer.learn(made)
    await api.delete(config_maps(namespace, "a"))
    following.informer.forget(made["metadata"]["uid"])
    assert following.colors == {}

    await api.post(config_maps(namespace), colored("last", "red"))
    await until(lambda: "last" in following.colors)
    assert following.changes[:2] == [(None, ("a", "red")), (("a", "red"), None)]
    assert len(following.changes) == 3


async def test_what_loses_its_label_is_gone_and_comes_back_with_it(
    api: KubeApi, namespace: str, following: Following
) -> None:
    await api.post(config_maps(namespace), colored("a", "red"))
    await until(lambda: following.colors)
    await patch(api, config_maps(namespace, "a"), {"metadata": {"labels": {"ours": None}}})
    await until(lambda: not following.colors)
    await patch(api, config_maps(namespace, "a"), {"metadata": {"labels": OURS}})
    await until(lambda: following.colors == {"a": "red"})


async def test_it_goes_on_after_a_restart_of_the_api_server(
    api: KubeApi, apiserver: ApiServer, namespace: str, following: Following
) -> None:
    await api.post(config_maps(namespace), colored("a", "red"))
    await until(lambda: following.colors == {"a": "red"})
    apiserver.kill()
    with pytest.raises(Unavailable):
        await api.get(config_maps(namespace))
    apiserver.start()
    await api.post(config_maps(namespace), colored("b", "blue"))

    await until(lambda: following.colors == {"a": "red", "b": "blue"})


async def test_a_deletion_that_nobody_saw_is_told_after_the_history_was_lost(
    api: KubeApi, apiserver: ApiServer, namespace: str, following: Following
) -> None:
    await api.post(config_maps(namespace), colored("stays", "red"))
    await api.post(config_maps(namespace), colored("goes", "red"))
    await until(lambda: len(following.colors) == 2)
    # A cut network: everything the informer does fails, and its watch is broken.
    following.task.cancel()
    await asyncio.gather(following.task, return_exceptions=True)
    await api.delete(config_maps(namespace, "goes"))
    await api.post(config_maps(namespace), colored("came", "red"))
    apiserver.forget_history()

    following.task = asyncio.create_task(following.informer.run())

    await until(lambda: set(following.colors) == {"stays", "came"})
    assert (("goes", "red"), None) in following.changes
