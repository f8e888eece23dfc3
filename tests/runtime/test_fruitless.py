"""How many connections of an address may come to nothing."""

from __future__ import annotations

import pytest

from trainrun_operator.runtime.listener import (
    FAILED_ADDRESSES,
    FAILED_AT_ONCE,
    FAILED_PER_SECOND,
    FailedConnections,
)


def after(number: int, *, address: str = "a") -> FailedConnections:
    failed = FailedConnections()
    for _ in range(number):
        failed.count(address, 100.0)
    return failed


@pytest.mark.case("strangers", "A client opens TLS connections and drops them")
def test_an_address_has_had_its_share_after_so_many_at_once() -> None:
    assert not after(int(FAILED_AT_ONCE) - 1).over_limit("a", 100.0)
    assert after(int(FAILED_AT_ONCE)).over_limit("a", 100.0)
    assert not after(int(FAILED_AT_ONCE)).over_limit("b", 100.0)


def test_they_are_forgotten_at_a_steady_pace() -> None:
    failed = after(int(FAILED_AT_ONCE))
    assert not failed.over_limit("a", 100.0 + 1 / FAILED_PER_SECOND)
    failed.count("a", 101.0)
    assert not failed.over_limit("a", 101.0)
    failed = after(10)
    assert not failed.over_limit("a", 200.0)
    assert failed == FailedConnections()


def test_of_many_addresses_the_one_longest_known_is_forgotten() -> None:
    failed = after(int(FAILED_AT_ONCE))
    for number in range(FAILED_ADDRESSES):
        failed.count(f"other {number}", 100.0)
    assert not failed.over_limit("a", 100.0)
