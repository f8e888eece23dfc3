"""The agent takes the place of torchrun: the same Python, the same words, no process in between."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainrun.agent.processes.spawn import instead_of_launcher

ENVIRONMENT = {"LOCAL_RANK": "3", "PATH": os.defpath}


def instead(line: str, folder: Path | str = "", **environment: str) -> tuple[str, ...]:
    return instead_of_launcher(line.split(), ENVIRONMENT | environment, str(folder))


def a_torchrun(folder: Path, first_line: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "torchrun"
    program.write_text(f"{first_line}\nraise SystemExit('nobody calls it')\n")
    program.chmod(0o755)
    return program


def test_a_command_without_a_launcher_stays_as_it_is() -> None:
    assert instead("python -u train.py --lr 3") == ("python", "-u", "train.py", "--lr", "3")


def test_the_python_in_front_of_the_module_runs_the_script() -> None:
    line = "/opt/py/bin/python3 -m torch.distributed.run --nproc-per-node 4 train.py --lr 3"
    assert instead(line) == ("/opt/py/bin/python3", "-u", "train.py", "--lr", "3")


def test_a_module_is_run_as_one() -> None:
    line = "python -m torch.distributed.run -m pkg.train a"
    assert instead(line) == ("python", "-u", "-m", "pkg.train", "a")


def test_the_old_launcher_hands_each_process_its_local_rank() -> None:
    line = "python -m torch.distributed.launch train.py a"
    assert instead(line) == ("python", "-u", "train.py", "--local-rank=3", "a")
    line = "python -m torch.distributed.launch -m pkg.train a"
    assert instead(line) == ("python", "-u", "-m", "pkg.train", "--local-rank=3", "a")


def test_a_program_is_run_without_python() -> None:
    assert instead("torchrun --no-python ./prog a") == ("./prog", "a")


def test_the_python_of_the_torchrun_on_path_runs_the_script(tmp_path: Path) -> None:
    a_torchrun(tmp_path / "bin", f"#!{sys.executable}")
    path = f"{tmp_path / 'bin'}:{os.defpath}"
    assert instead("torchrun train.py", PATH=path) == (sys.executable, "-u", "train.py")


def test_a_torchrun_that_a_shell_starts_has_its_python_beside_it(tmp_path: Path) -> None:
    """pip writes such a first line where the path of the Python is too long for the kernel."""
    a_torchrun(tmp_path / "bin", "#!/bin/sh")
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    beside = str(tmp_path / "bin" / "python3")
    assert instead("bin/torchrun train.py", tmp_path) == (beside, "-u", "train.py")


def test_without_a_torchrun_the_python_on_path_runs_the_script(tmp_path: Path) -> None:
    assert instead("torchrun train.py", PATH=str(tmp_path)) == ("python3", "-u", "train.py")
    a_torchrun(tmp_path, "#!/no/such/python3")
    assert instead("torchrun train.py", PATH=str(tmp_path)) == ("python3", "-u", "train.py")


def test_the_python_that_torchrun_was_told_to_use_is_used() -> None:
    told = instead("torchrun train.py", PYTHON_EXEC="/opt/py/python")
    assert told == ("/opt/py/python", "-u", "train.py")


@pytest.mark.parametrize("name", ["torchrun", "./torchrun"])
def test_what_is_started_instead_runs(tmp_path: Path, name: str) -> None:
    a_torchrun(tmp_path, f"#!{sys.executable}")
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:])")
    line = instead(f"{name} --nproc-per-node 2 train.py --lr 3", tmp_path, PATH=str(tmp_path))
    shown = subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert shown == "['--lr', '3']\n"
