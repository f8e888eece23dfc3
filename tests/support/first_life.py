"""Random lives roll: each run of the tests lives others, and its last lines say which.

The number of the first one is drawn once for all processes of a run, which must collect the same
tests. It is a multiple of ten, as `make sim` gives some lives in ten a special one besides.
"""

from __future__ import annotations

import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "TRAINRUN_FIRST_LIFE"
"""Holds the number; set by whoever wants to live the same lives again, and else drawn."""
NIGHT = 100_000
"""Lives that `make sim` begins with: those here are others."""
LIVED_IN = "tests/simulation/test_lives.py"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        os.environ[VARIABLE] = "0"
    # Processes of pytest-xdist inherit it, and make no number of their own.
    os.environ.setdefault(VARIABLE, str(random.randrange(NIGHT, 10**9, 10)))


def first_life() -> int:
    """The number of the first life of this run; 0 with `--quick`."""
    return int(os.environ[VARIABLE])


@contextmanager
def told_on_failure(number: int) -> Iterator[None]:
    """Whatever ends this life, a time limit as well: say how to live it again."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"life {number}; {live_again(number)}")
        raise


def live_again(number: int) -> str:
    """What to type."""
    return f"live it again: make sim FIRST={number} LIVES=1"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which lives were lived, however it went."""
    reports = [it for kind in ("passed", "failed") for it in terminalreporter.getreports(kind)]
    if any(report.nodeid.startswith(LIVED_IN) for report in reports):
        terminalreporter.write_line(
            f"random lives began with {first_life()}; {VARIABLE}={first_life()} lives them again,"
            f" and make sim FIRST=... LIVES=1 one of them"
        )
