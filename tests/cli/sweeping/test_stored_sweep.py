"""`trainrun sweep`: what the log of a sweep tells, from any machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.sweeping.written_logs import ask
from tests.support.sweeps import asked, reported, told
from trainrun.sweep.records import Ask


@pytest.fixture
def file(sweeps: Sweeps) -> Path:
    ended = [told(0, value="0.5", step=2), told(1, "Errored", reason="AppError", message="why")]
    return sweeps.write(asked(0), asked(1), asked(2), *ended, reported(2, s1=0.25))


def test_trials_are_told_from_the_file_and_from_the_folder_alone(
    file: Path, sweeps: Sweeps
) -> None:
    of_file = ask("trials", file)
    assert of_file.exit_code == 0
    states = [line.split()[1] for line in of_file.output.splitlines()[1:]]
    assert states == ["Succeeded", "Errored", "Open"]
    assert "(AppError: why)" in of_file.output
    assert ask("trials", sweeps.storage / "lr").output == of_file.output
    assert ask("trials", f"{sweeps.storage.as_uri()}/lr/").output == of_file.output


def test_trials_as_json(file: Path) -> None:
    rows = [json.loads(line) for line in ask("trials", file, "--json").output.splitlines()]
    assert [(row["trial"], row["value"], row["step"]) for row in rows] == [
        (0, 0.5, 2),
        (1, None, None),
        (2, 0.25, 1),
    ]


def test_the_best_trial_is_told_with_parameters_to_copy(file: Path) -> None:
    found = ask("best", file)
    assert found.exit_code == 0
    assert found.output.splitlines() == ["trial 2: loss 0.25 at step 1", "  lr=0.30000000000000004"]
    assert json.loads(ask("best", file, "--json").output)["trial"] == 2


def test_without_a_value_there_is_no_best_one(sweeps: Sweeps) -> None:
    found = ask("best", sweeps.write(asked(0)))
    assert found.exit_code == 3
    assert "no trial in " in found.output


def test_a_sweep_can_be_restored_with_the_search_that_it_was_begun_with(
    file: Path, sweeps: Sweeps
) -> None:
    yes = ask("can-restore", file)
    assert yes.exit_code == 0
    assert yes.output.startswith("yes: ")
    assert "3 trials, 1 open, 1 errored" in yes.output
    assert ask("can-restore", sweeps.storage / "lr").exit_code == 0
    sweeps.spec = {"sampler": {"seed": 7}}
    changed = ask("can-restore", sweeps.storage / "lr", "-f", sweeps.file())
    assert changed.exit_code == 3
    assert "holds a search with another sampler.seed" in changed.output


def test_where_nothing_was_begun_there_is_nothing_to_restore(tmp_path: Path) -> None:
    found = ask("can-restore", tmp_path)
    assert found.exit_code == 3
    assert found.output.startswith("no: ")
    listed = ask("trials", tmp_path)
    assert listed.exit_code == 2
    assert "there is no log of a sweep" in listed.output


def test_a_file_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "run.yaml"
    other.write_text("apiVersion: trainrun.dev/v1alpha1\nkind: TrainRun\n")
    refused = ask("trials", other)
    assert refused.exit_code == 2
    assert "TrainSweep is needed here" in refused.output


def test_a_choice_with_a_newline_stands_in_one_line(sweeps: Sweeps) -> None:
    """It broke the table."""
    file = sweeps.write(Ask(0, {"prompt": "a\nb", "lr": 0.1}), told(0, value="0.5"))
    rows = ask("trials", file).output.splitlines()
    assert len(rows) == 2
    assert rows[1].endswith('lr=0.1 prompt="a\\nb"')
    assert ask("best", file).output.splitlines()[1] == '  lr=0.1 prompt="a\\nb"'


def test_a_damaged_record_of_points_is_left_out_on_demand(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0), reported(0, s1=0.5), told(0, value="0.25", step=2))
    record = sweeps.storage / "lr/log/000000003.json"
    record.write_bytes(record.read_bytes()[:-30])
    refused = ask("trials", file)
    assert refused.exit_code == 2
    assert "`trainrun sweep leave-out` replaces one that held only points" in refused.output
    done = ask("leave-out", file, "3")
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"record 3 is left out; the damaged object is kept as {record.as_uri()}.damaged",
        "the log can be read again",
    ]
    assert ask("trials", file).exit_code == 0
