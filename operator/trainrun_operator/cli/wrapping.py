"""Text in lines for a terminal of 80 columns.

Layer: cli. Colors are left to click, which leaves them out where there is no terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

WIDTH = 79
"""Columns."""


def wrapped(
    text: str, *, indent: int = 0, hang: int = 0, color: str | None = None
) -> Iterator[str]:
    """Lines of at most WIDTH columns: all `indent` further right, those after the first one also by
    `hang`."""
    if not text:
        return
    for line in textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
    ):
        yield click.style(line, fg=color) if color else line
