"""A program of tasks that is a run: `trainrun explain` and `trainrun tasks` of it."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.testing import CliRunner

from tests.cli.stories import a_folder, a_life
from tests.cli.tasks.conftest import call, key, log_in
from trainrun.tasks.keys import code_of_module
from trainrun.tasks.records import Rebuild
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.tasks.program import TaskHistory
from trainrun_operator.cli.tasks.views import program_lines

RUN = """
apiVersion: trainrun.dev/v1alpha1
kind: TrainRun
metadata: {name: llama}
spec:
  workers:
    template:
      spec:
        containers: [{name: w, image: i, command: [python, prepare.py]}]
  storage: {uri: "file://STORAGE"}
"""


def test_the_story_of_a_run_tells_what_failed_and_what_was_made_again(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "runs", *a_life())
    log = log_in(folder, tmp_path)
    log.begin()
    log.start("a")
    log.finish("a")
    log.write(Rebuild(key=key("a"), generation=2, why="its object was deleted"))
    log.start("b")
    log.fail("b", final=True, message="tokenize('b') failed on try 1 of 1: killed by SIGSEGV")
    result = CliRunner().invoke(trainrun, ["explain", str(folder)])
    assert (
        "Tasks, 1 waiting, 1 failed, 1 rebuilt:\n"
        "    tokenize('b') failed on try 1 of 1: killed by SIGSEGV\n"
        "    tokenize('a') was rebuilt: its object was deleted\n"
    ) in result.output
    told = CliRunner().invoke(trainrun, ["explain", str(folder), "--json"])
    assert json.loads(told.output)["tasks"]["reconstructions"] == 1


def test_a_damaged_log_of_tasks_is_a_remark(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "runs", *a_life())
    log = log_in(folder, tmp_path)
    log.begin()
    log.start("a")
    (folder / "tasks/log/000000001.json").unlink()
    result = CliRunner().invoke(trainrun, ["explain", str(folder)])
    assert result.exit_code == 0
    assert "! its task log cannot be read: " in result.output
    assert "000000001.json: it is missing" in call(folder, code=2).stderr


def test_the_file_of_a_run_says_which_module_has_changed(tmp_path: Path) -> None:
    program = tmp_path / "prepare.py"
    program.write_text("LIMIT = 1\n")
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("STORAGE", str(tmp_path / "runs")))
    log = log_in(tmp_path / "runs/llama", tmp_path)
    log.begin()
    log.start("a", code=code_of_module("__main__", program))
    log.finish("a")
    assert "changed" not in call(file).output
    program.write_text("LIMIT = 2\n")
    assert "made by code that has changed: 1 of tokenize" in call(file).output


def test_calls_that_no_worker_has_taken_yet_are_waiting_where_the_run_knows_them() -> None:
    head, *_ = program_lines("u", TaskHistory(total=7), {}, now=0.0)
    assert click.unstyle(head) == "Tasks: 7 waiting"
