"""How many connections of an address may come to nothing."""

from __future__ import annotations

import pytest

from trainrun_operator.runtime.listener import (
    FRUITLESS_ADDRESSES,
    FRUITLESS_AT_ONCE,
    FRUITLESS_PER_SECOND,
    FailedConnections,
)


def after(number: int, *, address: str = "a") -> FailedConnections:
    fruitless = FailedConnections()
    for _ in range(number):
        fruitless.count(address, 100.0)
    return fruitless


@pytest.mark.case("strangers", "A client opens TLS connections and drops them")
def test_an_address_has_had_its_share_after_so_many_at_once() -> None:
    assert not after(int(FRUITLESS_AT_ONCE) - 1).had_its_share("a", 100.0)
    assert after(int(FRUITLESS_AT_ONCE)).had_its_share("a", 100.0)
    assert not after(int(FRUITLESS_AT_ONCE)).had_its_share("b", 100.0)


def test_they_are_forgotten_at_a_steady_pace() -> None:
    fruitless = after(int(FRUITLESS_AT_ONCE))
    assert not fruitless.had_its_share("a", 100.0 + 1 / FRUITLESS_PER_SECOND)
    fruitless.count("a", 101.0)
    assert not fruitless.had_its_share("a", 101.0)
    fruitless = after(10)
    assert not fruitless.had_its_share("a", 200.0)
    assert fruitless == FailedConnections()


def test_of_many_addresses_the_one_longest_known_is_forgotten() -> None:
    fruitless = after(int(FRUITLESS_AT_ONCE))
    for number in range(FRUITLESS_ADDRESSES):
        fruitless.count(f"other {number}", 100.0)
    assert not fruitless.had_its_share("a", 100.0)
