"""What Tune has for searches and failures has a line, and what a line says of TrainRun is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, blocks, tables
from tests.docs.names import is_attribute, is_command, is_field
from trainrun_operator.api.sweep.spec import TrainSweepSpec
from trainrun_operator.worlds.local.worker import kill_all

DOCUMENT = ROOT / "docs" / "coming-from-ray-tune.md"
RENAMED, MISSING = tables(DOCUMENT.read_text())
NAMES = (Path(__file__).parent / "ray_tune_2.60.txt").read_text().split()
"""What Tune has for searches and their failures, in Ray 2.60."""
HERE = sorted({name for row in RENAMED for name in re.findall(r"`([^`]+)`", row[1])})


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_tune_has_a_line(name: str) -> None:
    assert f"`{name}`" in " ".join(row[0] for row in (*RENAMED, *MISSING))


@pytest.mark.parametrize("name", HERE)
def test_what_takes_its_place_is_there(name: str) -> None:
    if name.startswith("trainrun "):
        assert is_command(name.split()[1:])
    elif name.startswith("trainrun."):
        assert is_attribute(name.removeprefix("trainrun."))
    else:
        assert is_field(name, TrainSweepSpec)


@pytest.mark.slow
def test_the_example_finds_parameters_of_its_space(tmp_path: Path) -> None:
    for block in blocks(DOCUMENT):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
    trainrun = [sys.executable, "-m", "trainrun_operator.cli"]
    where = [tmp_path / "tuned.yaml", "--storage", tmp_path / "tuned"]
    ended = subprocess.run([*trainrun, "run", *where], capture_output=True, text=True)
    kill_all(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = subprocess.run([*trainrun, "sweep", "best", *where, "--json"], capture_output=True)
    params = json.loads(said.stdout)["params"]
    assert 1e-4 <= params["lr"] <= 0.1
    assert params["depth"] in (1, 2, 3, 4)
