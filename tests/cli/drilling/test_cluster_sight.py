"""When a run of a drill in a cluster is struck, and when it has got far enough."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Progress
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.drilling.run_monitor import StatusPoller
from trainrun_operator.worlds.local.faults import Fault

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KILL = Fault(kind="kill", rank=1, step=25)


def status(step: int, *, attempt: int = 1, phase: str = "Running") -> TrainRunStatus:
    """Of a run that has reported this step in this attempt."""
    chapter = Chapter(number=attempt, attempt=attempt, begun=NOW, workers=2, first_step=NOW)
    return TrainRunStatus(
        phase=phase, attempt=attempt, chapter=chapter, progress=Progress(step=step)
    )


def silent(step: int, *, attempt: int) -> TrainRunStatus:
    """Of one that shows the step which it resumed from."""
    told = status(step, attempt=attempt)
    assert told.chapter is not None
    return replace(told, chapter=replace(told.chapter, first_step=None))


def commits(*steps: int, attempt: int = 1) -> list[CheckpointId]:
    return [CheckpointId(attempt=attempt, step=step) for step in steps]


def test_a_fault_strikes_once_the_first_attempt_shows_its_step() -> None:
    sight = StatusPoller(until=40, fault=KILL)
    assert [sight.due(status(step)) for step in (24, 25, 27)] == ["Nothing", "Strike", "Strike"]
    sight.struck = True
    assert sight.due(status(28)) == "Nothing"


def test_a_fault_waits_while_the_run_does_not_train_and_for_no_later_attempt() -> None:
    sight = StatusPoller(until=40, fault=KILL)
    assert sight.due(status(30, phase="Restarting")) == "Nothing"
    assert sight.due(status(30, attempt=2)) == "Nothing"
    assert sight.due(replace(status(30), chapter=None)) == "Nothing"


def test_after_its_fault_a_run_has_to_get_there_in_another_attempt() -> None:
    sight = StatusPoller(until=40, fault=KILL, struck=True)
    assert sight.due(status(45)) == "Nothing"
    assert sight.due(silent(40, attempt=2)) == "Nothing", "it resumes from there, and did nothing"
    assert sight.due(status(40, attempt=2)) == "Stop"
    assert sight.goal_reached
    assert sight.due(status(41, attempt=2)) == "Nothing", "it was told once"


def test_a_commit_shows_that_the_training_is_beyond_its_step() -> None:
    sight = StatusPoller(until=40, fault=KILL)
    assert sight.due(status(3), commits(10, 23)) == "Nothing"
    assert sight.due(status(3), commits(24)) == "Strike"
    sight.struck = True
    assert sight.due(silent(24, attempt=2), commits(24, 39)) == "Nothing"
    assert sight.due(silent(24, attempt=2), commits(39, attempt=2)) == "Nothing"
    assert sight.due(silent(24, attempt=2), commits(40, attempt=2)) == "Stop"


def test_without_a_step_to_go_to_the_third_checkpoint_is_the_end() -> None:
    sight = StatusPoller(until=None, fault=None)
    shown = [commits(10), commits(10, 20), commits(20), commits(20, 30)]  # older ones are removed
    assert [sight.due(status(1), saved) for saved in shown] == ["Nothing"] * 4
    assert sight.committed == {10, 20, 30}
    assert sight.due(status(15), commits(30)) == "Stop", "it reports also where it does not save"
