"""What concerns all tests: the option for developers of cluster tests, and the loud last words."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.cluster_session import NO_CLUSTER

pytest_plugins = (
    "tests.support.levels",
    "tests.support.first_life",
    "tests.support.measured",
    "tests.support.reruns",
    "tests.support.api_fixtures",
    "tests.support.s3_fixtures",
)

TOGETHER = {
    "tests/e2e/": "the operator's cluster",
    "tests/e2e_cluster/": "the cluster itself",
    "tests/images/": "the cluster itself",
    "tests/chart/": "the cluster itself",
    "tests/agent/test_injected.py": "the archive",
    "tests/packaging/test_extras.py": "the wheel",
    "tests/frameworks/test_accelerate.py": "an undisturbed loop of Accelerate",
    "tests/frameworks/test_fsdp2.py": "an undisturbed loop with shards",
    "tests/frameworks/test_lightning.py": "an undisturbed Lightning Trainer",
    "tests/frameworks/test_transformers.py": "an undisturbed Hugging Face Trainer",
}
"""Tests that run one after the other in one of the processes of `make test`, by the beginning of
their path: they share a cluster or something built, or build what others load, or compare with one
run. Everything else goes to whoever is free."""


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


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each of the processes of `make test` what must not be torn apart, the most first."""

    def _split_scope(self, nodeid: str) -> str:
        return next((what for path, what in TOGETHER.items() if nodeid.startswith(path)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """Let `pytest -n 2` use it. (The mark xdist_group does the same up to pytest 9.1.)"""
    return Together(config, log)


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
