"""The folder of an unchanged script in a drill: another one than the user's, and empty at first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainrun.errors import InvalidSpec
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.cli.drilling.local_environment import MANY, ScriptFolder
from trainrun_operator.cli.drilling.runs import DrillRun
from trainrun_operator.worlds.local.program import Program

SILENT = DrillRun(ending="OutOfTime", world_size=1, seconds=60.0, reads_output=True)


def a_folder(tmp_path: Path, path: str, newest: str | None = None) -> ScriptFolder:
    (tmp_path / "run").mkdir()
    return ScriptFolder.of(FolderSpec(path=path, newest=newest), tmp_path / "run")


def a_program(tmp_path: Path, *files: str, words: tuple[str, ...] = ("train.py",)) -> Program:
    """Of a user whose folder has these files."""
    own = tmp_path / "project" / "train"
    for file in files or ("train.py",):
        (own / file).parent.mkdir(parents=True, exist_ok=True)
        (own / file).touch()
    return Program(command=words, working_dir=own, env={"OUT": "/data/out", "X": "/data/out2"})


def test_an_absolute_folder_is_another_one_in_the_command_and_the_variables(tmp_path: Path) -> None:
    words = ("train.py", "--out=/data/out/a", "/data/out", "/data/out2", "/mnt/data/out")
    program = a_program(tmp_path, words=words)
    moved = a_folder(tmp_path, "/data/out").elsewhere(program, tmp_path / "run" / "work")
    saves = tmp_path / "run" / "saves"
    assert moved.command[1:] == (f"--out={saves}/a", str(saves), "/data/out2", "/mnt/data/out")
    assert moved.env == {"OUT": str(saves), "X": "/data/out2"}


def test_an_absolute_folder_that_the_script_alone_knows_is_refused(tmp_path: Path) -> None:
    # The script would have written into the user's own folder.
    folder = a_folder(tmp_path, "/data/of-the-script")
    with pytest.raises(InvalidSpec) as refused:
        folder.elsewhere(a_program(tmp_path), tmp_path / "run" / "work")
    assert str(refused.value) == (
        "checkpoint.folder.path: /data/of-the-script stands neither in the command nor in its "
        "variables, so a drill cannot replace it by a temporary folder. Write it there"
    )


def test_a_drill_begins_without_the_saves_that_the_user_has(tmp_path: Path) -> None:
    program = a_program(tmp_path, "train.py", "out/step-1/model.bin", "out/log.txt")
    folder = a_folder(tmp_path, "out", "step-*")
    base = folder.elsewhere(program, tmp_path / "run" / "work").working_dir
    assert sorted(os.listdir(base)) == ["out", "train.py"]
    assert os.listdir(base / "out") == []
    assert (tmp_path / "project" / "train" / "out" / "step-1" / "model.bin").exists()


def test_of_the_working_folder_only_saves_are_removed(tmp_path: Path) -> None:
    program = a_program(tmp_path, "train.py", "step-1/model.bin", "step-2")
    folder = a_folder(tmp_path, ".", "step-*")
    base = folder.elsewhere(program, tmp_path / "run" / "work").working_dir
    assert os.listdir(base) == ["train.py"]


def test_a_folder_that_a_drill_would_write_for_real_is_refused(tmp_path: Path) -> None:
    program = a_program(tmp_path, *(f"runs/{number}" for number in range(MANY + 1)))
    folder = a_folder(tmp_path, "runs/a")
    with pytest.raises(InvalidSpec, match="runs/a lies in a folder that a drill does not copy"):
        folder.elsewhere(program, tmp_path / "run" / "work")


def test_saves_in_a_working_directory_next_to_the_root_are_not_removed(tmp_path: Path) -> None:
    # A drill does not copy such a directory: its own saves would have been deleted.
    program = Program(command=("train.py",), working_dir=Path("/workspace"), env={})
    folder = a_folder(tmp_path, "out")
    with pytest.raises(InvalidSpec, match="it is next to the root, or has too many files"):
        folder.elsewhere(program, tmp_path / "run" / "work")


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ((), "the script left nothing in /data/out"),
        (("a.bin", "b.bin"), "nothing in /data/out was taken as a save (a.bin, b.bin)"),
    ],
)
def test_it_is_told_what_a_script_left_of_which_nothing_was_stored(
    files: tuple[str, ...], left: str, tmp_path: Path
) -> None:
    folder = a_folder(tmp_path, "/data/out", "step-*")
    folder.used.mkdir()
    for name in files:
        (folder.used / name).touch()
    assert folder.told(SILENT, "", tmp_path).unsaved == (
        f"{left}. Correct checkpoint.folder, save more often, or drill to a later step"
    )
    why = folder.told(SILENT, f"the save in {folder.used} is not stored: it is cut off", tmp_path)
    assert why.unsaved == "the save in /data/out is not stored: it is cut off"
