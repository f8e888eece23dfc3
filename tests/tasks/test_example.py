"""The first example of Ray's page on the fault tolerance of tasks, and how its calls end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks" / "retries.py"


def test_three_quarters_of_the_calls_that_die_half_of_the_time_succeed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = re.fullmatch(r"(\d+) of 300 succeeded, (\d+) died twice", ended.stdout.strip())
    assert found, ended.stdout
    assert abs(int(found[1]) - 225) <= 4 * 7.5  # four sigma of 300 calls at three quarters
    assert int(found[1]) + int(found[2]) == 300
    assert os.listdir(tmp_path) == [".trainrun"]
