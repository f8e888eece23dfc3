"""`trainrun run sweep.yaml`: trials that crash, are stopped, are killed with their driver."""

from __future__ import annotations

import random
import signal
import time
from os import environ
from pathlib import Path

import pytest

from tests.cli.sweeping.local_sweeps import Ended, Sweeps
from tests.support.levels import later_rare
from trainrun.sweep.records import Ask, SweepSession, Tell

KILLS = 3


def refusal(ended: Ended) -> str:
    assert ended.code == 2
    return ended.err


@pytest.mark.case(
    "sweeps", "A trial has more failures than its budget allows", counted="maxFailedTrials"
)
@pytest.mark.slow
def test_the_best_trial_is_found_though_one_fails_once_and_one_always(sweeps: Sweeps) -> None:
    sweeps.does = {1: "fails once", 2: "fails"}
    sweeps.trial = {"failurePolicy": {"maxFailures": 1}}
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    assert sweeps.states() == ["Succeeded", "Succeeded", "Errored", "Succeeded"]
    trials = sweeps.trials()
    assert [trial.restarts for trial in trials] == [0, 1, 1, 0]
    values = {it.number: it.value for it in trials if it.value is not None}
    best = ended.status["best"]
    assert best["trial"] == min(values, key=lambda number: values[number] or 0.0)
    assert best["step"] == 5
    assert ended.status["reason"] == "AllTrialsEnded"
    errored = ended.status["lastEnded"][2]
    assert errored["reason"] == "MaxFailuresExceeded"
    assert "ValueError: trial 2 cannot do step 1" in errored["message"]
    assert sweeps.begun(1)[1][1:3] == [2, 3], "attempt 2 went on from step 3"


@pytest.mark.slow
def test_parameters_arrive_as_a_dictionary_as_words_and_as_variables(sweeps: Sweeps) -> None:
    sweeps.spec = {"budget": {"trials": 1}}
    assert sweeps.run().code == 0
    ((_, _, _, params, arguments, variable),) = sweeps.begun()
    assert params == dict(sweeps.trials()[0].params)
    assert arguments == [f"--lr={params['lr']}"]
    assert variable == str(params["width"])


@pytest.mark.case("sweeps", "The process that leads the sweep is killed")
@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_goes_on_with_the_same_trials(
    sweeps: Sweeps,
) -> None:
    dice = random.Random(16)
    sweeps.env = {"STEPS": "40"}
    sweeps.spec = {"budget": {"trials": 6}}
    for _ in range(KILLS):
        driver = sweeps.start()
        time.sleep(dice.uniform(0.5, 3.0))  # the moment is what is tried here
        sweeps.kill(driver)
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    assert sweeps.states() == ["Succeeded"] * 6
    assert [it.trial for it in sweeps.records(Ask)] == list(range(6))
    assert sorted(it.trial for it in sweeps.records(Tell)) == list(range(6))
    assert len(sweeps.records(SweepSession)) == 1, "it is the same sweep"
    for trial in sweeps.trials():
        assert {str(row[3]) for row in sweeps.begun(trial.number)} == {str(dict(trial.params))}
        assert trial.step == 40
    again = sweeps.run()
    assert (again.code, again.status["reason"]) == (0, "AllTrialsEnded")


@pytest.mark.slow
def test_ctrl_c_saves_the_trials_and_the_same_command_goes_on_from_there(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "100", "PAUSE": "0.05"}
    sweeps.spec = {"budget": {"trials": 2}}
    driver = sweeps.start()
    sweeps.wait_for_starts(2)
    time.sleep(1.0)  # so that there is something to save
    driver.send_signal(signal.SIGINT)
    stopped = sweeps.end(driver)
    assert stopped.code == 130, stopped.err
    assert stopped.status["reason"] == "Interrupted"
    assert "saving all trials and stopping" in stopped.err
    assert sweeps.states() == ["Open", "Open"]
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    for number in (0, 1):
        first, second = sweeps.begun(number)
        assert first[2] == 0
        assert second[2] > 0, "it went on from what was saved"
        assert first[3] == second[3]
    assert sweeps.states() == ["Succeeded", "Succeeded"]


@pytest.mark.slow
def test_a_larger_budget_goes_on_with_a_sweep_that_has_ended(sweeps: Sweeps) -> None:
    sweeps.spec = {"budget": {"trials": 2}}
    assert sweeps.run().code == 0
    before = [dict(trial.params) for trial in sweeps.trials()]
    sweeps.spec = {"budget": {"trials": 3}}
    assert sweeps.run().code == 0
    assert sweeps.states() == ["Succeeded"] * 3
    assert [dict(trial.params) for trial in sweeps.trials()][:2] == before
    assert len(sweeps.begun()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "first_step"),
    later_rare([("resumeErrored", 3), ("restartErrored", 0)], by="tests/sweep/test_resuming.py"),
)
def test_an_errored_trial_is_taken_up_again_with_a_new_token(
    sweeps: Sweeps, flag: str, first_step: int
) -> None:
    sweeps.spec = {"budget": {"trials": 1}}
    sweeps.does = {0: "fails once"}
    failed = sweeps.run()
    assert (failed.code, failed.status["reason"]) == (1, "NoTrialSucceeded")
    assert sweeps.states() == ["Errored"]
    sweeps.does = {}
    sweeps.spec |= {"resume": {flag: True, "token": 1}}
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    (trial,) = sweeps.trials()
    assert (trial.state, trial.opening) == ("Succeeded", 2)
    assert [row[2] for row in sweeps.begun()] == [0, first_step]


@pytest.mark.case(
    "sweeps", "budget.activeTime is used up before a trial has a value", counted="the sweep fails"
)
@pytest.mark.slow
def test_time_that_is_used_up_before_a_trial_has_ended_is_a_failure_that_a_script_can_tell(
    sweeps: Sweeps,
) -> None:
    """It was a success, with exit code 0 and 0 of 4 trials ended."""
    sweeps.env = {"STEPS": "1000", "PAUSE": "0.05"}
    sweeps.spec = {"budget": {"trials": 4, "activeTime": "2s"}}
    ended = sweeps.run()
    assert (ended.code, ended.events[-1]["exitCode"]) == (1, 1)
    assert (ended.status["phase"], ended.status["reason"]) == ("Failed", "BudgetExhausted")
    assert "; 0 of 4 trials have ended, 0 with a value. Open" in ended.status["message"]
    assert sweeps.states() == ["Open", "Open"]
    sweeps.env = {}
    sweeps.spec["budget"]["activeTime"] = "1h"
    again = sweeps.run()
    assert (again.code, again.status["reason"]) == (0, "AllTrialsEnded")


@pytest.mark.slow
def test_a_target_ends_the_sweep_and_saves_the_trials_that_are_open(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "1000", "PAUSE": "0.05"}
    sweeps.spec = {"objective": {"metric": "loss", "goal": "minimize", "target": 1000}}
    ended = sweeps.run()
    assert (ended.code, ended.status["reason"]) == (0, "TargetReached")
    assert "the target is 1000" in ended.status["message"]
    assert sweeps.states() == ["Open", "Open"]


@pytest.mark.slow
def test_a_trial_of_which_the_loss_is_no_number_is_ended(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "1000", "PAUSE": "0.05"}
    sweeps.spec = {"budget": {"trials": 1}}
    sweeps.does = {0: "nan"}
    ended = sweeps.run()
    assert ended.code == 1
    (trial,) = sweeps.trials()
    assert (trial.state, trial.reason) == ("Diverged", "NotANumber")


@pytest.mark.slow
@pytest.mark.parametrize("name", later_rare(["TPE", "CmaEs"], by="tests/sweep/test_cma_sampler.py"))
def test_a_sampler_that_learns_chooses_and_a_killed_sweep_goes_on_with_what_it_chose(
    sweeps: Sweeps, name: str
) -> None:
    sweeps.spec = {"sampler": {"name": name, "seed": 3}, "budget": {"trials": 4}}
    sweeps.env = {"STEPS": "30"}
    driver = sweeps.start()
    sweeps.wait_for_starts(2)
    sweeps.kill(driver)
    before = [dict(trial.params) for trial in sweeps.trials()]
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    assert sweeps.states() == ["Succeeded"] * 4
    assert [dict(trial.params) for trial in sweeps.trials()][: len(before)] == before
    assert [trial.fallback for trial in sweeps.trials()] == [""] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "library"), [("TPE", "Optuna"), ("CmaEs", "cmaes")])
def test_without_its_library_a_sampler_is_refused_with_what_to_install(
    sweeps: Sweeps, tmp_path: Path, name: str, library: str
) -> None:
    (tmp_path / f"{library.lower()}.py").write_text("raise ImportError('not here')")
    sweeps.spec = {"sampler": {"name": name}}
    sweeps.environ = {"PYTHONPATH": f"{tmp_path}:{environ.get('PYTHONPATH', '')}"}
    said = refusal(sweeps.run())
    assert f"spec.sampler.name: {name} needs {library}" in said
    assert "pip install 'trainrun[sweep]'" in said


@pytest.mark.slow
def test_a_trial_that_is_worse_than_others_at_the_same_step_is_ended_early(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "300", "PAUSE": "0.02"}
    sweeps.spec = {
        "space": [{"name": "width", "choice": [1, 9]}, {"name": "lr", "choice": [0.5]}],
        "sampler": {"name": "Grid"},
        "earlyStopping": {"name": "ASHA", "options": {"minResource": 10, "reductionFactor": 2}},
        "maxConcurrent": 1,  # side by side the worse one may be ahead, and then nothing ends it
    }
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    trials = {trial.params["width"]: trial for trial in sweeps.trials()}
    assert trials[1].state == "Succeeded"
    assert (trials[9].state, trials[9].reason) == ("Stopped", "StoppedEarly")
    assert "was not among the best 1 of the 2 that had reached rung" in trials[9].message
    assert trials[9].step < 300
    assert ended.status["best"]["trial"] == trials[1].number


@pytest.mark.slow
def test_a_script_that_never_reports_the_objective_is_told_how(sweeps: Sweeps) -> None:
    sweeps.spec = {"budget": {"trials": 1}}
    sweeps.does = {0: "tells nothing"}
    assert sweeps.run().code == 1
    (trial,) = sweeps.trials()
    assert (trial.state, trial.reason) == ("Errored", "NoObjective")
    assert trial.message == (
        "the trial ended with success but never reported loss, only width: call "
        'trainrun.report({"loss": ...}, step=...)'
    )


@pytest.mark.slow
def test_trials_named_in_the_file_wait_or_end(sweeps: Sweeps) -> None:
    sweeps.spec = {"pausedTrials": [1], "budget": {"trials": 2}}
    paused = sweeps.run()
    assert paused.code == 130
    assert sweeps.states() == ["Succeeded", "Open"]
    sweeps.spec = {"stoppedTrials": [1], "budget": {"trials": 2}}
    assert sweeps.run().code == 0
    assert sweeps.states() == ["Succeeded", "Stopped"]
    assert sweeps.begun(1) == []


@pytest.mark.slow
def test_people_read_lines_and_a_summary(sweeps: Sweeps) -> None:
    sweeps.spec = {"budget": {"trials": 2}}
    sweeps.does = {1: "fails"}
    ended = sweeps.run("--plain")
    assert ended.code == 0
    lines = [line.partition("s  ")[2] for line in ended.out.splitlines()]
    assert any(line.startswith("trial 0 Running: starts with lr=0.") for line in lines)
    assert any(line.endswith("at step 5; the best so far") for line in lines)
    assert any("trial 1 Errored: MaxFailuresExceeded" in line for line in lines)
    assert "TrainSweep lr: Succeeded (AllTrialsEnded)" in ended.out
    assert "trials       2/2 ended: 1 succeeded, 1 errored" in ended.out
    assert "best         trial 0: loss " in ended.out
    assert "errored      trial 1: rank 0 exited with code 1: ValueError" in ended.out


@pytest.mark.slow
def test_one_process_at_a_time_leads_a_sweep(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "100000"}
    driver = sweeps.start()
    sweeps.wait_for_starts(1)
    said = refusal(sweeps.run())
    assert f"is being led by process {driver.pid}" in said
    assert driver.poll() is None


@pytest.mark.slow
def test_a_script_that_is_not_there_is_named_before_anything_starts(sweeps: Sweeps) -> None:
    sweeps.command = ("python", "trail.py")
    assert "there is no script" in refusal(sweeps.run())
    assert not sweeps.storage.exists()


@pytest.mark.slow
def test_a_parameter_that_does_not_exist_is_named_before_anything_starts(sweeps: Sweeps) -> None:
    sweeps.command = ("python", "trial_$(TRAINRUN_PARAM_MODEL).py")
    said = refusal(sweeps.run())
    assert (
        "spec.run.workers.template.spec.containers[0].command[1]: "
        '"trial_$(TRAINRUN_PARAM_MODEL).py" is not allowed: it must not refer to '
        "TRAINRUN_PARAM_MODEL: no parameter of space or fixed sets it; known: "
        "TRAINRUN_PARAM_LR, TRAINRUN_PARAM_WIDTH"
    ) in said
    assert not sweeps.storage.exists()


@pytest.mark.slow
def test_a_script_that_only_one_choice_lacks_is_the_error_of_its_trials(sweeps: Sweeps) -> None:
    sweeps.command = ("python", "$(TRAINRUN_PARAM_FILE).py")
    sweeps.spec = {
        "space": [
            {"name": "file", "choice": ["trial", "other"]},
            {"name": "lr", "choice": [0.5]},
            {"name": "width", "choice": [1]},
        ],
        "firstTrials": [{"file": "other"}, {"file": "trial"}],
        "budget": {"trials": 2},
    }
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    assert sweeps.states() == ["Errored", "Succeeded"]
    errored = sweeps.trials()[0]
    assert errored.reason == "InvalidSpec"
    assert errored.message == (
        "spec.run.workers.template.spec.containers[0].command: there is no script "
        f"{sweeps.folder}/other.py"
    )


@pytest.mark.slow
def test_a_script_that_is_deleted_while_the_sweep_runs_ends_it_once(sweeps: Sweeps) -> None:
    sweeps.env = {"STEPS": "20"}
    sweeps.spec = {"maxConcurrent": 1}
    driver = sweeps.start()
    sweeps.wait_for_starts(1)
    (sweeps.folder / "trial.py").unlink()
    assert "there is no script" in refusal(sweeps.end(driver))
    assert len(sweeps.begun()) == 1, "the other trials were not spent on it"


@pytest.mark.slow
def test_a_fault_on_demand_is_refused(sweeps: Sweeps) -> None:
    assert "--fault needs a TrainRun" in refusal(sweeps.run("--fault", "kill rank=0 step=3"))


@pytest.mark.slow
def test_a_field_that_is_wrong_is_named(sweeps: Sweeps) -> None:
    sweeps.spec = {"maxConcurrent": 0, "objective": {"metric": "loss", "goal": "less"}}
    said = refusal(sweeps.run())
    assert "spec.maxConcurrent" in said
    assert "spec.objective.goal" in said


@pytest.mark.case("sweeps", "Another search uses the same folder", counted="refused")
@pytest.mark.slow
def test_another_search_in_the_same_folder_is_refused_by_its_field(sweeps: Sweeps) -> None:
    sweeps.spec = {"budget": {"trials": 1}}
    assert sweeps.run().code == 0
    sweeps.spec = {
        "budget": {"trials": 2},
        "objective": {"metric": "loss", "goal": "maximize"},
        "resume": {"token": 1},
    }
    ended = sweeps.run()
    assert (ended.code, ended.status["reason"]) == (1, "SpecChanged")
    assert "objective.goal" in ended.status["message"]
    assert len(sweeps.trials()) == 1


@pytest.mark.case(
    "sweeps", "A record of a sweep's log is missing or damaged", counted="the sweep stops"
)
@pytest.mark.slow
def test_a_damaged_log_is_named_and_nothing_is_guessed(sweeps: Sweeps) -> None:
    sweeps.spec = {"budget": {"trials": 1}}
    assert sweeps.run().code == 0
    record = sweeps.storage / "lr" / "log" / "000000002.json"
    record.write_text("noise")
    said = refusal(sweeps.run())
    assert "log/000000002.json" in said
    assert "put the object back" in said


@pytest.mark.slow
def test_only_the_best_trials_keep_their_checkpoints_and_all_can_be_explained(
    sweeps: Sweeps,
) -> None:
    sweeps.does = {3: "tells nothing"}
    sweeps.spec = {"retention": {"bestCheckpoints": 1}, "maxConcurrent": 1}
    ended = sweeps.run()
    assert ended.code == 0, ended.err
    values = {it.number: it.value for it in sweeps.trials() if it.value is not None}
    best = min(values, key=lambda number: values[number])
    folders = {it.name: it for it in (sweeps.storage / "lr" / "trials").iterdir()}
    for number in range(4):
        folder = folders[f"{number:05}"]
        kept = bool(list((folder / "checkpoints").glob("*/manifest.json")))
        assert kept == (number in (best, 3)), "the best one, and the errored one"
        assert (folder / "story").exists()
