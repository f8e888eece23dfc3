"""Tests on the real cluster get a second try; whoever needed it is named in the last lines.

A machine that is busy with nodes, images and operators can be late once. Elsewhere a test that
fails has failed, however seldom it does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.levels import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND_TRY = frozenset(folder for folder, need in FOLDERS.items() if need == "cluster")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if SECOND_TRY & set(item.path.relative_to(config.rootpath).parts[1:2]):
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
