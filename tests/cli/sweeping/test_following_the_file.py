"""A sweep that runs follows its file."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from tests.cli.sweeping.local_sweeps import Ended, Sweeps
from tests.support.eventually import eventually


@pytest.fixture
def slow(sweeps: Sweeps) -> Sweeps:
    """Trials that work until something else happens, one at a time."""
    sweeps.env = {"STEPS": "4000", "PAUSE": "0.05"}
    sweeps.spec = {"budget": {"trials": 2}, "maxConcurrent": 1}
    return sweeps


def write(sweeps: Sweeps, **fields: object) -> None:
    """As an editor does: these fields of the spec, and all else as it was."""
    document = yaml.safe_load((sweeps.folder / "sweep.yaml").read_text())
    document["spec"].update(fields)
    sweeps.save(yaml.safe_dump(document))


def has_value(sweeps: Sweeps, trial: int) -> bool:
    return bool(sweeps.view().trials[trial].curve)


def stop(sweeps: Sweeps, driver: subprocess.Popen[str]) -> Ended:
    write(sweeps, suspend=True)
    return sweeps.end(driver)


@pytest.mark.slow
def test_a_paused_trial_is_saved_and_waits_and_goes_on_from_there(slow: Sweeps) -> None:
    driver = slow.start()
    slow.wait_for_starts(1)
    eventually(lambda: has_value(slow, 0), what="trial 0 has reported")
    write(slow, pausedTrials=[0])
    slow.wait_for_starts(2)
    assert [row[0] for row in slow.begun()] == [0, 1], "the next one has its place"
    write(slow, pausedTrials=[1])
    slow.wait_for_starts(3)
    number, _, first_step, *_ = slow.begun()[-1]
    assert number == 0
    assert first_step > 0, "it goes on from what was saved"
    assert slow.states() == ["Open", "Open"]
    stopped = stop(slow, driver)
    assert stopped.code == 130, stopped.err
    assert stopped.status["reason"] == "Suspended"
    *paused, last = [line.partition(" changed; applying ")[2] for line in stopped.err.splitlines()]
    # One number in the place of another is told as `pausedTrials[0]`.
    assert {name.partition("[")[0] for name in paused} == {"pausedTrials"}
    assert last == "suspend"


@pytest.mark.slow
def test_a_stopped_trial_ends_for_good_while_the_sweep_runs(slow: Sweeps) -> None:
    driver = slow.start()
    slow.wait_for_starts(1)
    write(slow, stoppedTrials=[0])
    slow.wait_for_starts(2)
    assert slow.states() == ["Stopped", "Open"]
    write(slow, stoppedTrials=[0, 1])
    ended = slow.end(driver)
    values = sum(trial.value is not None for trial in slow.trials())
    assert slow.states() == ["Stopped", "Stopped"]
    assert ended.code == (0 if values else 1), "it has a result where one of them had a value"


@pytest.mark.slow
def test_a_raised_budget_and_a_new_run_are_taken_up_while_it_runs(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "60", "PAUSE": "0.05"}
    sweeps.spec = {"budget": {"trials": 1}}
    driver = sweeps.start()
    sweeps.wait_for_starts(1)
    sweeps.spec = {"budget": {"trials": 3}, "maxConcurrent": 3}
    sweeps.env = {"STEPS": "7", "PAUSE": "0.05"}
    sweeps.file()
    ended = sweeps.end(driver)
    assert ended.code == 0, ended.err
    assert "changed; applying budget.trials, maxConcurrent, run.workers.template.spec" in ended.err
    assert [trial.step for trial in sweeps.trials()] == [60, 7, 7], "new trials are as it says now"


@pytest.mark.slow
def test_a_new_token_takes_errored_trials_up_while_it_runs(slow: Sweeps) -> None:
    slow.does = {0: "fails once"}
    driver = slow.start()
    slow.wait_for_starts(2)
    assert slow.states() == ["Errored", "Open"]
    slow.spec |= {"resume": {"resumeErrored": True, "token": 1}, "maxConcurrent": 2}
    slow.file()
    slow.wait_for_starts(3)
    assert slow.begun()[-1][:3] == [0, 2, 3]
    taken_up = slow.file().read_text()
    slow.spec |= {"resume": {}}
    slow.file()
    slow.wait_for(driver, "spec.resume.token: 0 is less than 1")
    slow.save(taken_up)
    assert stop(slow, driver).code == 130
    assert len(slow.view().sessions) == 2


@pytest.mark.case("sweeps", "The sweep's file is half saved, wrong or gone while it runs")
@pytest.mark.slow
def test_a_file_that_is_wrong_changes_nothing_and_is_complained_of_once(slow: Sweeps) -> None:
    driver = slow.start()
    slow.wait_for_starts(1)
    good = (slow.folder / "sweep.yaml").read_text()
    slow.save(good + "spec: [\n")
    slow.wait_for(driver, "not valid YAML")
    slow.save(good + "spec: [\n")  # once more, in another file
    for change, said in (
        ({"objective": {"metric": "loss", "goal": "maximize"}}, "objective.goal cannot change"),
        ({"storage": {"uri": "file:///elsewhere"}}, "storage.uri cannot change"),
        ({"maxConcurrent": 0}, "1 problem: spec.maxConcurrent"),
    ):
        document = yaml.safe_load(good)
        document["spec"] |= change
        slow.save(yaml.safe_dump(document))
        slow.wait_for(driver, said)
    slow.save(good.replace("name: lr\nspec:", "name: other\nspec:"))
    slow.wait_for(driver, "metadata.name cannot change")
    (slow.folder / "sweep.yaml").unlink()
    slow.wait_for(driver, "cannot be read")
    slow.file()
    stopped = stop(slow, driver)
    assert stopped.code == 130
    *complaints, taken_up = stopped.err.splitlines()
    assert len(complaints) == 6, stopped.err
    assert all("trainrun: the sweep continues unchanged: /" in line for line in complaints)
    assert taken_up.endswith("changed; applying suspend")
    assert len(slow.begun()) == 1, "the trial was not disturbed"


@pytest.mark.slow
def test_more_trials_at_a_time_than_there_are_gpus_for_are_refused_while_it_runs(
    slow: Sweeps,
) -> None:
    slow.environ = {"CUDA_VISIBLE_DEVICES": "0,1"}
    document = yaml.safe_load(slow.file().read_text())
    (container,) = document["spec"]["run"]["workers"]["template"]["spec"]["containers"]

    def text(gpus: int, trials: int) -> str:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        document["spec"]["maxConcurrent"] = trials
        return yaml.safe_dump(document)

    driver = slow.start(text=text(1, 1))
    slow.wait_for_starts(1)
    slow.save(text(1, 3))
    slow.wait_for(driver, "at most 2 trials can run at the same time")
    slow.save(text(2, 1))
    slow.wait_for(driver, "GPUs per trial cannot change from 1 to 2")
    slow.save(text(1, 2))
    slow.wait_for_starts(2)
    assert stop(slow, driver).code == 130
