"""`trainrun init`: what it writes runs as it is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.init import EXAMPLES
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.preparation import prepare


def init(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["init", *map(str, words)])


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_kind_is_a_valid_run_whose_storage_lies_beside_it(kind: str, tmp_path: Path) -> None:
    result = init("--for", kind, tmp_path / "new")

    assert result.exit_code == 0, result.output
    prepared = prepare(RunOptions(file=tmp_path / "new" / "train.yaml"))
    assert prepared.run.spec.storage.uri == (tmp_path / "new" / "runs").as_uri()
    assert prepared.program.command[1] == "train.py"
    for name in ("train.py", "train.yaml"):
        text = (tmp_path / "new" / name).read_text()
        assert "examples/" not in text
        assert "trainrun.yaml" not in text
    ast.parse((tmp_path / "new" / "train.py").read_text())


@pytest.mark.whole_runs
def test_the_plain_run_succeeds_by_the_command_that_is_printed(tmp_path: Path) -> None:
    written, command, _ = init(tmp_path).output.splitlines()
    assert written == f"written: {tmp_path}/train.py, {tmp_path}/train.yaml"
    assert command == f"trainrun run {tmp_path}/train.yaml"

    words = [str(Path(sys.executable).parent / "trainrun"), *command.split()[1:], "--replicas", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stderr
    assert "Run first succeeded" in done.stdout


@pytest.mark.parametrize("name", ["train.py", "train.yaml"])
def test_a_file_that_is_there_is_named_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")

    result = init(tmp_path)

    assert result.exit_code == 2
    assert result.output == f"error: {tmp_path / name} exists already; name another folder\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = init(tmp_path / "file" / "new")

    assert result.exit_code == 2
    assert result.output == f"error: {tmp_path}/file/new: cannot be written: Not a directory\n"
