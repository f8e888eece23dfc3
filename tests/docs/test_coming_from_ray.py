"""Every name of Ray Train has a line, and what a line says of TrainRun is there."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trainrun
from tests.docs.documents import ROOT, tables
from tests.docs.names import is_attribute, is_command, is_field
from trainrun_operator.api.run.spec import TrainRunSpec

TEXT = (ROOT / "docs" / "coming-from-ray-train.md").read_text()
WORKS, RENAMED, MISSING = tables(TEXT)
NAMES = (Path(__file__).parent / "ray_train_2.60.txt").read_text().split()
"""`ray.train.__all__`, and what its classes have, in Ray 2.60 with RAY_TRAIN_V2_ENABLED=1."""

HERE = sorted({name for row in (*WORKS, *RENAMED) for name in re.findall(r"`([^`]+)`", row[1])})


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_ray_train_has_a_line(name: str) -> None:
    cells = " ".join(row[0] for row in (*WORKS, *RENAMED, *MISSING))
    assert f"`{name}`" in cells or f"`{name}." in cells


@pytest.mark.parametrize("name", HERE)
def test_what_takes_its_place_is_there(name: str) -> None:
    if name.startswith("trainrun "):
        assert is_command(name.split()[1:])
    elif name.startswith("trainrun."):
        assert is_attribute(name.removeprefix("trainrun."))
    else:
        assert name == "metadata.name" or is_field(name, TrainRunSpec)


@pytest.mark.parametrize("row", WORKS, ids=lambda row: row[0])
def test_what_works_unchanged_has_the_same_name(row: list[str]) -> None:
    rays, ours = (re.findall(r"`([^`]+)`", cell)[0] for cell in row[:2])
    assert rays.rpartition(".")[2] == ours.rpartition(".")[2]


def test_a_loop_may_import_from_the_module_that_ray_has() -> None:
    program = "from trainrun.train import Checkpoint, report; import trainrun.train as train; "
    program += "assert train.report is report"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert importlib.import_module("trainrun.train") is trainrun
