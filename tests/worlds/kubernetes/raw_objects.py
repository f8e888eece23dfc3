"""Pods and nodes as an API server writes them, for tests of what is read from them.

Small builders over realistic JSON: every function returns a new object, and `|` of changes is left
to the tests.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from trainrun_operator.worlds.kubernetes.observing.pods import signature_of

Raw = dict[str, Any]

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
RUN_UID = "6f3c1a2e-run"
SEAL_KEY = b"only the operator has it"


def before(seconds: float) -> str:
    """The time so many seconds before NOW, as the API server writes it."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def after(seconds: float) -> str:
    return before(-seconds)


def a_seal(*, name: str = "digits-0-1", slot: int = 0, creation: int = 1) -> str:
    """Of a pod of `a_pod`'s run."""
    return signature_of(
        SEAL_KEY,
        namespace="team",
        name=name,
        run_uid=RUN_UID,
        slot=slot,
        creation=creation,
        template_hash="abcdef012345",
    )


def a_pod(**changes: Any) -> Raw:
    """A pod that was created a minute ago and has not been placed."""
    pod: Raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-0-1",
            "namespace": "team",
            "uid": "0b1d-pod",
            "resourceVersion": "4711",
            "creationTimestamp": before(60),
            "labels": {
                "app.kubernetes.io/managed-by": "trainrun",
                "trainrun.dev/run": "digits",
                "trainrun.dev/run-uid": RUN_UID,
                "trainrun.dev/slot": "0",
                "trainrun.dev/creation": "1",
                "trainrun.dev/template-hash": "abcdef012345",
            },
            "annotations": {"trainrun.dev/signature": a_seal()},
            "ownerReferences": [
                {
                    "apiVersion": "trainrun.dev/v1alpha1",
                    "kind": "TrainRun",
                    "name": "digits",
                    "uid": RUN_UID,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "containers": [{"name": "worker", "image": "registry.example.com/digits:1"}],
            "tolerations": [
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }
    for part, values in changes.items():
        pod[part].update(copy.deepcopy(values))
    return pod


def placed(*statuses: Raw, phase: str = "Pending", init: tuple[Raw, ...] = (), **more: Any) -> Raw:
    """A pod on node n1, with these container statuses; `more` goes into its status."""
    pod = a_pod()
    pod["spec"]["nodeName"] = "n1"
    pod["status"] |= {
        "phase": phase,
        "podIP": "10.1.2.3",
        "conditions": [condition("PodScheduled", "True", seconds=50)],
        "initContainerStatuses": list(init),
        "containerStatuses": list(statuses),
    } | more
    return pod


def running() -> Raw:
    """A pod whose container trains."""
    return placed(status(running={"startedAt": before(40)}), phase="Running")


def ended(phase: str = "Failed", **terminated: Any) -> Raw:
    """A pod whose container has ended five seconds ago."""
    detail = {"exitCode": 1, "reason": "Error", "startedAt": before(40), "finishedAt": before(5)}
    return placed(status(terminated=detail | terminated), phase=phase)


def status(name: str = "worker", **state: Raw) -> Raw:
    """The status of one container: `running={...}`, `waiting={...}` or `terminated={...}`."""
    return {"name": name, "ready": "running" in state, "restartCount": 0, "state": state}


def condition(
    kind: str, value: str, *, reason: str = "", message: str = "", seconds: float = 0
) -> Raw:
    """A condition that changed so many seconds ago."""
    found = {"type": kind, "status": value, "lastTransitionTime": before(seconds)}
    return (
        found | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})
    )


def disrupted(pod: Raw, reason: str, message: str = "", *, seconds: float = 2) -> Raw:
    """The pod with the condition DisruptionTarget."""
    pod = copy.deepcopy(pod)
    pod["status"].setdefault("conditions", []).append(
        condition("DisruptionTarget", "True", reason=reason, message=message, seconds=seconds)
    )
    return pod


def deleted(pod: Raw, *, ago: float = 10, grace: int = 30) -> Raw:
    """The pod after somebody asked for its deletion."""
    pod = copy.deepcopy(pod)
    pod["metadata"]["deletionTimestamp"] = after(grace - ago)
    pod["metadata"]["deletionGracePeriodSeconds"] = grace
    return pod


def tolerating(pod: Raw, **toleration: Any) -> Raw:
    pod = copy.deepcopy(pod)
    pod["spec"]["tolerations"].append(toleration)
    return pod


def a_node(*taints: Raw, ready: str = "True", **changes: Any) -> Raw:
    """Node n1, Ready for an hour; with another `ready` since 30 seconds."""
    node: Raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "uid": "9a-node", "resourceVersion": "99", "labels": {}},
        "spec": {"podCIDR": "10.1.2.0/24", "taints": list(taints)},
        "status": {
            "conditions": [
                condition("MemoryPressure", "False", seconds=3600),
                condition(
                    "Ready",
                    ready,
                    reason="KubeletReady" if ready == "True" else "NodeStatusUnknown",
                    message=(
                        "kubelet is posting ready status"
                        if ready == "True"
                        else "Kubelet stopped posting node status."
                    ),
                    seconds=3600 if ready == "True" else 30,
                ),
            ]
        },
    }
    for part, values in changes.items():
        node[part].update(values)
    return node


def a_taint(key: str, value: str = "", effect: str = "NoSchedule", **more: Any) -> Raw:
    return {"key": key, "effect": effect} | ({"value": value} if value else {}) | more
