"""What concerns all tests: the option for developers of cluster tests, and the loud last words."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.support.cluster_session import NO_CLUSTER

pytest_plugins = (
    "tests.support.levels",
    "tests.support.sharing_out",
    "tests.support.first_life",
    "tests.support.measured",
    "tests.support.reruns",
    "tests.support.api_fixtures",
    "tests.support.s3_fixtures",
)


def pytest_configure() -> None:
    """Undo what a shell does to its background jobs: they would ignore Ctrl-C for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-cluster",
        action="store_true",
        help="use the test cluster that runs, and leave it running (make cluster-down NAME=test)",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Nobody shall believe that everything was tested when the cluster was not."""
    reasons: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if NO_CLUSTER in reason:
            reasons[reason.partition(NO_CLUSTER)[2]] += 1
            files[report.nodeid.partition("::")[0]] += 1
    if not reasons:
        return
    terminalreporter.section("NOT TESTED ON A REAL CLUSTER", red=True, bold=True)
    for file, number in files.items():
        terminalreporter.write_line(f"{number:4} tests in {file} did not run")
    for reason in reasons:
        terminalreporter.write_line(f"To run them: {reason}", red=True)
