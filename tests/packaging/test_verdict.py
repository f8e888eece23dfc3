"""A benchmark that misses a bound fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def ended(*lines: str) -> tuple[int, str]:
    """Exit code and last words of a benchmark that holds these figures against their bounds."""
    program = "\n".join(("from benchmarks.verdict import end, must", *lines, "end()"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("figure", ["0.12, 0.12", "1.2, 1.1, least=True"])
def test_a_benchmark_that_reaches_its_bounds_ends_well(figure: str) -> None:
    assert ended(f"must('warm / torchrun', {figure})") == (0, "")


def test_a_benchmark_that_misses_a_bound_fails_and_says_which() -> None:
    """It printed `must be at most 0.15` beside 0.24, and exited with 0."""
    assert ended(
        "must('warm / torchrun', 0.24, 0.15)",
        "must('import', 7.3, 50, 'ms')",
        "must('useful steps', 1.0, 1.05, least=True)",
    ) == (
        1,
        "Missed: warm / torchrun was 0.24 and must be at most 0.15; "
        "useful steps was 1 and must be at least 1.05.\n",
    )
