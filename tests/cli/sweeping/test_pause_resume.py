"""`trainrun sweep pause|stop|resume|status` where nobody leads the sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.support.sweeps import asked, reported, told
from trainrun.sweep.records import End
from trainrun_operator.cli.commands import trainrun


def ask(*words: str | Path | int) -> Result:
    return CliRunner().invoke(trainrun, ["sweep", *map(str, words)])


@pytest.fixture
def file(sweeps: Sweeps) -> Path:
    """Of five trials one has ended, two are open, two have not begun."""
    sweeps.spec = {"budget": {"trials": 5}, "pausedTrials": [1, 3]}
    return sweeps.write(asked(0), asked(1), asked(2), told(0), reported(2, s1=0.25))


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("pause", 2), "spec.pausedTrials: [1, 3, 2] into it (trial 2 is paused)"),
        (("resume", 3), "spec.pausedTrials: [1] into it (trial 3 is not paused)"),
        (("stop", 3, 3), "spec.pausedTrials: [1], spec.stoppedTrials: [3] into it (trial 3 is "),
        (("stop", 0, 2), "spec.stoppedTrials: [0, 2] into it (trials 0, 2 are stopped for good)"),
        (("pause",), "spec.suspend: true into it (all trials save and wait)"),
        (("resume",), "spec.pausedTrials: [] into it (all trials may continue)"),
    ],
)
def test_a_file_is_its_users_who_is_told_what_to_write(
    file: Path, words: tuple[str | int, ...], fields: str
) -> None:
    before = file.read_bytes()
    verb, *trials = words
    for options in ((), ("--json",)):
        told_so = ask(verb, file, *trials, *options)
        assert told_so.exit_code == 2
        assert told_so.output.count("\n") == 1
        said = f"error: {file}: this command does not edit files. Write {fields}"
        assert told_so.output.startswith(said)
        assert told_so.output.endswith("a running sweep applies that within two seconds\n")
    assert file.read_bytes() == before


def test_what_a_file_says_already_or_cannot_say_is_told(file: Path, sweeps: Sweeps) -> None:
    already = ask("pause", file, 1)
    assert already.exit_code == 2
    assert already.output == (f"error: {file}: nothing to change: trial 1 is paused\n")
    sweeps.spec |= {"stoppedTrials": [2]}
    for verb, said in (("pause", "paused"), ("resume", "resumed")):
        refused = ask(verb, sweeps.file(), 2)
        assert refused.exit_code == 2
        assert f"trial 2 cannot be {said}: spec.stoppedTrials" in refused.output


def test_a_folder_cannot_be_told_what_to_do(file: Path, sweeps: Sweeps) -> None:
    for where in (sweeps.storage / "lr", f"{sweeps.storage.as_uri()}/lr"):
        refused = ask("pause", where, 1)
        assert refused.exit_code == 2
        assert refused.output.count("\n") == 1
        assert "name its YAML file or its TrainSweep in the cluster" in refused.output


def test_the_status_tells_where_a_sweep_stands_as_its_log_says(file: Path, sweeps: Sweeps) -> None:
    errored = told(1, "Errored", reason="AppError", message="why\nmore")
    file = sweeps.write(errored)
    assert ask("status", file).output.splitlines() == [
        "TrainSweep lr: Running (Unfinished): the sweep has not finished; its log does not show "
        "whether it is running now",
        "  trials       2/5 ended: 1 succeeded, 1 errored, 1 open",
        "  time         1.0 s with trials at work",
        "  best         trial 0: loss 0 at step 0",
        "               lr=0.1",
        "  sessions     1",
        "  last ended   trial 1 Errored: AppError: why",
        "               trial 0 Succeeded: loss 0 at step 0",
    ]
    of_folder = ask("status", sweeps.storage / "lr")
    assert "  trials       2 ended: 1 succeeded" in of_folder.output
    told_all = json.loads(ask("status", file, "--json").output)
    assert (told_all["budget"], told_all["sessions"]) == (5, 1)
    assert told_all["status"]["asked"] == 3
    assert "running" not in told_all["status"], "the log cannot tell"
    assert told_all["status"]["best"]["params"] == {"lr": 0.1}
    assert "budget" not in json.loads(ask("status", sweeps.storage / "lr", "--json").output)


def test_the_status_of_a_sweep_that_is_over_says_as_what_and_why(sweeps: Sweeps) -> None:
    end = End("Failed", "TooManyFailedTrials", "2 trials have errored")
    found = ask("status", sweeps.write(asked(0), end))
    assert found.exit_code == 0
    assert found.output.startswith("TrainSweep lr: Failed (TooManyFailedTrials): 2 trials have")
