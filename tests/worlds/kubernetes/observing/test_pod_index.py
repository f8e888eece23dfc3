"""The index of pods and nodes, told what informers would tell it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.worlds.kubernetes.raw_objects import (
    RUN_UID,
    SEAL_KEY,
    a_node,
    a_pod,
    a_seal,
    ended,
    running,
)
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.worlds.kubernetes.names import SIGNATURE_ANNOTATION, SLOT_LABEL
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import is_ours

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kube.fake_api import FakeApi
    from tests.worlds.kubernetes.raw_objects import Raw


class Watched:
    """An index, what changes there, and whom it woke."""

    def __init__(self, api: KubeApi, *namespaces: str) -> None:
        self.woken: list[str] = []
        self.index = PodIndex(
            api,
            namespaces=namespaces,
            nodes=True,
            signed=lambda pod: is_ours(pod, pod.run_uid, SEAL_KEY),
            on_change=self.woken.append,
        )

    def node_came(self, node: Raw) -> None:
        self.index.informers[-1].learn(node)

    def node_went(self, node: Raw) -> None:
        self.index.informers[-1].forget(node["metadata"]["uid"])

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


def of_slot_1(pod: Raw) -> Raw:
    """The pod as that of slot 1 of the same run."""
    pod = renamed(pod, "digits-1-1")
    pod["metadata"]["labels"][SLOT_LABEL] = "1"
    pod["metadata"]["annotations"][SIGNATURE_ANNOTATION] = a_seal(name="digits-1-1", slot=1)
    return pod


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


async def test_a_worker_that_is_marked_again_is_not_missed(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(renamed(a_pod(), "digits-0-1"))
    watched.index.learn(renamed(a_pod(), "digits-0-1", labels={}, resourceVersion="100008"))
    assert [pod.name for pod in watched.index.vanished(RUN_UID)] == ["digits-0-1"]

    watched.index.learn(renamed(a_pod(), "digits-0-1", resourceVersion="100009"))

    assert [pod.name for pod in watched.index.of(RUN_UID)] == ["digits-0-1"]
    assert watched.index.vanished(RUN_UID) == ()


@pytest.mark.case("strangers", "A pod in another namespace has a worker's labels")
async def test_a_pod_of_another_namespace_hides_no_worker_and_is_none(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(running())

    watched.index.learn(renamed(ended(), "digits-0-1", namespace="other"))

    (worker,) = watched.index.of(RUN_UID)
    assert (worker.namespace, worker.phase) == ("team", "Running")
    assert [pod.namespace for pod in watched.index.foreign_pods(RUN_UID)] == ["other"]
    assert watched.woken == [RUN_UID], "nobody can wake a run by what he does to pods of his own"


async def test_a_copy_of_a_worker_is_no_worker(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(running())

    watched.index.learn(renamed(ended(), "digits-0-1-copy"))

    assert [pod.name for pod in watched.index.of(RUN_UID)] == ["digits-0-1"]
    assert [pod.name for pod in watched.index.foreign_pods(RUN_UID)] == ["digits-0-1-copy"]
    copy = watched.index.find("team", "digits-0-1-copy")
    assert copy is not None, "its agent is refused for what it is"
    watched.index.forget(copy)
    assert watched.index.foreign_pods(RUN_UID) == ()
    assert watched.woken == [RUN_UID]


async def test_a_pod_whose_seal_was_taken_away_is_no_worker_any_more(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(running())
    without = running()
    without["metadata"] |= {"annotations": {}, "resourceVersion": "4712"}

    watched.index.learn(without)

    assert watched.index.of(RUN_UID) == ()
    assert len(watched.index.foreign_pods(RUN_UID)) == 1
    assert watched.woken == [RUN_UID, RUN_UID]


async def test_a_deleted_node_is_known_as_it_was_while_a_pod_on_it_changes(api: KubeApi) -> None:
    watched = Watched(api)
    watched.index.learn(running())
    watched.node_came(a_node())
    watched.node_went(a_node())
    later = ended()
    later["metadata"]["resourceVersion"] = "4712"

    watched.index.learn(later)

    gone = watched.index.node("n1")
    assert gone is not None
    assert gone.deleted


async def test_a_deleted_node_is_known_as_it_was_while_a_pod_of_ours_is_on_it(
    api: KubeApi,
) -> None:
    watched = Watched(api)
    watched.index.learn(running())
    watched.index.learn(of_slot_1(running()))
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
