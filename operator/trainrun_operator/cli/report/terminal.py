"""A report as plain text for a terminal of 80 columns.

Layer: cli. click adds the colors, and leaves them out if stdout is not a terminal. Codes that move
the cursor are removed here, whatever their source.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from trainrun_operator.cli.formatting import clock, printable
from trainrun_operator.cli.report.drawing import braille
from trainrun_operator.cli.report.model import (
    Bar,
    Bars,
    Block,
    Curves,
    Document,
    Preformatted,
    Recommendations,
    Section,
    Table,
    TextLine,
    Tone,
)

WIDTH = 79
"""Columns."""


def wrapped(
    text: str, *, indent: int = 0, hang: int = 0, color: str | None = None, bold: bool = False
) -> Iterator[str]:
    """Lines of at most WIDTH columns, each indented by `indent`, those after the first also by
    `hang`."""
    for line in textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
    ):
        yield click.style(line, fg=color, bold=bold or None) if color or bold else line


COLORS: dict[Tone, str | None] = {"plain": None, "good": "green", "bad": "red", "note": "yellow"}
BAR = 56
"""Columns of the longest bar."""
NAME = 14
"""Columns of a bar's name."""
LABEL = 12
"""Columns of a fact's label."""


def lines(report: Document) -> Iterator[str]:
    """All lines of a report."""
    yield from wrapped(report.headline, color=COLORS[report.tone], bold=True)
    for block in report.lead:
        yield from _block(block, margin=2)
    for label, text in report.facts:
        yield f"  {label:<{LABEL}} {printable(text)}".rstrip()
    for remark in report.remarks:
        yield from wrapped(f"! {remark}", color=COLORS["note"])
    for section in report.sections:
        yield ""
        yield from _section(section)
    yield from (f"  {printable(text)}" for text in report.ending)
    if report.advice is not None:
        yield ""
        yield from _advice(report.advice)


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Heads and rows in columns."""
    cells = [heads, *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _section(section: Section) -> Iterator[str]:
    if section.at is None:
        yield click.style(f"{printable(section.title)}:", bold=True)
    else:
        yield from wrapped(f"{clock(section.at, day=True)}  {section.title}", color="cyan")
    for block in section.blocks:
        yield from _block(block, margin=11 if section.at else 2)


def _block(block: Block, *, margin: int) -> Iterator[str]:
    match block:
        case TextLine(text=text, tone=tone, at=at) if at is not None:
            verbatim = f"{clock(at)} {text}"
            yield from wrapped(verbatim, indent=margin - 9, hang=9, color=COLORS[tone])
        case TextLine(text=text, tone=tone, deeper=deeper):
            yield from wrapped(text, indent=margin + 2 * deeper, hang=2, color=COLORS[tone])
        case Preformatted(lines=verbatim, title=title):
            yield from wrapped(f"{title}:" if title else "", indent=margin)
            yield from (f"{' ' * (margin + 2)}{printable(line)}" for line in verbatim)
        case Table(heads=heads, rows=rows):
            head, *drawn = table(heads, (row.cells for row in rows))
            yield f"{' ' * margin}{head}"
            for line, row in zip(drawn, rows, strict=True):
                yield click.style(f"{' ' * margin}{line}", fg=COLORS[row.tone])
                for text in row.below:
                    yield from wrapped(text, indent=margin + 2)
        case Bars():
            yield from _bars(block)
        case Curves():
            yield from braille(block)


def _bars(block: Bars) -> Iterator[str]:
    """The bars, and a legend with the totals."""
    signs = {kind.name: kind.sign for kind in block.kinds}
    for bar in block.bars:
        left = min(round(BAR * bar.start), BAR - 1)
        drawn = _bar(bar, signs, room=BAR - left)
        yield f"{bar.name[:NAME]:<{NAME}} |{' ' * left}{drawn}".rstrip()
    first, last = block.scale
    yield f"{'':<{NAME}} {first}{last:>{BAR + 1 - len(first)}}"
    for kind in block.kinds:
        yield f"  {kind.sign}  {100 * kind.share:5.1f} %  {kind.amount:>8}  {kind.words}"


def _bar(bar: Bar, signs: dict[str, str], *, room: int) -> str:
    """One bar in at most `room` columns, whatever its parts are."""
    drawn, at, filled = "", 0.0, 0
    for name, part in bar.parts.items():
        at += part
        until = min(round(BAR * at), room)
        drawn += signs[name] * (until - filled)
        filled = until
    return drawn or "."


def _advice(advice: Recommendations) -> Iterator[str]:
    if not advice.items:
        yield from wrapped(advice.otherwise)
        return
    yield click.style(f"{advice.title}:", bold=True)
    for item in advice.items:
        yield from wrapped(f"- {item.text}", hang=2)
        yield from wrapped(f"-> {item.remedy}" if item.remedy else "", indent=4, hang=3)
