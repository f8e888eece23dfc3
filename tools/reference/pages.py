"""Which pages there are."""

from __future__ import annotations

from collections.abc import Callable

from tools.reference import chart, commands, editing, library, metrics, resource

PAGES: dict[str, Callable[[], str]] = {
    "editing.md": editing.page,
    "library.md": library.page,
    "trainrun.md": resource.page,
    "commands.md": commands.page,
    "metrics.md": metrics.page,
    "chart.md": chart.page,
}
"""By file name: what makes its text."""
