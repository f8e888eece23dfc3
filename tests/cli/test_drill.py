"""`trainrun drill`: real runs of scripts whose recovery is broken, each in another way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.drills import a_file, a_ground
from tests.support.eventually import eventually
from tests.support.levels import later_rare
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.drilling.comparing import agreed, tolerance
from trainrun_operator.cli.drilling.findings import FaultFreeBaseline, of_control
from trainrun_operator.cli.drilling.remedies import Finding
from trainrun_operator.cli.drilling.runs import OURS, FaultName, Goal, fault_scenarios, scenarios
from trainrun_operator.cli.drilling.verdicts import Rehearsed, judge, longer, with_measured

OWN_SAVES = Path(__file__).parents[1] / "worlds" / "local" / "scripts" / "own_saves.py"
UNTIL = 30
GRACE = 4.0
LONG = 120.0
"""Seconds; generous, since two cores are shared by all processes of all tests."""


def call(file: Path, *words: str, within: str = "30m") -> Result:
    """More time than by default, since a machine that is busy with other tests is slow."""
    return CliRunner().invoke(trainrun, ["drill", str(file), "--within", within, *words])


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> FaultFreeBaseline:
    """Undisturbed runs of the script: all that is broken on resume is the same up to there."""
    environment = a_ground(tmp_path_factory.mktemp("control"))
    one, other = (environment.try_run(None, Goal(until=UNTIL, seconds=LONG)) for _ in range(2))
    return FaultFreeBaseline(
        control=one,
        within=tolerance(one.curve(1), other.curve(1), until=UNTIL),
        contents=agreed(one, other),
        until=UNTIL,
        on_notice="Auto",
    )


def rehearsed(
    folder: Path, mode: str, fault: FaultName, beside: FaultFreeBaseline, *, grace: float = GRACE
) -> Rehearsed:
    """The verdict on a run of the broken script under one fault."""
    planned = (
        *scenarios(beside.control, until=UNTIL, grace=grace),
        *fault_scenarios(beside.control, until=UNTIL),
    )
    scenario = next(it for it in planned if it.name == fault)
    newest = folder / "work" / "**" / "step-*20-attempt-1" / "manifest.json"
    env = {"SAVED": str(newest)[1:]} if fault in OURS else {}  # strikes at step 25 and resumes 20
    drill_run = a_ground(folder, mode, env=env).try_run(scenario, Goal(until=UNTIL, seconds=LONG))
    return judge(scenario, drill_run, beside)


def found(folder: Path, mode: str, fault: FaultName, beside: FaultFreeBaseline) -> list[Finding]:
    """What it shows."""
    verdict = rehearsed(folder, mode, fault, beside)
    assert not verdict.why_not, verdict
    return list(verdict.findings)


@pytest.mark.slow
def test_a_sound_script_passes_and_nothing_of_the_run_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, temporary = tmp_path / "seen.txt", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    own = tmp_path / "own"
    own.mkdir()
    file = a_file(own, env={"SEEN": str(seen)})
    result = call(file)
    assert result.exit_code == 0, result.output
    assert "two undisturbed runs are equal in" in result.stdout
    assert result.stdout.count("fine") == 6
    assert result.stdout.endswith("Nothing was found.\n")
    assert max(map(len, result.stdout.splitlines())) < 80
    assert [path.name for path in own.iterdir()] == [file.name]
    told = {tuple(line.split(" ")) for line in seen.read_text().splitlines()}
    assert {(name, mode) for name, mode, _ in told} == {("drill", "offline")}
    assert all(uri.startswith(f"{temporary.as_uri()}/trainrun-drill-") for *_, uri in told)
    assert list(temporary.glob("trainrun-drill-*")) == []


@pytest.mark.slow
def test_as_json_a_script_that_never_loads_is_found_by_both_faults_that_leave_a_checkpoint(
    tmp_path: Path,
) -> None:
    result = call(a_file(tmp_path, "never-loads"), "--until-step", "30", "--json")
    assert result.exit_code == 4, result.output
    told = json.loads(result.stdout)
    assert (told["version"], told["run"], told["exitCode"]) == (1, "llama", 4)
    assert (told["untilStep"], told["worldSize"]) == (30, 2)
    assert told["control"]["equal"]
    assert {it["name"]: it["outcome"] for it in told["faults"]} == {
        "KillAfterCheckpoint": "Found",
        "KillWhileSaving": "Found",
        "Notice": "Found",
        "KillBeforeCheckpoint": "Fine",
        "KillMidEpoch": "Found",
    }
    assert {(it["kind"], it["fault"]) for it in told["findings"]} == {
        ("CheckpointNeverOpened", "KillAfterCheckpoint"),
        ("CheckpointNeverOpened", "KillWhileSaving"),
        ("CheckpointNeverOpened", "Notice"),
        ("CheckpointNeverOpened", "KillMidEpoch"),
    }
    text = told["findings"][0]["text"]
    assert "did not open it, and started again with step 1" in text
    assert "get_checkpoint()" in told["findings"][0]["remedy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "kind", "text"),
    later_rare(
        [
            ("repeats", "StepsRepeated", "3 of the steps in the checkpoint were done twice"),
            (
                "never-looks",
                "CheckpointNeverAsked",
                "no process that reports called get_checkpoint()",
            ),
            ("loads-nothing", "WeightsNotLoaded", "closer to the curve of the first steps"),
            ("breaks", "RecoveryFailed", "KeyError: 'optimizer'"),
            ("skips", "StepsSkipped", "an undisturbed run reports step"),
            (
                "opens-nothing",
                "CheckpointNeverOpened",
                "no rank opened the files of the checkpoint",
            ),
            ("loads-roughly", "WeightsDiffer", "at once, and on one side of the undisturbed curve"),
            ("forgets-momentum", "OptimizerReset", "equal in the first step but not after it"),
            ("forgets-schedule", "LearningRateReset", "these are the values of the first steps"),
            ("forgets-place", "DataRestarted", "these are the batches of the first steps"),
            (
                "forgets-random",
                "RandomNotRestored",
                "looks like random numbers (the next checkpoint has others)",
            ),
            (
                "forgets-average",
                "CheckpointsDiffer",
                "of two undisturbed runs, which are equal: state",
            ),
        ],
        kept=4,
        by="tests/cli/drilling/test_verdicts.py",
    ),
)
def test_after_a_kill_it_is_found_that_the_script(
    mode: str, kind: str, text: str, beside: FaultFreeBaseline, tmp_path: Path
) -> None:
    (finding,) = found(tmp_path, mode, "KillAfterCheckpoint", beside)
    assert finding.kind == kind
    assert text in finding.text
    assert finding.remedy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "kind", "text"),
    [
        ("never-asks", "ShouldSaveNeverAsked", "the script never called should_save()"),
        (
            "asks-in-vain",
            "NoticeNotUsed",
            "although should_save() returned true: the script called it",
        ),
    ],
)
def test_after_a_notice_it_is_found_that_the_script(
    mode: str, kind: str, text: str, beside: FaultFreeBaseline, tmp_path: Path
) -> None:
    (finding,) = found(tmp_path, mode, "Notice", beside)
    assert finding.kind == kind
    assert text in finding.text
    assert f"a notice of {GRACE:g} s" in finding.text


@pytest.mark.slow
def test_a_save_that_is_longer_than_the_grace_is_found_and_measured(
    beside: FaultFreeBaseline, tmp_path: Path
) -> None:
    told = rehearsed(tmp_path, "saves-slowly", "Notice", beside, grace=3)
    (finding,) = told.findings
    assert finding.kind == "SaveTooSlow"
    assert "no files were reported in the" in finding.text
    again = longer(told)
    assert again is not None
    drill_run = a_ground(tmp_path, "saves-slowly").try_run(again, Goal(until=UNTIL, seconds=LONG))
    measured = with_measured(told, drill_run)
    assert measured.committed is not None
    assert measured.committed > 3
    assert "With a longer grace the checkpoint was committed" in measured.findings[0].text


@pytest.mark.slow
def test_how_long_a_notice_would_wait_for_should_save_shows_without_any_fault(
    tmp_path: Path,
) -> None:
    control = a_ground(tmp_path, "evaluates").try_run(None, Goal(until=12, seconds=LONG))
    (finding,) = of_control(control, grace=1, on_notice="Auto")
    assert finding.kind == "SaveTooLate"
    assert "a notice of 1 s that arrives then is seen too late" in finding.text
    assert of_control(control, grace=60, on_notice="Auto") == []


@pytest.mark.slow
def test_state_that_the_script_keeps_beside_the_checkpoint_is_found_by_a_kill_while_it_saves(
    beside: FaultFreeBaseline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own.json"))
    (finding,) = found(tmp_path, "keeps-its-own", "KillWhileSaving", beside)
    assert finding.kind == "StepsSkipped"
    assert "after the resume from step 10 the first report is step 21" in finding.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", later_rare(OURS, kept=2, by="tests/cli/drilling/test_verdicts.py")
)
def test_a_sound_script_gets_over_what_tests_us(
    fault: FaultName, beside: FaultFreeBaseline, tmp_path: Path
) -> None:
    told = rehearsed(tmp_path, "", fault, beside)
    assert (told.outcome, told.curves, told.why_not) == ("Fine", "Equal", "")
    assert told.resumed_from == (10 if fault == "CorruptNewest" else 20)
    assert told.lost_steps >= (15 if fault == "CorruptNewest" else 5)
    assert (fault == "Hang") == (told.detected is not None and told.detected >= 4)
    assert told.checkpoints in ("Equal", "NotCompared")


@pytest.mark.slow
@pytest.mark.rare("tests/cli/drilling/test_verdicts.py")
def test_ranks_that_report_nothing_are_named_and_what_needs_a_checkpoint_is_not_rehearsed(
    tmp_path: Path,
) -> None:
    file = a_file(tmp_path, "rank-0-alone")
    result = call(file, "--until-step", "15", "--json")
    assert result.exit_code == 4, result.output
    told = json.loads(result.stdout)
    silent = [it for it in told["findings"] if it["kind"] == "RanksSilent"]
    (finding,) = silent
    assert finding["text"].startswith("rank 1 of 2 reported nothing, and the checkpoint of step 10")
    assert "whole=True" in finding["remedy"]
    assert told["faults"][0]["outcome"] == "NotRehearsed"
    assert told["faults"][0]["whyNot"].startswith("no checkpoint was committed")


@pytest.mark.slow
def test_an_unchanged_script_goes_on_from_its_folder_after_a_kill_and_after_the_loss_of_the_disk(
    tmp_path: Path,
) -> None:
    file = a_file(tmp_path, script=OWN_SAVES, workers=1)
    spec = yaml.safe_load(file.read_text())
    (container,) = spec["spec"]["workers"]["template"]["spec"]["containers"]
    words = ["folders", "--steps=9999", "--every=30", "--pace=0.1", f"--out={tmp_path}/out"]
    container["command"] += words
    spec["spec"]["checkpoint"] = {
        "folder": {
            "path": f"{tmp_path}/out",
            "newest": "checkpoint-*",
            "complete": ["*/state.json"],
            "settle": "1s",
            "resumeArgs": ["--resume", "{newest}"],
        }
    }
    spec["spec"]["progress"] = {"output": "Auto"}
    file.write_text(yaml.safe_dump(spec))
    result = call(file, "--json", within="10m")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(it["name"], it["outcome"], it["curves"]) for it in told["faults"]] == [
        ("KillAfterCheckpoint", "Fine", "Equal"),
        ("NodeLoss", "Fine", "Equal"),
    ]
    assert all(it["resumedFrom"] % 30 == 0 for it in told["faults"])
    assert not (tmp_path / "out").exists()


def test_a_folder_that_several_workers_or_a_volume_share_is_refused_before_anything_is_started(
    tmp_path: Path,
) -> None:
    file = a_file(tmp_path)
    spec = yaml.safe_load(file.read_text())
    spec["spec"]["checkpoint"] = {"folder": {"path": "out"}}
    file.write_text(yaml.safe_dump(spec))
    result = call(file)
    assert (result.exit_code, "undisturbed run" in result.stderr) == (2, False)
    assert result.stderr.endswith(
        "all workers of this machine would save into one folder. Rehearse checkpoint.folder with "
        "one of them: --replicas 1\n"
    )
    spec["spec"]["checkpoint"]["folder"]["carry"] = False
    file.write_text(yaml.safe_dump(spec))
    result = call(file, "--replicas", "1")
    assert (result.exit_code, "undisturbed run" in result.stderr) == (2, False)
    assert "carry is false, so no save is stored that a drill could lose" in result.stderr


@pytest.mark.slow
def test_a_script_that_does_not_equal_itself_is_told_so_first(tmp_path: Path) -> None:
    result = call(a_file(tmp_path, "unequal"), "--until-step", "8")
    assert result.exit_code == 3, result.output
    assert "the script is not reproducible: loss of two" in result.stdout.splitlines()[1]
    assert "named after time, speed or memory: step_time" in " ".join(result.stdout.split())


@pytest.mark.slow
def test_without_metrics_nothing_is_called_fine(tmp_path: Path) -> None:
    result = call(a_file(tmp_path, "no-metrics"), "--until-step", "8")
    assert result.exit_code == 3, result.output
    assert result.stdout.count("not rehearsed") == 5
    assert "rank 0 reports no metrics" in result.stdout
    assert result.stdout.endswith("Nothing was found in what was rehearsed.\n")


@pytest.mark.slow
def test_a_script_that_fails_without_any_fault_is_no_finding(tmp_path: Path) -> None:
    result = call(a_file(tmp_path, "fails"))
    assert result.exit_code == 1, result.output
    assert "the run fails without any fault" in result.stderr
    assert "there is no data" in result.stderr


@pytest.mark.slow
def test_what_has_no_time_is_not_rehearsed(tmp_path: Path) -> None:
    result = call(a_file(tmp_path), "--json", within="1s")
    assert result.exit_code == 3, result.output
    told = json.loads(result.stdout)
    assert told["findings"] == []
    assert {it["outcome"] for it in told["faults"]} == {"NotRehearsed"}
    assert told["seconds"] < 60


@pytest.mark.parametrize("words", [["--within", "soon"], ["--within", "0s"], ["--replicas", "0"]])
def test_bad_input_is_refused_before_anything_is_started(tmp_path: Path, words: list[str]) -> None:
    result = call(a_file(tmp_path), *words)
    assert result.exit_code == 2, result.output
    assert "undisturbed run" not in result.stderr


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    file = a_file(own, env={"SEEN": str(tmp_path / "seen.txt")})
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "trainrun_operator.cli", "drill", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    eventually((tmp_path / "seen.txt").exists, timeout=LONG, what="a training process")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert out == b""
    assert list(temporary.glob("trainrun-drill-*")) == []
