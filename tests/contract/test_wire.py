"""Numbers that nobody can calculate with are refused where they enter, with the field named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.builders import an_agent
from trainrun.contract.agent_state import AgentState
from trainrun.contract.wire import MalformedMessage


def told(**fields: Any) -> AgentState:
    message = json.loads(an_agent(attempt=1).to_json())
    return AgentState.from_json(json.dumps({**message, **fields}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"spawned": 1e300},
            r"spawned: expected a finite number of seconds up to 1e\+10, got 1e\+300",
        ),
        ({"spawned": float("nan")}, "spawned: expected a finite number of seconds"),
        ({"spawned": 10**400}, "spawned: expected int too large"),
        ({"steps": [2**60]}, r"steps\[0\]: expected an integer up to 9007199254740992, got 115"),
        ({"exits": [{"rank": 0, "age": float("inf")}]}, r"exits\[0\].age: expected a finite"),
        ({"worker": 7}, "worker: expected a str, got 7"),
    ],
)
def test_a_number_that_no_clock_or_counter_can_hold_is_refused(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(MalformedMessage, match=words):
        told(**fields)


def test_a_message_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="not readable JSON"):
        AgentState.from_json("[" * 100_000)


def test_texts_are_cleaned_as_they_are_read() -> None:
    assert told(node="node\x1b[31m-\udc80").node == "node-\ufffd"


def test_metrics_that_we_never_send_are_left_out() -> None:
    read = told(
        metrics={"loss": 0.5, "a\x00": "x\udc80", "deep": [[1]], "huge": 10**400, "t": "x" * 9999}
    )
    assert read.metrics == {"loss": 0.5, "a\ufffd": "x\ufffd"}
