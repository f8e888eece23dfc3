"""Which pages there are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from tools.reference import cases, chart, commands, editing, library, metrics, modules, resource
from trainrun_operator.api.crd import RESOURCES

_PAGES: dict[str, Callable[[], str]] = {
    "editing.md": editing.page,
    "library.md": library.page,
    **{f"{row.kind.lower()}.md": partial(resource.page, row) for row in RESOURCES},
    "commands.md": commands.page,
    "metrics.md": metrics.page,
    "chart.md": chart.page,
    "failure-cases.md": cases.page,
    "modules.md": modules.page,
}
PAGES: dict[str, Callable[[], str]] = {name: cache(page) for name, page in _PAGES.items()}
"""By file name: what makes its text, once in a process."""
