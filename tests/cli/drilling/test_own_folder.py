"""Each run of a drill has a working folder of its own, and the user's stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

from trainrun_operator.cli.drilling.local_environment import MANY, elsewhere
from trainrun_operator.worlds.local.program import Program


def moved(folder: Path, *words: str, root: Path | None = None) -> Program:
    program = Program(command=("python", *words), working_dir=folder, env={"OUT": f"{folder}/out"})
    return elsewhere(program, root or folder.parent.parent / "drill")


def test_what_is_in_the_users_folder_and_beside_it_is_found_and_what_is_written_is_not(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project" / "train"
    (folder / "conf" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "conf" / "deep" / "model.yaml").write_text("layers: 2")
    (folder.parent / "data.txt").write_text("data")
    program = moved(folder, "train.py", f"--config={folder}/conf/deep/model.yaml")
    own = program.working_dir
    assert program.env["OUT"] == f"{own}/out"
    assert program.command == ("python", "train.py", f"--config={own}/conf/deep/model.yaml")
    assert (own / "conf" / "deep" / "model.yaml").read_text() == "layers: 2"
    assert (own / ".." / "data.txt").read_text() == "data"
    (own / "conf" / "deep" / "written.txt").write_text("by a run")
    (own / "out").mkdir()
    assert sorted(os.listdir(folder)) == [".git", "conf"]
    assert os.listdir(folder / "conf" / "deep") == ["model.yaml"]


def test_a_folder_with_very_much_in_it_is_one_link(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "train"
    data = folder / "data"
    data.mkdir(parents=True)
    for number in range(MANY + 1):
        (data / str(number)).touch()
    assert (moved(folder).working_dir / "data").is_symlink()


def test_temporary_folders_below_the_users_are_not_put_into_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "train"
    (folder / "tmp").mkdir(parents=True)
    own = moved(folder, root=folder / "tmp" / "drill").working_dir
    assert own.is_dir()
    assert not (own / "tmp").exists()
