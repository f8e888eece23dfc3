"""`trainrun run sweep.yaml` over a log of which somebody has put back an older state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.sweeping.local_sweeps import Sweeps
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.sweep.records import Ask, LogEntry


def lose_records(sweeps: Sweeps, *, trial: int) -> list[Path]:
    """Delete the log from the record on that has asked this trial; returns what was deleted."""
    log = sorted((sweeps.storage / "lr/log").glob("*.json"))
    asked = next(it for it, path in enumerate(log) if f'"trial":{trial}}}' in path.read_text())
    for path in log[asked:]:
        path.unlink()
    return log[asked:]


@pytest.mark.case("sweeps", "The newest records of a sweep's log are lost")
@pytest.mark.slow
def test_a_trial_that_is_asked_again_runs_in_a_folder_of_its_own(sweeps: Sweeps) -> None:
    """It went on from the checkpoint of the old trial of its number, or succeeded unseen."""
    sweeps.spec = {"budget": {"trials": 2}}
    sweeps.env = {"PAUSE": "0.3"}
    driver = sweeps.start()
    sweeps.wait_for_starts(2)
    sweeps.kill(driver)
    lose_records(sweeps, trial=1)
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    assert "trial 1 starts in the new folder 00001-i2: 00001 holds a trial whose" in ended.err
    assert [row[1:3] for row in sweeps.begun(1)] == [[1, 0], [1, 0]], "both began from scratch"
    assert sweeps.trials()[1].incarnation == 2
    assert (sweeps.storage / "lr/trials/00001/run.json").is_file(), "nothing of the old is lost"


@pytest.mark.case(
    "sweeps", "A trial finds the folder of a trial with other parameters", counted="maxFailedTrials"
)
@pytest.mark.slow
def test_a_trial_of_other_parameters_is_not_said_to_have_succeeded(sweeps: Sweeps) -> None:
    """It was told the value of the parameters that the folder is of, and `best` named its own."""
    sweeps.spec = {"budget": {"trials": 1}}
    assert sweeps.run().code == 0
    params = dict(sweeps.trials()[0].params)
    lost = lose_records(sweeps, trial=0)
    folder = RunStore(open_store(sweeps.storage.as_uri()), "lr")
    folder.write_once(f"log/{lost[0].name}", LogEntry(Ask(0, {"lr": 0.05, "width": 9})))
    ended = sweeps.run()
    assert (ended.code, ended.status["reason"]) == (1, "NoTrialSucceeded")
    (errored,) = sweeps.trials()
    assert (errored.state, errored.reason) == ("Errored", "StorageNotEmpty")
    assert (
        f'trials/00000 holds a trial with the parameters {{"lr": {params["lr"]}' in errored.message
    )
    assert 'but this trial has {"lr": 0.05, "width": 9}: they come' in errored.message
    sweeps.spec |= {"resume": {"restartErrored": True, "token": 1}}
    assert sweeps.run().code == 0
    assert [row[3]["width"] for row in sweeps.begun()] == [params["width"], 9]
