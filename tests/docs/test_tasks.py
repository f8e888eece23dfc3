"""The program of docs/tasks.md, started in the ways that the page names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, blocks
from trainrun_operator.worlds.local.worker import kill_all

DOCUMENT = ROOT / "docs" / "tasks.md"
TRAINRUN = [sys.executable, "-m", "trainrun_operator.cli"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in blocks(DOCUMENT):
        (tmp_path / block.name).write_text(block.text)
    return tmp_path


def said(command: list[str], folder: Path) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_program_runs_each_task_once(folder: Path) -> None:
    for _ in range(2):
        assert said([sys.executable, "prepare.py"], folder) == "24000 words\n"
    listed = said([*TRAINRUN, "tasks"], folder)
    assert "48 done" in listed
    assert "starts: 2" in listed


@pytest.mark.slow
def test_it_goes_on_after_rank_0_was_killed(folder: Path) -> None:
    storage = ["--storage", str(folder / "runs")]
    told = said(
        [*TRAINRUN, "run", "prepare.yaml", *storage, "--fault", "kill rank=0 step=8"], folder
    )
    kill_all(folder / "runs" / ".trainrun" / "prepare" / "nodes")
    assert "24000 words" in told
    assert "attempts     2, failures 1/3" in told
