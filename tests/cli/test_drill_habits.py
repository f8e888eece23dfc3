"""`trainrun drill` of scripts as people write them: what is sound is fine, and of what is broken
the right thing is said."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.cli.drills import HABITS, a_file, a_ground
from tests.cli.test_drill import call
from tests.support.levels import later_rare
from trainrun_operator.cli.drilling.comparing import agreed, tolerance
from trainrun_operator.cli.drilling.findings import FaultFreeBaseline
from trainrun_operator.cli.drilling.runs import FaultName, Goal, at_end, scenarios
from trainrun_operator.cli.drilling.verdicts import Rehearsed, files_shared, judge

pytestmark = pytest.mark.slow

LONG = 120.0
AT_RESUME = {"forgets-random", "forgets-place"}
"""Modes in which undisturbed runs are as without."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("habits")


@cache
def undisturbed(folder: Path, mode: str, until: int) -> FaultFreeBaseline:
    place = folder / f"control-{mode.replace(' ', '-')}"
    place.mkdir(exist_ok=True)
    environment = a_ground(place, mode, script=HABITS, workers=1)
    one, other = (environment.try_run(None, Goal(until=until, seconds=LONG)) for _ in range(2))
    assert not files_shared(one, other), "each has a working folder of its own"
    within = tolerance(one.curve(1), other.curve(1), until=until)
    return FaultFreeBaseline(
        control=one, within=within, contents=agreed(one, other), until=until, on_notice="Auto"
    )


def rehearsed(folder: Path, mode: str, fault: FaultName) -> Rehearsed:
    until = 60 if fault == "KillAtEnd" else 30
    plain = " ".join(it for it in mode.split() if it not in AT_RESUME)
    beside = undisturbed(folder, plain, until)
    planned = (
        *scenarios(beside.control, until=until, grace=4),
        at_end(beside.control, until=until),
    )
    scenario = next(it for it in planned if it.name == fault)
    place = folder / f"{mode.replace(' ', '-')}-{fault}"
    place.mkdir()
    environment = a_ground(place, mode, script=HABITS, workers=1)
    return judge(scenario, environment.try_run(scenario, Goal(until=until, seconds=LONG)), beside)


@pytest.mark.parametrize(
    ("mode", "fault"),
    later_rare(
        [
            ("", "KillAfterCheckpoint"),
            ("", "KillMidEpoch"),
            ("", "KillAtEnd"),
            ("threads", "KillAfterCheckpoint"),
            ("saves-before", "KillAfterCheckpoint"),
            ("epochs", "KillBeforeCheckpoint"),
        ],
        kept=3,
        by="tests/cli/drilling/test_verdicts.py",
    ),
)
def test_nothing_is_found_in_a_sound_script(mode: str, fault: FaultName, folder: Path) -> None:
    told = rehearsed(folder, mode, fault)
    assert (told.outcome, told.why_not, told.findings) == ("Fine", "", ())
    if fault in ("KillAfterCheckpoint", "KillMidEpoch"):
        # The set of strings in it lies in another order in each process, and the time differs.
        assert (told.curves, told.checkpoints, told.unclear) == ("Equal", "Equal", ())


@pytest.mark.parametrize(
    ("mode", "fault", "kind", "remedy"),
    later_rare(
        [
            ("forgets-random", "KillAfterCheckpoint", "RandomNotRestored", "random generators"),
            (
                "forgets-place",
                "KillAfterCheckpoint",
                "DataDiffers",
                "save the position in the data",
            ),
            ("own-folder", "KillAfterCheckpoint", "OwnFilesUsed", "get_checkpoint()"),
            (
                "saves-before forgets-random",
                "KillAfterCheckpoint",
                "RandomNotRestored",
                "random gen",
            ),
            ("empty-at-the-end", "KillAtEnd", "RecoveryFailed", "leaves the loop nothing to do"),
        ],
        kept=3,
        by="tests/cli/drilling/test_verdicts.py",
    ),
)
def test_of_a_broken_script_the_right_thing_is_said(
    mode: str, fault: FaultName, kind: str, remedy: str, folder: Path
) -> None:
    (finding,) = rehearsed(folder, mode, fault).findings
    assert finding.kind == kind, finding.text
    assert remedy in finding.remedy


@pytest.mark.rare("tests/cli/drilling/test_verdicts.py")
def test_of_an_unseeded_script_that_loads_nothing_nothing_is_called_fine(folder: Path) -> None:
    told = rehearsed(folder, "unseeded loads-nothing", "KillAfterCheckpoint")
    assert told.findings == (), told.findings[0].text
    assert told.outcome == "NotRehearsed"
    assert told.why_not.startswith(
        "no rank opened the checkpoint, and your two undisturbed runs diff"
    )


def test_a_script_whose_first_step_comes_late_has_as_many_faults_as_fit(tmp_path: Path) -> None:
    file = a_file(tmp_path, script=HABITS, workers=1, env={"LATE": "5"})
    result = call(file, within="25s")
    assert "first undisturbed run until it has saved often enough, at most 12 s" in result.stderr
    assert "no step was reported" not in result.stdout
    assert "two undisturbed runs are equal" in result.stdout
    assert "no time was left: everything takes about" in " ".join(result.stdout.split())
    assert result.exit_code == 3, result.output
