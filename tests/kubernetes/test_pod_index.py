"""The index of pods and nodes, told what informers would tell it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from tests.kubernetes.raw_objects import RUN_UID, a_node, a_pod, running
from trainrun_operator.worlds.kubernetes.api import KubeApi
from trainrun_operator.worlds.kubernetes.pod_index import PodIndex

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kubernetes.fake_api import FakeApi
    from tests.kubernetes.raw_objects import Raw


class Watched:
    """An index, what changes there, and whom it woke."""

    def __init__(self, api: KubeApi, *namespaces: str) -> None:
        self.woken: list[str] = []
        self.index = PodIndex(api, namespaces=namespaces, nodes=True, on_change=self.woken.append)

    def node_came(self, node: Raw) -> None:
        self.index.informers[-1].learn(node)

    def node_went(self, node: Raw) -> None:
        self.index.informers[-1].forget(node["metadata"]["name"], node["metadata"]["uid"])

    def pod_went(self, name: str) -> None:
        pod = self.index.find("team", name)
        assert pod is not None
        self.index.forget(pod)


@pytest_asyncio.fixture
async def api(fake: FakeApi) -> AsyncIterator[KubeApi]:
    """Never called."""
    connected = await KubeApi.connect()
    yield connected
    await connected.close()


def renamed(pod: Raw, name: str, **metadata: Any) -> Raw:
    pod = copy.deepcopy(pod)
    pod["metadata"] |= {"name": name, "uid": f"uid-of-{name}", **metadata}
    return pod


async def test_a_pod_is_found_by_its_name_and_by_its_run(api: KubeApi) -> None:
    watched = Watched(api)

    assert watched.index.learn(a_pod())

    assert watched.woken == [RUN_UID]
    found = watched.index.find("team", "digits-0-1")
    assert found is not None
    assert watched.index.of(RUN_UID) == (found,)
    assert watched.index.find("other", "digits-0-1") is None
    watched.pod_went("digits-0-1")
    assert watched.index.of(RUN_UID) == ()
    assert watched.woken == [RUN_UID, RUN_UID]


async def test_a_pod_in_a_namespace_that_nobody_watches_is_not_known(api: KubeApi) -> None:
    watched = Watched(api, "team")

    assert watched.index.learn(a_pod())
    assert not watched.index.learn(renamed(a_pod(), "digits-1-1", namespace="other"))

    assert watched.index.find("other", "digits-1-1") is None
    assert [pod.name for pod in watched.index.of(RUN_UID)] == ["digits-0-1"]


async def test_what_has_not_the_labels_of_a_worker_is_none_of_ours(api: KubeApi) -> None:
    watched = Watched(api)

    assert not watched.index.learn(renamed(a_pod(), "stranger", labels={}))

    assert watched.index.find("team", "stranger") is None
    assert watched.woken == []


async def test_a_deleted_node_is_known_as_it_was_while_a_pod_of_ours_is_on_it(
    api: KubeApi,
) -> None:
    watched = Watched(api)
    watched.index.learn(running())
    watched.index.learn(renamed(running(), "digits-1-1"))
    watched.node_came(a_node(ready="Unknown"))

    watched.node_went(a_node())

    gone = watched.index.node("n1")
    assert gone is not None
    assert (gone.deleted, gone.ready) == (True, "Unknown")
    watched.pod_went("digits-0-1")
    assert watched.index.node("n1") == gone
    watched.pod_went("digits-1-1")
    assert watched.index.node("n1") is None


async def test_a_deleted_node_without_a_pod_of_ours_is_not_remembered(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(a_pod())
    watched.node_came(a_node())

    watched.node_went(a_node())

    assert watched.index.node("n1") is None


async def test_a_node_that_comes_back_under_its_name_is_the_new_one(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(running())
    watched.node_came(a_node())
    watched.node_went(a_node())

    watched.node_came(a_node(metadata={"uid": "another", "resourceVersion": "120"}))

    back = watched.index.node("n1")
    assert back is not None
    assert not back.deleted
