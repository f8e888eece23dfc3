"""Which runs a drill makes, on a ground that only takes down what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.cli.drilling.test_verdicts import CONTROL, points, struck
from tests.cli.drills import a_file
from trainrun.errors import InvalidSpec
from trainrun_operator.cli.drilling.rehearsal import DrillEnvironment, Rehearsal
from trainrun_operator.cli.drilling.runs import DrillRun, Goal, Scenario
from trainrun_operator.cli.drilling.verdicts import Drill
from trainrun_operator.cli.preparation import load_file

LAST = 30
ENDED = replace(CONTROL, committed=(10, 20, LAST), ending="Succeeded")
RESUMED = replace(struck(handed=LAST), points=points(1, 1, LAST), ending="Succeeded")
TOO_EARLY = replace(RESUMED, chapters=struck(handed=20).chapters)


@dataclass
class RecordedGround(DrillEnvironment):
    """Answers with these courses and keeps to which step each run was to go."""

    drill_runs: Iterator[DrillRun]
    untils: list[int | None] = field(default_factory=list)
    usual: ClassVar = ("KillAtEnd",)

    def try_run(self, scenario: Scenario | None, goal: Goal) -> DrillRun:
        self.untils.append(goal.until)
        return next(self.drill_runs)


def drilled(folder: Path, *killed: DrillRun) -> tuple[Drill, RecordedGround]:
    environment = RecordedGround(iter([ENDED, ENDED, *killed]))
    run = load_file(a_file(folder))
    rehearsal = Rehearsal(
        run=run, environment=environment, until=None, within=1000.0, say=lambda _: None
    )
    return rehearsal.make_runs(), environment


def test_a_run_that_is_killed_with_its_last_step_goes_on_to_its_own_end(tmp_path: Path) -> None:
    # It was once ended when it got there again: "it did not end in the time that was left".
    drill, environment = drilled(tmp_path, RESUMED)
    (told,) = drill.rehearsed
    assert (told.outcome, told.why_not) == ("Fine", "")
    *_, until = environment.untils
    assert until is not None
    assert until > LAST


def test_a_kill_at_the_end_that_comes_before_the_last_checkpoint_is_tried_again(
    tmp_path: Path,
) -> None:
    drill, environment = drilled(tmp_path, TOO_EARLY, TOO_EARLY, RESUMED)
    assert [it.outcome for it in drill.rehearsed] == ["Fine"]
    assert len(environment.untils) == 5


def test_a_program_of_tasks_has_nothing_to_rehearse(tmp_path: Path) -> None:
    # It was advised to save on notice, and its counts were taken for a loss that differs.
    told = tuple(replace(it, metrics={"tasks_rebuilt": 9}) for it in ENDED.points)
    environment = RecordedGround(iter([replace(ENDED, points=told)]))
    run = load_file(a_file(tmp_path))
    rehearsal = Rehearsal(
        run=run, environment=environment, until=None, within=1000.0, say=lambda _: None
    )
    with pytest.raises(
        InvalidSpec, match="records finished tasks in its log and saves no checkpoints"
    ):
        rehearsal.make_runs()


def test_a_script_whose_output_shows_no_steps_is_told_to_name_them(tmp_path: Path) -> None:
    run = load_file(a_file(tmp_path), overrides={"spec.checkpoint": {"folder": {"path": "out"}}})
    silent = DrillRun(ending="OutOfTime", world_size=1, seconds=150.0)
    rehearsal = Rehearsal(
        run=run,
        environment=RecordedGround(iter([silent])),
        until=None,
        within=1000.0,
        say=lambda _: None,
    )
    drill = rehearsal.make_runs()
    assert [told.scenario.name for told in drill.rehearsed] == ["KillAfterCheckpoint", "NodeLoss"]
    assert drill.rehearsed[0].why_not == (
        "the output showed no step in 150 s, so the drill cannot see where the script continues. "
        "Let it print its steps and give spec.progress a pattern for them; if they come later, "
        "raise --within"
    )


def test_three_kills_that_come_too_early_are_told(tmp_path: Path) -> None:
    drill, _ = drilled(tmp_path, TOO_EARLY, TOO_EARLY, TOO_EARLY)
    (told,) = drill.rehearsed
    assert told.outcome == "NotRehearsed"
    assert told.why_not.startswith("the checkpoint of the last step was not committed yet")
