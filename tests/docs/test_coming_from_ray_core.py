"""What Ray's core has for failures of tasks has a line, and what a line says of us is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, blocks, tables
from tests.docs.names import is_attribute, is_command, is_field
from trainrun import tasks
from trainrun.tasks.calls import ProgramOptions, TaskOptions
from trainrun_operator.api.run.spec import TrainRunSpec

DOCUMENT = ROOT / "docs" / "coming-from-ray-core.md"
SAME, RENAMED, MISSING = tables(DOCUMENT.read_text())
NAMES = (Path(__file__).parent / "ray_core_2.60.txt").read_text().split()
"""What Ray's pages on the fault tolerance of tasks and objects name, all of `ray.exceptions`, and
the options of functions, in Ray 2.60."""
HERE = sorted({name for row in (*SAME, *RENAMED) for name in re.findall(r"`([^`]+)`", row[1])})
OPTIONS = {field.name for kind in (TaskOptions, ProgramOptions) for field in fields(kind)}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_rays_core_has_a_line(name: str) -> None:
    assert f"`{name}`" in " ".join(row[0] for row in (*SAME, *RENAMED, *MISSING))


@pytest.mark.parametrize("name", HERE)
def test_what_takes_its_place_is_there(name: str) -> None:
    if name.startswith("trainrun "):
        assert is_command(name.split()[1:])
    elif name.startswith("trainrun."):
        assert is_attribute(name.removeprefix("trainrun."))
    elif name.startswith("tasks."):
        first, *rest = name.split(".")[1:]
        assert first in tasks.__all__
        assert all(hasattr(getattr(tasks, first), step) for step in rest)
    else:
        assert name in OPTIONS or is_field(name, TrainRunSpec)


@pytest.mark.parametrize("row", SAME, ids=lambda row: row[0])
def test_what_has_the_same_name_has_it(row: list[str]) -> None:
    rays, ours = (re.findall(r"`([^`]+)`", cell)[0] for cell in row[:2])
    assert rays.rpartition(".")[2] == ours.rpartition(".")[2]


@pytest.mark.slow
def test_the_program_that_was_rays_runs(tmp_path: Path) -> None:
    (block,) = blocks(DOCUMENT)
    (tmp_path / block.name).write_text(block.text)
    for _ in range(2):  # the second time everything is done
        ended = subprocess.run(
            [sys.executable, block.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        assert ended.stdout == "5 are done, 285 is the total\n", ended.stderr
