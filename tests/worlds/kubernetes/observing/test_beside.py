"""Which containers beside the one that trains have ended badly."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.kubernetes.facts_of import fact
from tests.worlds.kubernetes.raw_objects import (
    Raw,
    a_node,
    deleted,
    disrupted,
    placed,
    status,
)

TRAINS = status(running={})
OVER = status(terminated={"exitCode": 0})
SEE = "see kubectl logs digits-0-1 -c pytorch"


def over(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def other(**state: Any) -> Raw:
    return status("pytorch", **state)


def again(code: int, reason: str = "Error", **state: Any) -> Raw:
    """The kubelet has started it anew."""
    return other(**state) | {"restartCount": 3, "lastState": over(code, reason)}


def pod(*statuses: Raw, init: tuple[Raw, ...] = (), **more: Any) -> Raw:
    return placed(*statuses, phase="Running", init=init, **more)


ENDED = f"container pytorch of worker digits-0-1 ended with exit code 1; {SEE}"
RESTARTED = (
    "container pytorch of worker digits-0-1 ended with exit code 1 and was restarted, 3 times so "
    f"far; {SEE} --previous"
)


@pytest.mark.case("nodes", "A container beside the training fails")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (pod(TRAINS, other(**over(1))), ENDED),
        (pod(OVER, other(**over(1))), ENDED),
        (pod(other(**over(1)), status(waiting={})), ENDED),
        (pod(TRAINS, other(**over(137, "OOMKilled"))), ENDED.replace("1;", "137 (OOMKilled);")),
        (pod(TRAINS, init=(again(1, running={}),)), RESTARTED),
        (pod(TRAINS, init=(again(1, waiting={"reason": "CrashLoopBackOff"}),)), RESTARTED),
    ],
)
def test_a_container_that_has_ended_badly_is_named_with_where_to_look(raw: Raw, text: str) -> None:
    assert fact(raw, a_node()).container_failure == text


DIED = pod(TRAINS, other(**over(143)))


@pytest.mark.parametrize(
    "raw",
    [
        pod(TRAINS, other(running={})),
        pod(TRAINS, other(**over(0, "Completed"))),
        pod(TRAINS, init=(other(**over(0, "Completed")),)),
        pod(TRAINS, init=(again(0, "Completed", running={}),)),
        deleted(DIED),
        disrupted(DIED, "EvictionByEvictionAPI"),
        pod(TRAINS, other(**over(143)), reason="Evicted"),
        pod(TRAINS, other(**over(137, "ContainerStatusUnknown"))),
        pod(OVER, init=(other(**over(143)),)),
        pod(status(terminated={"exitCode": 1}), TRAINS | {"name": "logs"}),
    ],
)
def test_what_ends_well_or_is_ended_with_its_pod_is_no_failure_of_a_container(raw: Raw) -> None:
    assert fact(raw, a_node()).container_failure == ""
