"""The order in which an agent looks for the leader."""

from __future__ import annotations

import pytest

from trainrun.agent.exchange.heartbeat import (
    MOST_OPERATORS,
    SERVICE,
    SERVICE_SECONDS,
    OperatorAddresses,
)

LATER = SERVICE_SECONDS


def round_of(ways: OperatorAddresses, *, since: float, now: float) -> list[str]:
    """The ways that are tried until there is a pause."""
    tried = [ways.way]
    while ways.lost(since, now):
        tried.append(ways.way)
    return tried


def test_the_service_comes_first_then_the_leader_then_the_others() -> None:
    ways = OperatorAddresses(("leader", "standby"))
    ways.lost(0.0, 0.0)
    assert round_of(ways, since=LATER, now=LATER) == [SERVICE, "leader", "standby"]
    assert ways.way == SERVICE


def test_for_a_moment_the_service_alone_is_tried() -> None:
    ways = OperatorAddresses(("leader", "standby"))
    assert round_of(ways, since=0.0, now=0.0) == [SERVICE]
    assert round_of(ways, since=1.9, now=1.9) == [SERVICE]
    assert round_of(ways, since=2.1, now=2.1) == [SERVICE, "leader", "standby"]


def test_a_service_that_leads_to_a_black_hole_has_had_its_time() -> None:
    ways = OperatorAddresses(("leader",))
    assert round_of(ways, since=0.0, now=5.0) == [SERVICE, "leader"]


def test_without_addresses_there_is_the_service() -> None:
    ways = OperatorAddresses()
    assert round_of(ways, since=0.0, now=100.0) == [SERVICE]


def test_a_way_that_leads_to_the_leader_is_kept() -> None:
    ways = OperatorAddresses(("leader",))
    ways.lost(0.0, 5.0)
    ways.found()
    assert ways.way == "leader"


def test_when_that_way_ends_the_service_is_asked_at_once_and_then_the_others() -> None:
    ways = OperatorAddresses(("a", "b"))
    ways.lost(0.0, 5.0)
    ways.found()
    assert round_of(ways, since=100.0, now=100.0) == ["a", SERVICE]
    assert round_of(ways, since=103.0, now=103.0) == [SERVICE, "a", "b"]


@pytest.mark.case("operator", "A node's kube-proxy does not know the next leader")
def test_a_standby_says_who_leads_and_that_one_is_asked_next() -> None:
    ways = OperatorAddresses(("old", "standby"))
    ways.lost(0.0, 5.0)
    assert ways.way == "old"
    ways.lost(5.0, 5.0)
    ways.learn(("new", "standby"))
    assert ways.lost(5.0, 5.0)
    assert ways.way == "new"


def test_an_operator_that_says_nothing_changes_nothing_and_one_that_says_much_is_bounded() -> None:
    ways = OperatorAddresses(("a",))
    ways.learn(())
    assert ways.operators == ("a",)
    ways.learn(tuple(f"10.0.0.{number}:8443" for number in range(100)))
    assert len(ways.operators) == MOST_OPERATORS
