"""These tests need packages that the project itself does not; `make test-frameworks` installs them
into a virtual environment of their own. Elsewhere they are not even imported.

Trainings that the table in docs/frameworks.md has are shown in the end, in its form.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import pytest

from tests.frameworks.table import TRIED, row, rows

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from tests.frameworks.trained import Trained

NEEDED = ("accelerate", "jax", "lightning", "mlflow", "orbax", "transformers")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py"]

Fault = Literal["undisturbed", "killed", "preempted", "both"]
Compare = Callable[["Trained", "Trained", Fault], None]


@pytest.fixture
def compare(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Compare:
    """Whether a run has ended with the weights of another, bit for bit; for the table, too."""

    def compared(run: Trained, undisturbed: Trained, fault: Fault) -> None:
        equal = run.weights == undisturbed.weights
        record_property(TRIED, row(request.module.FRAMEWORK, fault, run, equal=equal))
        assert equal, f"{run.weights} instead of {undisturbed.weights}"

    return compared


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print what the trainings came to."""
    reports = [
        report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)
    ]
    told = [text for it in reports for name, text in it.user_properties if name == TRIED]
    for line in rows(told):
        terminalreporter.write_line(line)
