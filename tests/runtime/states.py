"""Builders of what agents send."""

from __future__ import annotations

from typing import Any

from trainrun.contract.agent_state import AgentState
from trainrun.contract.answer import Answer, Hold, Start

RUN_UID = "uid-1"


def a_state(worker: str = "run-0-1", **fields: Any) -> AgentState:
    """The state of an idle agent of slot 0."""
    defaults: dict[str, Any] = {
        "run": "run",
        "run_uid": RUN_UID,
        "slot": 0,
        "created_for": 1,
        "agent": "agent-a",
        "sequence": 1,
    }
    return AgentState(worker=worker, **(defaults | fields))


def hold(attempt: int = 1) -> Answer:
    """Get ready for this attempt."""
    return Answer(order=Hold(attempt=attempt))


def start(attempt: int = 1) -> Answer:
    """Run this attempt."""
    order = Start(
        attempt=attempt, workers=1, world_size=1, master_addr="127.0.0.1", master_port=29500
    )
    return Answer(order=order)
