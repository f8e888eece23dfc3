"""What is left for `kubectl describe pod` when an agent ends."""

from __future__ import annotations

from pathlib import Path

from trainrun.agent import termination_message
from trainrun.contract.agent_state import ProcessExit


def test_the_first_process_to_fail_is_quoted_and_not_those_that_were_stopped() -> None:
    exits = (
        ProcessExit(rank=0, signal=9, ordered=True, age=9.0),
        ProcessExit(rank=1, code=1, exception="ConnectionError: peer", age=1.0),
        ProcessExit(
            rank=2, code=3, exception="ValueError: x", last_lines=("Traceback", "x"), age=2.0
        ),
    )
    assert termination_message.compose("ordered to exit with code 3", exits) == (
        "rank 2 exited with code 3: ValueError: x (ordered to exit with code 3)\nTraceback\nx"
    )


def test_without_a_culprit_the_reason_stands_alone() -> None:
    exits = (ProcessExit(rank=0, code=0), ProcessExit(rank=1, signal=9, ordered=True))
    assert termination_message.compose("received SIGTERM", exits) == "received SIGTERM"


def test_a_message_that_is_too_long_keeps_its_first_line_and_its_end(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    file.write_text("older")
    termination_message.write("rank 0 exited\n" + "a line\n" * 5000 + "the error", file)
    left = file.read_text()
    assert len(left) <= 4096
    assert left.startswith("rank 0 exited\n...\n")
    assert left.endswith("a line\nthe error")


def test_no_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    termination_message.write("text", tmp_path / "termination-log")
    assert list(tmp_path.iterdir()) == []
