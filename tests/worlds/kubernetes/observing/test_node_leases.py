"""Leases of nodes, in a real API server: whose kubelet has not renewed them for too long."""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest_asyncio

from tests.support.fake_clock import FakeClock
from trainrun_operator.kube.errors import AlreadyExists
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeLeases

if TYPE_CHECKING:
    from trainrun_operator.kube.api import KubeApi

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DURATION = 40


@pytest_asyncio.fixture
async def node(api: KubeApi) -> str:
    """The name of a node that renews its Lease when the test says so."""
    with contextlib.suppress(AlreadyExists):
        await api.post("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
    name = f"n-{secrets.token_hex(4)}"
    spec = {"leaseDurationSeconds": DURATION, "renewTime": renewal()}
    await api.post(LEASES, {"metadata": {"name": name}, "spec": spec})
    return name


async def renew(api: KubeApi, node: str) -> None:
    lease = await api.get(f"{LEASES}/{node}")
    spec = {**lease["spec"], "renewTime": renewal()}
    await api.put(f"{LEASES}/{node}", {**lease, "spec": spec})


def renewal() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_a_lease_that_two_renewals_have_missed_is_stale(api: KubeApi, node: str) -> None:
    clock = FakeClock()
    leases = NodeLeases(api, clock)
    assert await leases.stale({node}) == {}

    clock.now = DURATION / 2
    assert await leases.stale({node}) == {}

    clock.now = DURATION / 2 + 1
    assert await leases.stale({node}) == {node: timedelta(seconds=DURATION / 2 + 1)}


async def test_a_node_that_renews_its_lease_again_is_well(api: KubeApi, node: str) -> None:
    clock = FakeClock()
    leases = NodeLeases(api, clock)
    await leases.stale({node})
    clock.now = 30
    assert node in await leases.stale({node})

    await renew(api, node)

    clock.now = 32
    assert await leases.stale({node}) == {}


async def test_a_run_that_is_well_does_not_make_another_forget_a_dead_node(
    api: KubeApi, node: str
) -> None:
    clock = FakeClock()
    of_one, of_another = NodeLeases(api, clock), NodeLeases(api, clock)
    await of_one.stale({node})

    clock.now = 30
    assert await of_another.stale(set()) == {}

    assert node in await of_one.stale({node})


async def test_a_lease_does_not_grow_older_while_nobody_can_be_asked(
    api: KubeApi, node: str
) -> None:
    clock = FakeClock()
    leases = NodeLeases(api, clock)
    await leases.stale({node})
    await api.delete(f"{LEASES}/{node}")

    clock.now = 100
    assert await leases.stale({node}) == {}


async def test_a_node_is_asked_about_once_a_second(api: KubeApi, node: str) -> None:
    calls: list[str] = []
    api.observe_call = lambda verb, _code: calls.append(verb)
    clock = FakeClock()
    leases = NodeLeases(api, clock)
    for moment in (0.0, 0.4, 0.8, 1.2, 1.6):
        clock.now = moment
        await leases.stale({node})
    assert calls == ["get", "get"]


async def test_a_node_without_a_lease_is_asked_about_every_ten_seconds(api: KubeApi) -> None:
    """While a run of 1,000 started, 895 requests asked for Leases that were not there."""
    calls: list[str] = []
    api.observe_call = lambda verb, _code: calls.append(verb)
    clock = FakeClock()
    leases = NodeLeases(api, clock)
    for moment in (0.0, 1.0, 9.0):
        clock.now = moment
        assert await leases.stale({"nobody"}) == {}
        assert await leases.stale(set()) == {}
    assert calls == ["get"]
    clock.now = 10.0
    await leases.stale({"nobody"})
    assert calls == ["get", "get"]
