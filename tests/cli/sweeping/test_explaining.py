"""`trainrun explain` of a sweep: the life of a search from its log and its trials' folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.stories import a_folder, a_life
from tests.cli.sweeping.local_sweeps import Sweeps
from tests.support.sweeps import asked, reported, told
from trainrun.sweep.records import Ask, End, Record, SweepSession
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.explaining.search_life import MOST_READ
from trainrun_operator.cli.explaining.search_report import MOST_SHOWN
from trainrun_operator.worlds.local.driver_lock import acquire
from trainrun_operator.worlds.local.place import place_of

OVER = End("Succeeded", "AllTrialsEnded", "all 2 trials have ended, 1 with success")


def explain(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["explain", *map(str, words)])


def story(*words: str | Path) -> str:
    """Its text, as if lines had no end."""
    found = explain(*words)
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


def squeezed(text: str) -> str:
    """Without spaces: a path that is longer than a line is broken anywhere."""
    return "".join(text.split())


def as_json(*words: str | Path) -> dict[str, Any]:
    found = explain(*words, "--json")
    assert found.exit_code == 0, found.output
    told: dict[str, Any] = json.loads(found.output)
    return told


def errored(trial: int, **changes: Any) -> Record:
    given = {"reason": "MaxFailuresExceeded", "message": f"why {trial}\nTraceback", "restarts": 1}
    return told(trial, "Errored", **{**given, **changes})


@pytest.mark.slow
def test_a_search_with_a_trial_that_errored_is_told_from_its_folder_alone(sweeps: Sweeps) -> None:
    sweeps.does = {0: "fails once", 1: "fails"}
    sweeps.trial = {"failurePolicy": {"maxFailures": 1}}
    sweeps.spec = {"budget": {"trials": 3}}
    ended = sweeps.run("--plain")
    assert ended.code == 0, ended.err
    assert "spec.run.failurePolicy.maxFailures is 1 and 1 was used" in ended.out
    assert "spec.failurePolicy" not in ended.out
    folder = sweeps.storage / "lr"
    found = story(folder)
    for part in (
        "Sweep lr succeeded (AllTrialsEnded): all 3 trials have ended, 2 with success.",
        "It searched lr from 0.001 to 0.1 (log) and width from 1 to 9 for the smallest loss, by "
        "Random.",
        "in 1 session: 3 trials, 2 succeeded, 1 errored; 2 restarts.",
        "2 trials with trouble took ",
        "What failed (MaxFailuresExceeded 1):",
        "trial 1 errored (MaxFailuresExceeded) after 1 restart: rank 0 exited with code 1: "
        "ValueError: trial 1 cannot do step 1 (AppError); spec.run.failurePolicy.maxFailures is 1",
        "read the last lines of the rank named",
        "AppError 2 times (rank 0, node lr-00001-0-1, trial.py:27)",
        f"trainrun explain {folder.as_uri()}/trials/00001",
        "Restarted (1): trial 0 succeeded after 1 restart with loss",
        "2 trials succeeded: loss from ",
        "Best: trial ",
        "1 trial errored: fix what failed, set spec.resume.resumeErrored: true and "
        "spec.resume.token: 1, then `trainrun run` of the sweep's file; they resume from what they "
        "saved, with new failure budgets",
    ):
        assert part in found, found
    (_, second) = as_json(folder)["told"]
    assert [it["cause"] for it in second["incidents"]] == ["AppError", "AppError"]
    assert second["workerSeconds"] > 0
    assert "spec.failurePolicy" not in second["message"]


def test_each_kind_of_end_has_its_place(sweeps: Sweeps) -> None:
    records = (
        *map(asked, range(4)),
        Ask(4, {"lr": 0.5}, fallback="the sampler has failed: LinAlgError: singular"),
        told(0, value="0.5", step=7),
        told(1, "Diverged", reason="NotANumber", message="its loss was not a number"),
        told(2, "Stopped", reason="StoppedEarly", message="not among the best", value="2", step=3),
        errored(3),
        told(4, value="0.25", step=9, opening=2),
        SweepSession(uid="other", resume_unfinished=False),
        OVER,
    )
    used = sweeps.storage / "lr/trials/00004/run.json"
    used.parent.mkdir(parents=True)
    used.write_text("of a trial that the log does not know")
    found = story(sweeps.write(*records))
    for part in (
        "in 2 sessions: 5 trials, 2 succeeded, 1 errored, 1 diverged, 1 stopped; 1 restart.",
        "trial 3 errored (MaxFailuresExceeded) after 1 restart: why 3 lr=0.4",
        "trial 1 diverged (NotANumber): its loss was not a number lr=0.2",
        "Stopped early (1): trial 2 stopped (StoppedEarly) with loss 2 at step 3: not",
        "1 trial drawn at random (4): the sampler has failed: LinAlgError: singular",
        "the log has lost records: 1 trial (4) started in a new folder, since an earlier trial "
        "had used the folder of that number",
        "2 trials succeeded: loss from 0.25 to 0.5, median 0.375.",
        "Best: trial 4, loss 0.25 at step 9: lr=0.5",
        "the sampler failed for 1 of 5 trials",
    ):
        assert part in found, found
    assert "Traceback" not in found, "the first line of a message is enough"


def test_open_trials_of_an_earlier_session_are_told_as_skipped(sweeps: Sweeps) -> None:
    found = story(sweeps.write(asked(0), SweepSession(uid="other", resume_unfinished=False)))
    assert "Skipped (1): trial 0 skipped (ResumeUnfinishedFalse): the trial was unfinished" in found


def test_an_unfinished_search_says_since_when_nothing_was_written_and_how_to_go_on(
    sweeps: Sweeps,
) -> None:
    file = sweeps.write(asked(0), reported(0, s1=0.25))
    found = story(file)
    assert "Sweep lr has not ended, and no process on this machine leads it" in found
    assert "1 trial with parameters, 1 open. Its log was last written at 20" in found
    assert "Open (1): trial 0 is open, in attempt 1 with loss 0.25 at step 1" in found
    assert "Best: trial 0, loss 0.25 at step 1, so far" in found
    wanted = f"continue with trainrun run {file}; 1 trial will resume from saved checkpoints"
    assert squeezed(wanted) in squeezed(found)
    (advice,) = as_json(file)["advice"]
    assert (advice["kind"], advice["numbers"]) == ("Unfinished", {"open": 1})


def test_what_the_file_holds_back_is_to_be_let_go_on_first(sweeps: Sweeps) -> None:
    sweeps.spec = {"suspend": True, "pausedTrials": [0]}
    found = story(sweeps.write(asked(0)))
    assert "set spec.suspend: false and empty spec.pausedTrials, then trainrun run" in found


def test_a_search_that_a_process_leads_is_left_alone(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0))
    lock = place_of(sweeps.storage.as_uri(), "lr", environ=os.environ).lock
    lock.parent.mkdir(parents=True)
    held = acquire(lock, run="lr")
    found = story(file)
    held.release()
    assert f"Sweep lr is running, led by process {os.getpid()} on this machine" in found
    assert "What to do next: nothing." in found


@pytest.mark.parametrize(
    ("reason", "field"),
    [
        ("BudgetExhausted", "raise spec.budget.activeTime"),
        ("TooManyFailedTrials", "raise spec.maxFailedTrials"),
        ("TargetReached", "change spec.objective.target"),
        ("AllTrialsEnded", "raise spec.budget.trials"),
    ],
)
def test_an_end_says_what_lifts_it(sweeps: Sweeps, reason: str, field: str) -> None:
    file = sweeps.write(asked(0), told(0), End("Succeeded", reason, "so it is"))
    assert squeezed(f"{field}; then trainrun run {file}") in squeezed(story(file))


def test_trials_that_never_reported_the_objective_are_to_begin_again(sweeps: Sweeps) -> None:
    silent = errored(0, reason="NoObjective")
    assert "set spec.resume.restartErrored: true" in story(sweeps.write(asked(0), silent, OVER))


def test_another_token_than_the_newest_is_named(sweeps: Sweeps) -> None:
    again = SweepSession(uid="me", token=4)
    assert "spec.resume.token: 5" in story(sweeps.write(again, asked(0), errored(0), OVER))


def test_what_ended_the_attempts_of_a_trial_is_told_from_its_own_folder(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0), errored(0), OVER)
    a_folder(sweeps.storage / "lr" / "trials", *a_life(), name="00000")
    found = story(file)
    assert "NodeLost (node n7), AppError (rank 2, node n7); 1159 min of worker time" in found
    assert "read the last lines of the rank named" in found


def test_a_node_that_fails_several_trials_is_named(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0), asked(1), errored(0), errored(1))
    for name in ("00000", "00001"):
        a_folder(sweeps.storage / "lr" / "trials", *a_life(), name=name)
    assert "node n7 caused 4 of 4 incidents, in 2 trials: check it" in story(file)


@pytest.mark.slow
def test_of_many_trials_with_trouble_the_newest_are_read_and_the_others_counted(
    sweeps: Sweeps,
) -> None:
    many = range(MOST_READ + 5)
    file = sweeps.write(*map(asked, many), *map(errored, many))
    for number in many:
        a_folder(sweeps.storage / "lr" / "trials", *a_life()[:2], name=f"{number:05}")
    found = story(file)
    assert f"{len(many)} trials errored, diverged or were restarted; the folders of the" in found
    assert f"and {len(many) - MOST_SHOWN} older ones; to list all: trainrun sweep trials" in found
    assert "trial 24 errored" in found
    assert "trial 14 errored" not in found
    rows = as_json(file)["told"]
    assert [row["trial"] for row in rows if row["incidents"] is None] == [0, 1, 2, 3, 4]


def test_no_line_is_wider_than_80_columns_but_those_to_copy(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0), asked(1), errored(0, message="x " * 200), told(1), OVER)
    output = explain(file).output.splitlines()
    lines = [it for it in output if "  trainrun " not in it and "file://" not in it]
    assert max(map(len, lines)) < 80


def test_a_file_that_describes_another_search_is_told_so(sweeps: Sweeps) -> None:
    sweeps.write(asked(0))
    sweeps.spec = {"sampler": {"seed": 7}}
    assert "describes another sweep than the log (spec.sampler.seed)" in story(sweeps.file())


def test_a_sweep_in_one_line_of_json_is_a_sweep(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0))
    one_line = file.with_suffix(".json")
    one_line.write_text(json.dumps(yaml.safe_load(file.read_text())))
    assert as_json(one_line)["uri"] == as_json(file)["uri"]
    refused = CliRunner().invoke(trainrun, ["run", str(one_line), "--fault", "kill rank=0 step=3"])
    assert "the trials of a TrainSweep share no step" in refused.output


def test_what_is_for_runs_names_the_folder_of_a_trial(sweeps: Sweeps) -> None:
    file = sweeps.write(asked(0))
    found = explain(file, "--generation", "1")
    assert found.exit_code == 2
    assert found.output == (
        f"error: --generation applies to runs, and {file} is a sweep: name the folder of a trial, "
        f"such as {sweeps.storage.as_uri()}/lr/trials/00000\n"
    )


def test_the_page_of_a_search_draws_its_values_and_the_best_so_far(sweeps: Sweeps) -> None:
    values = ("0.5", "2", "0.25")
    records = (told(number, value=value) for number, value in enumerate(values))
    file = sweeps.write(*map(asked, range(3)), *records, OVER)
    page = sweeps.storage / "sweep.html"
    assert explain(file, "--html", page).exit_code == 0
    text = page.read_text()
    assert "<title>Sweep lr</title>" in text
    assert "<b>2</b><svg" in text
    assert 'd="M0.0 171.4 L0.0 171.4 L500.0 171.4 L1000.0 200.0"' in text


@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_log_is_named_and_nothing_is_guessed(sweeps: Sweeps, number: int) -> None:
    file = sweeps.write(asked(0), told(0))
    record = sweeps.storage / "lr" / "log" / f"00000000{number}.json"
    record.unlink()
    for where in (file, sweeps.storage / "lr"):
        found = explain(where)
        assert found.exit_code == 2
        assert f"log/00000000{number}.json: it is missing, but record 3 exists" in found.output


def test_a_sweep_that_was_never_begun_is_told_so(sweeps: Sweeps) -> None:
    sweeps.storage.mkdir()
    found = explain(sweeps.file())
    assert found.exit_code == 2
    assert "there is no log of a sweep" in found.output
