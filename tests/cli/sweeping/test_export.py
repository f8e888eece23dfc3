"""`trainrun sweep export`: trials for Optuna's tools and for tables."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from io import StringIO
from os import environ
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.cli.sweeping.written_logs import ask
from tests.support.sweeps import reported, told
from trainrun.sweep.records import Ask

SPACE: list[dict[str, Any]] = [
    {"name": "lr", "float": {"low": 1e-4, "high": 1.0, "log": True}},
    {"name": "step", "int": {"low": 0, "high": 9, "step": 3}},
    {"name": "bias", "choice": [1, True, "1"]},
    {"name": "kind", "choice": ["sgd", "adamw"]},
    {"name": "momentum", "float": {"low": 0, "high": 1}, "when": [{"name": "kind", "in": ["sgd"]}]},
]
PARAMS: dict[str, Any] = {"lr": 0.1, "step": 3, "bias": True, "kind": "adamw", "epochs": 7}


@pytest.fixture
def file(sweeps: Sweeps) -> Path:
    sweeps.spec = {
        "space": SPACE,
        "fixed": {"epochs": 7},
        "objective": {"metric": "accuracy", "goal": "maximize"},
    }
    asked = [Ask(n, PARAMS) for n in range(4)]
    asked.append(Ask(4, {**PARAMS, "kind": "sgd", "momentum": 0.9}))
    reports = [reported(n, s1=0.1, s2=0.2 + n) for n in (0, 1, 4)]
    return sweeps.write(
        *asked,
        *reports,
        reported(2, s1=math.nan),
        told(0, value="0.2", step=2, restarts=3),
        told(1, "Stopped", reason="StoppedEarly", value="1.2", step=2),
        told(2, "Diverged", reason="NotANumber", value="nan", step=1),
        told(3, "Errored", reason="MaxFailures", message="why, at length"),
    )


def test_optuna_opens_the_journal_with_all_trials(file: Path, tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    done = ask("export", file, "--optuna", journal)
    assert (done.exit_code, done.output) == (0, f"{journal}: study lr with 5 trials\n")
    storage = JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.load_study(study_name="lr", storage=storage)
    assert study.direction.name == "MAXIMIZE"
    assert study.metric_names == ["accuracy"]
    assert study.best_trial.number == 0
    states = [it.state for it in study.trials]
    fail = TrialState.FAIL
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, fail, fail, TrialState.RUNNING]
    assert [it.value for it in study.trials] == [0.2, 1.2, None, None, None]
    assert study.trials[4].intermediate_values == {1: 0.1, 2: 4.2}
    assert math.isnan(study.trials[2].intermediate_values[1])


def test_optuna_knows_the_space_and_what_became_of_a_trial(file: Path, tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    assert ask("export", file, "--optuna", journal).exit_code == 0
    storage = JournalStorage(JournalFileBackend(str(journal)))
    trials = optuna.load_study(study_name="lr", storage=storage).trials
    # 1, true and "1" are three options, of which Python takes two for the same.
    assert trials[0].params == {"lr": 0.1, "step": 3, "bias": "true", "kind": "adamw"}
    assert trials[4].params["momentum"] == 0.9
    lr = trials[0].distributions["lr"]
    assert lr == optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
    assert trials[0].user_attrs["restarts"] == 3
    assert trials[3].user_attrs == {
        "trial": 3,
        "state": "Errored",
        "reason": "MaxFailures",
        "message": "why, at length",
        "restarts": 0,
        "fixed": {"epochs": 7},
    }


def test_a_table_has_a_row_for_each_trial_and_a_column_for_each_parameter(
    file: Path, tmp_path: Path
) -> None:
    table = tmp_path / "trials.csv"
    assert ask("export", file, "--csv", table).output == f"{table}: 5 trials\n"
    on_stdout = ask("export", file, "--csv", "-")
    assert (on_stdout.exit_code, on_stdout.output) == (0, table.read_text())
    rows = list(csv.DictReader(StringIO(on_stdout.output)))
    own = ["number", "state", "reason", "value", "step", "restarts"]
    assert list(rows[0]) == [*own, "lr", "params.step", "bias", "kind", "momentum", "epochs"]
    first = ",".join(rows[0].values())
    assert first == "0,Succeeded,Ended,0.2,2,3,0.1,3,true,adamw,,7"
    assert [it["value"] for it in rows] == ["0.2", "1.2", "", "", "4.2"]
    assert [it["momentum"] for it in rows] == ["", "", "", "", "0.9"]
    assert rows[4]["state"] == "Open"


@pytest.mark.parametrize("option", ["--optuna", "--csv"])
def test_a_file_is_never_written_over(file: Path, tmp_path: Path, option: str) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    refused = ask("export", file, option, there)
    assert refused.exit_code == 2
    said = f"error: {option} {there}: the file exists; choose another name, or remove it"
    assert refused.output.splitlines() == [said]
    assert there.read_text() == "mine"
    nowhere = ask("export", file, option, tmp_path / "no" / "file")
    assert nowhere.exit_code == 2
    assert "cannot be written: No such file or directory" in nowhere.output


def test_exactly_one_kind_of_file_is_written(file: Path, tmp_path: Path) -> None:
    for options in ((), ("--csv", "-", "--optuna", tmp_path / "x")):
        refused = ask("export", file, *options)
        assert refused.exit_code == 2
        assert "give exactly one of --optuna and --csv" in refused.output


@pytest.mark.slow
def test_without_optuna_a_journal_is_refused_with_what_to_install(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "optuna.py").write_text("raise ImportError('not here')")
    command = [sys.executable, "-m", "trainrun_operator.cli", "sweep", "export", str(file)]
    paths = f"{tmp_path}:{environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [*command, "--optuna", str(tmp_path / "study.log")],
        env={**environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: --optuna needs Optuna, which cannot be loaded here (not here): "
        "pip install 'trainrun[sweep]'\n"
    )
    assert not (tmp_path / "study.log").exists()


@pytest.mark.parametrize("words", [["trials"], ["best"], ["export", "--csv", "-"]])
def test_of_a_damaged_log_what_stands_before_is_told_where_it_is_asked_for(
    file: Path, sweeps: Sweeps, words: list[str]
) -> None:
    whole = ask(words[0], file, *words[1:])
    (last,) = sweeps.storage.glob("lr/log/*14.json")
    last.unlink()
    last.with_name("000000015.json").write_text("{}")

    refused = ask(words[0], file, *words[1:])
    assert (refused.exit_code, refused.stdout) == (2, "")
    rescue = "`trainrun sweep export --before-damage` writes the results before the damage"
    assert rescue in refused.stderr

    told_before = ask(words[0], file, *words[1:], "--before-damage")
    assert told_before.exit_code == 0
    assert told_before.stderr.startswith("warning: read only the records before this one: file://")
    assert "log/000000014.json: it is missing, but record 15 exists" in told_before.stderr
    assert told_before.stdout.splitlines()[:2] == whole.stdout.splitlines()[:2]


def test_of_a_log_without_its_beginning_nothing_can_be_told(file: Path, sweeps: Sweeps) -> None:
    (sweeps.storage / "lr/log/000000001.json").unlink()
    done = ask("trials", file, "--before-damage")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "log/000000001.json: it is missing" in done.stderr
