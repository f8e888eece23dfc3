"""Tests of real processes get a second try; whoever needed it is named in the last lines.

A machine that is busy with nodes, agents and trainings can be late once. A test that only computes
has failed when it fails, however seldom it does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.levels import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPUTE = frozenset({"api", "core", "simulation", "sweep"})
"""Folders of tests that start no process and wait for none."""


@pytest.hookimpl(trylast=True)  # after the marks of what a test needs (`levels`)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        computes = COMPUTE & set(item.path.relative_to(config.rootpath).parts[1:2])
        if not computes and LEFT_OUT & {mark.name for mark in item.iter_markers()}:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Name them after everything that pytest says itself."""
    yield
    again: Sequence[Any] = terminalreporter.stats.get("rerun", [])
    if not again:
        return
    terminalreporter.ensure_newline()
    terminalreporter.section("TRIED A SECOND TIME", yellow=True, bold=True)
    for report in again:
        terminalreporter.write_line(f"{report.nodeid} ({report.when}): {_first_error(report)}")


def _first_error(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return str(text).strip().partition("\n")[0]
