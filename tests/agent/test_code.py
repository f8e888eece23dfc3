"""What an agent tells of the code that its processes run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from trainrun.agent.code import LARGEST, MOST_FILES, code_files
from trainrun.contract.answer import Hold

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn


def mounted(folder: Path, version: str, **files: str) -> None:
    """What the kubelet does when a ConfigMap has changed: all files at once, by one link."""
    data = folder / f"..{version}"
    data.mkdir(parents=True)
    for name, text in files.items():
        (data / name.replace("__", ".")).write_text(text)
        link = folder / name.replace("__", ".")
        if not link.is_symlink():
            link.symlink_to(f"..data/{link.name}")
    (folder / "..new").symlink_to(data.name)
    os.replace(folder / "..new", folder / "..data")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a script, a module, a package and a program."""
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "run.sh", "other.py", "mod.py", "pkg/__main__.py", "data.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "start").write_text("#!/bin/sh\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    return tmp_path


def names(command: list[str], folder: Path) -> list[str]:
    return [str(Path(it.path).relative_to(folder)) for it in code_files(command, folder)]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (["python", "train.py", "--lr", "3"], ["train.py"]),
        (["python", "-u", "./train.py", "data.txt"], ["train.py"]),
        (["torchrun", "--nproc-per-node", "2", "train.py"], ["train.py"]),
        (["python", "-m", "mod"], ["mod.py"]),
        (["python", "-m", "pkg"], ["pkg/__main__.py"]),
        (["python", "-m", "torch.distributed.run", "train.py"], ["train.py"]),
        (["bash", "run.sh"], ["run.sh"]),
        (["./start", "now"], ["start"]),
        (["./binary", "train"], []),
        (["bash", "-c", "pip install x;python train.py --a b"], ["train.py"]),
        (["bash", "-c", "cd pkg && exec python '../train.py'"], ["train.py"]),
        (["bash", "-c", "cd $WHERE && python train.py"], ["train.py"]),
        (["python", "-c", "print('don\\'t') # train.pyc"], []),
        (["python", "missing.py", "x" * 5000 + "/a.py", "a\0/b.py"], []),
    ],
)
def test_the_scripts_that_a_command_names_are_found(
    command: list[str], files: list[str], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", str(source))
    assert names(command, source) == files


def test_a_module_is_found_where_python_looks_for_it(
    source: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f":{source}")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (found,) = code_files(["python", "-m", "mod"], elsewhere)
    assert found.path == str(source / "mod.py")


def test_a_script_in_a_config_map_brings_the_other_files_of_its_volume(tmp_path: Path) -> None:
    mounted(tmp_path, "v1", train__py="1", model__py="1", token="mine")
    before = code_files(["python", "train.py"], tmp_path)
    assert [Path(it.path).name for it in before] == ["train.py", "model.py"]
    mounted(tmp_path, "v2", train__py="1", model__py="2", token="other")
    after = code_files(["python", "train.py"], tmp_path)
    assert after[0] == before[0]
    assert (after[1].path, after[1].digest != before[1].digest) == (before[1].path, True)


def test_files_are_looked_at_within_bounds(tmp_path: Path) -> None:
    many = {f"f{number:03}__py": "" for number in range(2 * MOST_FILES)}
    mounted(tmp_path, "v1", train__py="x" * LARGEST, **many)
    found = code_files(["python", "train.py"], tmp_path)
    assert len(found) == MOST_FILES
    (tmp_path / "train.py").write_text("x" * LARGEST + "y")
    assert code_files(["python", "train.py"], tmp_path)[0] == found[0]


@pytest.mark.case("nodes", "The script's ConfigMap or image tag changes under a gang")
def test_an_agent_tells_what_it_would_start_and_then_what_it_has_started(
    operator: OperatorStandIn, workers: Workers
) -> None:
    folder = workers.folder / "code"
    waits = "import time; time.sleep(600)"
    mounted(folder, "v1", train__py=waits)
    command = (sys.executable, str(folder / "train.py"))
    workers.start("", command=command)
    operator.order(Hold(attempt=1))
    first = operator.until(lambda s: s.code and s.held and s.held.attempt == 1)
    assert first.code is not None
    assert [it.path for it in first.code] == [str(folder / "train.py")]

    mounted(folder, "v2", train__py=f"{waits}  # edited")
    edited = operator.until(lambda s: s.code and s.code != first.code)
    operator.order(start())
    running = operator.until(lambda s: s.phase == "Running" and s.code)
    assert running.code == edited.code

    mounted(folder, "v3", train__py=f"{waits}  # edited again")
    operator.order(Hold(attempt=2))
    held = operator.until(lambda s: s.phase == "Idle" and s.code)
    assert held.code not in (first.code, edited.code), "it is looked at anew for each attempt"
