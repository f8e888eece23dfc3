"""`trainrun sweep pause|stop|resume|status` where nobody leads the sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.support.sweeps import asked, reported, told
from trainrun.sweep.records import End
from trainrun_operator.cli.commands import trainrun


def ask(*words: str | Path | int) -> Result:
    return CliRunner().invoke(trainrun, ["sweep", *map(str, words)])


@pytest.fixture
def file(sweeps: Sweeps) -> Path:
    """Of five trials one has ended, two are open, two have not begun; with comments."""
    sweeps.spec = {"budget": {"trials": 5}}
    path = sweeps.write(asked(0), asked(1), asked(2), told(0), reported(2, s1=0.25))
    text = path.read_text().replace("spec:\n", "spec:  # what is wanted\n", 1)
    path.write_text(f"# mine\n{text}")
    path.chmod(0o640)
    return path


def lists(file: Path) -> tuple[object, object, object]:
    spec = yaml.safe_load(file.read_text())["spec"]
    return spec.get("suspend"), spec.get("pausedTrials"), spec.get("stoppedTrials")


def test_pausing_changes_that_field_alone_and_keeps_comments_and_mode(file: Path) -> None:
    before = file.read_text()
    paused = ask("pause", file, 1)
    assert paused.exit_code == 0, paused.output
    (line,) = paused.output.splitlines()
    assert line == (
        f"{file}: trial 1 is paused; no process leads the sweep on this machine, "
        f"`trainrun run {file}` goes by it"
    )
    assert file.read_text() == before.replace("wanted\n", "wanted\n  pausedTrials: [1]\n", 1)
    assert file.stat().st_mode & 0o777 == 0o640
    assert {it.name for it in file.parent.iterdir()} == {"storage", "sweep.yaml", "trial.py"}
    again = ask("pause", file, 1)
    assert again.output == f"{file}: nothing had to be changed: trial 1 is paused\n"


def test_a_paused_trial_is_resumed_or_stopped_for_good(file: Path) -> None:
    ask("pause", file, 1, 2, 3)
    assert "trial 2 is not paused; no process" in ask("resume", file, 2).output
    assert lists(file) == (None, [1, 3], None)
    assert "trial 3 is stopped for good" in ask("stop", file, 3).output
    assert lists(file) == (None, [1], [3])
    for verb, said in (("pause", "paused"), ("resume", "resumed")):
        refused = ask(verb, file, 3)
        assert refused.exit_code == 2
        assert f"trial 3 cannot be {said}: spec.stoppedTrials" in refused.output
    assert lists(file) == (None, [1], [3])


def test_without_a_number_the_whole_sweep_waits_and_goes_on(file: Path) -> None:
    assert "all trials are to be saved and wait" in ask("pause", file).output
    ask("pause", file, 1)
    assert "note: spec.suspend is true" in ask("resume", file, 1).output
    ask("pause", file, 1)
    assert lists(file) == (True, [1], None)
    assert "all trials may go on" in ask("resume", file).output
    assert lists(file) == (False, [], None)
    assert ask("resume", file).output.endswith("nothing had to be changed: all trials may go on\n")


def test_trials_that_have_ended_or_not_begun_are_told_of(file: Path) -> None:
    stopped = ask("stop", file, 0, 4)
    assert stopped.exit_code == 0
    first, second, done = stopped.output.splitlines()
    assert first == "note: trial 0 has ended (Succeeded)"
    assert second == "note: trial 4 has not begun yet"
    assert "trial 4 is stopped for good" in done
    assert lists(file)[2] == [4]
    only_ended = ask("pause", file, 0)
    assert only_ended.exit_code == 0
    assert only_ended.output.endswith(f"{file}: nothing had to be changed\n")


def test_a_number_beyond_the_budget_is_refused(file: Path) -> None:
    before = file.read_text()
    refused = ask("pause", file, 1, 5)
    assert refused.exit_code == 2
    assert "there is no trial 5: the budget is 5 trials, which are counted from 0" in refused.output
    assert file.read_text() == before


def test_a_file_that_cannot_be_edited_safely_is_left_as_it_is(file: Path) -> None:
    file.write_text(json.dumps(yaml.safe_load(file.read_text())))
    before = file.read_text()
    refused = ask("pause", file, 1)
    assert refused.exit_code == 2
    assert refused.output.count("\n") == 1
    assert "write by hand: spec.pausedTrials: [1]" in refused.output
    assert file.read_text() == before


def test_a_folder_cannot_be_told_what_to_do(file: Path, sweeps: Sweeps) -> None:
    for where in (sweeps.storage / "lr", f"{sweeps.storage.as_uri()}/lr"):
        refused = ask("pause", where, 1)
        assert refused.exit_code == 2
        assert refused.output.count("\n") == 1
        assert "what it is to do stands in its YAML file, or in the TrainSweep" in refused.output
    assert lists(file)[1] is None


def test_what_was_changed_can_be_had_as_json(file: Path) -> None:
    done = json.loads(ask("pause", file, 1, 4, "--json").output)
    assert done == {
        "sweep": str(file),
        "changed": {"pausedTrials": [1, 4]},
        "outcome": "trials 1, 4 are paused",
        "notes": ["trial 4 has not begun yet"],
    }


def test_a_link_to_the_file_stays_one(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert ask("pause", link, 1).exit_code == 0
    assert link.is_symlink()
    assert lists(file) == (None, [1], None)


def test_the_status_tells_where_a_sweep_stands_as_its_log_says(file: Path, sweeps: Sweeps) -> None:
    errored = told(1, "Errored", reason="AppError", message="why\nmore")
    file = sweeps.write(errored)
    assert ask("status", file).output.splitlines() == [
        "TrainSweep lr: Running (Unfinished): its log has no end, and cannot tell whether somebody "
        "works on it now",
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
