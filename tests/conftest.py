"""What concerns all tests: the option for developers of cluster tests, and the loud last words."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.cluster_session import NO_CLUSTER

TOGETHER = {
    "e2e": "the operator's cluster",
    "e2e_cluster": "the cluster itself",
    "images": "the cluster itself",
    "chart": "the cluster itself",
}
"""Folders whose tests run one after the other in one of the processes of `make test`: they share a
cluster, or build what others load. Everything else goes to whoever is free."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-cluster",
        action="store_true",
        help="use the test cluster that runs, and leave it running (make cluster-down NAME=test)",
    )


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each of the processes of `make test` what must not be torn apart, the most first."""

    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid.split("/")[1]
        return TOGETHER.get(folder, nodeid)


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
