"""`long_section`: what the agent hears of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import trainrun
from tests.support.agent_stand_in import AgentStandIn
from tests.support.eventually import eventually


def test_the_agent_hears_where_it_begins_and_where_it_ends(agent: AgentStandIn) -> None:
    with trainrun.long_section("evaluate", timeout=1800):
        eventually(lambda: agent.of_type("section"))
        (begun,) = agent.of_type("section")
        assert begun == {
            "type": "section",
            "number": begun["number"],
            "name": "evaluate",
            "seconds": 1800.0,
        }
        assert agent.of_type("section-end") == []
    eventually(lambda: agent.of_type("section-end"))
    assert agent.of_type("section-end") == [{"type": "section-end", "number": begun["number"]}]


def test_it_ends_with_an_exception_too_and_hides_none(agent: AgentStandIn) -> None:
    with (
        pytest.raises(KeyError, match="lost"),
        trainrun.long_section("export", timeout=timedelta(minutes=2)),
    ):
        raise KeyError("lost")
    eventually(lambda: agent.of_type("section-end"))
    assert agent.of_type("section")[0]["seconds"] == 120.0


def test_nested_ones_have_numbers_of_their_own(agent: AgentStandIn) -> None:
    with trainrun.long_section("epoch end", timeout=60), trainrun.long_section("eval", timeout=30):
        pass
    eventually(lambda: len(agent.of_type("section-end")) == 2)
    outer, inner = (message["number"] for message in agent.of_type("section"))
    assert [message["number"] for message in agent.of_type("section-end")] == [inner, outer]


def test_without_an_agent_it_does_nothing_and_still_checks() -> None:
    with trainrun.long_section("evaluate", timeout=1):
        pass
    with (
        pytest.raises(ValueError, match="must be above 0"),
        trainrun.long_section("evaluate", timeout=0),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "timeout", "error", "text"),
    [
        ("", 1, ValueError, "name must have 1 to 100 characters, got 0"),
        ("x" * 101, 1, ValueError, "got 101"),
        (None, 1, TypeError, "name must be a string, got NoneType"),
        ("e", "5m", TypeError, "timeout must be a number of seconds or a timedelta, got '5m'"),
        ("e", True, TypeError, "got True"),
        ("e", float("nan"), ValueError, "timeout must be above 0 and finite, got nan"),
        ("e", -1.0, ValueError, "timeout must be above 0 and finite, got -1.0"),
    ],
)
def test_what_is_wrong_is_said(name: Any, timeout: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised, trainrun.long_section(name, timeout=timeout):
        pass
    assert text in str(raised.value)
