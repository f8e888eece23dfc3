"""From plain docstrings and rows to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc

_ARGUMENT = re.compile(r"^ {4}(\w[\w, ]*): ")


def document(title: str, source: str, *parts: str) -> str:
    """A whole page; `source` says what it is made from."""
    note = f"<!-- Made from {source} by `make reference`. Do not edit. -->"
    return "\n\n".join([f"# {title}", note, *(part.strip("\n") for part in parts if part)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing where there are no rows."""
    lines = [_row([_cell(text) for text in row]) for row in rows]
    return "\n".join([_row(heads), _row(["---"] * len(heads)), *lines]) if lines else ""


def prose(docstring: str | None) -> str:
    """A docstring in Google's style: its Args and Raises become lists, code stays code."""
    lines: list[str] = []
    arguments = False
    for line in cleandoc(docstring or "").splitlines():
        if line in ("Args:", "Raises:"):
            arguments = True
            lines += [line, ""]
        elif arguments and (named := _ARGUMENT.match(line)):
            lines.append(f"- `{named[1]}`: {line[named.end() :]}")
        elif arguments and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            arguments = False
            lines.append(line)
    return "\n".join(lines)


def code(text: object) -> str:
    """As code."""
    return f"`{text}`"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
