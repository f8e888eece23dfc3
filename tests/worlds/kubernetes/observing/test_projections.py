"""What is read of the API server's pods and nodes, also of odd ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.kubernetes.raw_objects import (
    NOW,
    RUN_UID,
    a_node,
    a_pod,
    a_seal,
    a_taint,
    before,
    deleted,
    disrupted,
    placed,
    running,
    status,
)
from trainrun_operator.worlds.kubernetes.observing.nodes import Taint, Toleration, node_fact
from trainrun_operator.worlds.kubernetes.observing.pods import pod_fact


def test_a_pod_is_known_by_its_labels_owner_and_seal() -> None:
    pod = pod_fact(a_pod())
    assert pod is not None
    assert (pod.namespace, pod.name, pod.uid) == ("team", "digits-0-1", "0b1d-pod")
    assert (pod.run_uid, pod.slot, pod.creation) == (RUN_UID, 0, 1)
    assert (pod.template_hash, pod.signature, pod.owner_uid) == ("abcdef012345", a_seal(), RUN_UID)
    assert (pod.phase, pod.node) == ("Pending", "")
    assert NOW - pod.created == timedelta(seconds=60)


def test_containers_conditions_and_deletion_are_read() -> None:
    raw = disrupted(deleted(running()), "EvictionByEvictionAPI", "drained", seconds=3)
    pod = pod_fact(raw)
    assert pod is not None
    worker = pod.container("worker")
    assert worker is not None
    assert (worker.state, worker.init) == ("Running", False)
    assert (pod.node, pod.grace) == ("n1", 30)
    assert pod.deletion == NOW + timedelta(seconds=20)
    assert pod.disruption is not None
    assert (pod.disruption.reason, pod.disruption.message) == ("EvictionByEvictionAPI", "drained")
    assert pod.disruption.since == NOW - timedelta(seconds=3)


def test_an_ended_container_brings_its_exit_code_and_its_last_words() -> None:
    detail = {"exitCode": 137, "signal": 9, "reason": "OOMKilled", "message": "last words\n"}
    pod = pod_fact(placed(status(terminated=detail), init=(status("setup", waiting={}),)))
    assert pod is not None
    setup, worker = pod.containers
    assert (setup.name, setup.init, setup.state) == ("setup", True, "Waiting")
    assert worker.exit_code == 137
    assert (worker.reason, worker.message) == ("OOMKilled", "last words")


def test_an_init_container_is_not_taken_for_the_one_that_trains() -> None:
    pod = pod_fact(placed(init=(status("worker", running={}),)))
    assert pod is not None
    assert pod.container("worker") is None


def test_an_endless_message_is_cut() -> None:
    pod = pod_fact(a_pod(status={"message": "x" * 100_000}))
    assert pod is not None
    assert len(pod.message) == 600


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("trainrun.dev/slot", None),
        ("trainrun.dev/slot", "-1"),
        ("trainrun.dev/slot", "٣"),
        ("trainrun.dev/creation", "1.5"),
        ("trainrun.dev/creation", "1234567890"),
        ("trainrun.dev/creation", 7),
        ("trainrun.dev/run-uid", ""),
    ],
)
def test_a_pod_with_odd_labels_is_no_worker(label: str, value: object) -> None:
    raw = a_pod()
    raw["metadata"]["labels"][label] = value
    assert pod_fact(raw) is None


def test_only_a_controller_owns_a_pod() -> None:
    raw = a_pod()
    raw["metadata"]["ownerReferences"][0]["controller"] = False
    pod = pod_fact(raw)
    assert pod is not None
    assert pod.owner_uid == ""


def test_a_node_is_read_without_what_changes_every_few_seconds() -> None:
    raw = a_node(
        a_taint("example.com/a", "b", "NoExecute", timeAdded=before(5)),
        ready="Unknown",
        spec={"unschedulable": True},
    )
    node = node_fact(raw)
    assert (node.name, node.ready) == ("n1", "Unknown")
    assert node.ready_message == "Kubelet stopped posting node status."
    assert node.unschedulable
    assert node.taints == (
        Taint(
            key="example.com/a",
            value="b",
            effect="NoExecute",
            added=NOW - timedelta(seconds=5),
        ),
    )
    assert node.deletion is None
    assert not node.deleted
    assert node.as_gone().deleted
    raw["metadata"]["resourceVersion"] = "100"
    raw["status"]["conditions"][1]["lastHeartbeatTime"] = before(1)
    assert node_fact(raw) == node


def test_a_node_that_has_not_said_anything_yet_is_not_ready() -> None:
    node = node_fact({"metadata": {"name": "n9", "deletionTimestamp": before(4)}})
    assert node.ready == "Unknown"
    assert node.deletion == NOW - timedelta(seconds=4)


def test_times_of_any_spelling_are_read_as_utc() -> None:
    node = node_fact({"metadata": {"name": "n1", "deletionTimestamp": "2026-05-01T14:00:00+02:00"}})
    assert node.deletion == NOW
    node = node_fact({"metadata": {"name": "n1", "deletionTimestamp": "2026-05-01T12:00:00"}})
    assert node.deletion == NOW
    assert node_fact({"metadata": {"deletionTimestamp": "yesterday"}}).deletion is None


def test_tolerations_are_read() -> None:
    raw = a_pod(spec={"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b"}]})
    pod = pod_fact(raw)
    assert pod is not None
    assert pod.tolerations == (Toleration(exists=True), Toleration(key="a", value="b"))


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def replaced(raw: dict[str, Any], path: list[int], value: object) -> object:
    """The object with one value, chosen by `path`, replaced."""
    if not path or not isinstance(raw, dict | list) or not raw:
        return value
    keys: list[Any] = sorted(raw) if isinstance(raw, dict) else list(range(len(raw)))
    key = keys[path[0] % len(keys)]
    copied: Any = dict(raw) if isinstance(raw, dict) else list(raw)
    copied[key] = replaced(raw[key], path[1:], value)
    return copied


@settings(deadline=None)
@given(path=st.lists(st.integers(0, 20), min_size=1, max_size=6), value=JSON)
def test_no_object_however_odd_ends_a_watch(path: list[int], value: object) -> None:
    pod = disrupted(deleted(running()), "EvictionByEvictionAPI")
    node = a_node(a_taint("a", "b"))
    for raw, project in ((pod, pod_fact), (node, node_fact)):
        odd = replaced(raw, path, value)
        if isinstance(odd, dict):
            project(odd)
