"""What is recorded of a version is read by the next one: so far, what this one writes."""

from __future__ import annotations

import json
from pathlib import Path

from trainrun.contract.agent_state import AgentState, ProcessExit
from trainrun_operator.api.run.status import json_object, status_from

RECORDED = Path(__file__).parents[1] / "recorded"


def test_the_recorded_status_is_read_as_it_was_meant() -> None:
    """Of a run that gathers its workers for attempt 4, with an incident that is not settled."""
    written = json.loads((RECORDED / "status.json").read_text())

    status = status_from(written)

    assert json_object(status) == written
    assert status.start_record is not None
    assert (status.attempt, status.start_record.attempt) == (3, 3)
    assert [(it.cause, it.counted) for it in status.incidents] == [
        ("AppError", True),
        ("Preempted", True),
    ]
    assert status.ending is not None
    assert status.incident is not None
    assert (status.ending.attempt, status.incident.counted) == (3, False)


def test_the_recorded_heartbeat_is_read_as_it_was_meant() -> None:
    text = (RECORDED / "heartbeat.json").read_text()

    state = AgentState.from_json(text)

    assert json.loads(state.to_json()) == json.loads(text)
    assert (state.worker, state.slot, state.steps) == ("digits-1-1", 1, (1300, None))
    assert state.exits == (
        ProcessExit(rank=2, code=1, exception="ValueError: x", last_lines=("x",), age=0.25),
    )
