"""Where contenders for a Lease can be reached, as the Lease tells it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.kube.patching import patch
from tests.kube.waiting import until
from trainrun_operator.kube.lease import (
    ANNOTATION,
    DURATION,
    MAX_ADDRESSES,
    Lease,
    addresses_in,
    boot_time,
    with_contender,
    with_holder,
    without_contender,
)

if TYPE_CHECKING:
    import pytest

    from trainrun_operator.kube.api import KubeApi

EMPTY: dict[str, Any] = {"metadata": {"name": "leader"}}


def test_the_holder_stands_first_and_who_came_later_before_who_came_earlier() -> None:
    lease = with_contender(with_contender(with_holder(EMPTY, "a:1"), "b:1"), "c:1")
    assert addresses_in(lease) == ("a:1", "c:1", "b:1")
    assert addresses_in(with_holder(lease, "b:1")) == ("b:1", "a:1", "c:1")
    assert addresses_in(without_contender(lease, "a:1")) == ("c:1", "b:1")


def test_who_is_in_it_or_cannot_be_reached_changes_nothing() -> None:
    lease = with_holder(EMPTY, "a:1")
    assert with_contender(lease, "a:1") is lease
    assert with_contender(lease, "") is lease
    assert addresses_in(with_holder(EMPTY, "")) == ()


def test_those_that_came_first_are_forgotten_first() -> None:
    lease = with_holder(EMPTY, "holder:1")
    for number in range(20):
        lease = with_contender(lease, f"10.0.0.{number}:1")
    assert len(addresses_in(lease)) == MAX_ADDRESSES
    assert addresses_in(lease)[:2] == ("holder:1", "10.0.0.19:1")


def test_what_cannot_be_an_address_is_not_told() -> None:
    text = "10.0.0.1:8443,a b,,x\r\nSet-Cookie: y,[fd00::1]:8443"
    lease = {"metadata": {"annotations": {ANNOTATION: text}}}
    assert addresses_in(lease) == ("10.0.0.1:8443", "[fd00::1]:8443")


# ------------------------------------------------------------------ with a real API server


def contender(api: KubeApi, namespace: str, name: str, **more: Any) -> Lease:
    address = f"{name}:8443"
    return Lease(
        api=api, namespace=namespace, name="leader", identity=name, address=address, **more
    )


async def test_the_leader_and_a_standby_know_of_each_other(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.lease.RENEW_EVERY", 0.05)
    monkeypatch.setattr("trainrun_operator.kube.lease.RETRY", 0.05)
    first, second = contender(api, namespace, "first"), contender(api, namespace, "second")
    await first.acquire()
    assert first.addresses == ("first:8443",)
    keeping = asyncio.create_task(first.keep())
    waiting = asyncio.create_task(second.acquire())
    both = ("first:8443", "second:8443")
    await until(lambda: (first.addresses, second.addresses) == (both, both))
    assert not keeping.done()

    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await first.release()
    async with asyncio.timeout(10):
        await waiting
    assert second.addresses == ("second:8443",)
    assert second.vacant_for == 0.0


async def test_a_standby_that_comes_is_no_renewal_of_a_dead_leader(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.lease.RETRY", 0.05)
    ahead = [0.0]
    await contender(api, namespace, "dead").acquire()
    second = contender(api, namespace, "second", clock=lambda: boot_time() + ahead[0])
    waiting = asyncio.create_task(second.acquire())
    await until(lambda: len(second.addresses) == 2)
    ahead[0] = DURATION - 1.0
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/leader"
    third = {"metadata": {"annotations": {ANNOTATION: "dead:8443,third:8443,second:8443"}}}
    await patch(api, path, third)
    await until(lambda: len(second.addresses) == 3)
    assert not waiting.done()
    ahead[0] = DURATION
    async with asyncio.timeout(10):
        await waiting
    assert second.addresses == ("second:8443", "dead:8443", "third:8443")


async def test_who_takes_a_lease_knows_how_long_nobody_led(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun_operator.kube.lease.RETRY", 0.05)
    await contender(api, namespace, "dead").acquire()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/leader"
    await patch(api, path, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    ahead = [0.0]
    second = contender(api, namespace, "second", clock=lambda: boot_time() + ahead[0])
    waiting = asyncio.create_task(second.acquire())
    await until(lambda: len(second.addresses) == 2)
    ahead[0] = DURATION
    async with asyncio.timeout(10):
        await waiting
    assert second.vacant_for > 3600.0
