"""A report as one static page: to send, to keep, to read on a phone. No scripts, nothing fetched.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out: output of
training processes may be in it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, assert_never

from trainrun.contract.masking import masked
from trainrun_operator.cli.report.drawing import COLORS, frame, no_numbers, svg
from trainrun_operator.cli.report.model import Bars, Curves, Section, Table, TextLine, Verbatim
from trainrun_operator.cli.report.style import STYLE
from trainrun_operator.cli.wording import clock, printable, shortened

if TYPE_CHECKING:
    from trainrun_operator.cli.report.model import Advices, Bar, Block, Document, TableRow

LONGEST_NAME, LONGEST_LINE = 80, 400
"""Characters of a metric's name, and of a line of output."""


def page(report: Document) -> str:
    """The whole page."""
    body = "\n".join((_head(report), *_advice(report.advice), *map(_section, report.sections)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{safe(report.name)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def safe(words: str) -> str:
    """Escaped, and without what looks like a secret."""
    return html.escape(masked(printable(words)))


def _head(report: Document) -> str:
    facts = _rows((label, text) for label, text in report.facts)
    table = f"<table>{facts}</table>" if facts else ""
    notes = "".join(f'<p class="note">{safe(it)}</p>' for it in (*report.remarks, *report.ending))
    return (
        f'<header class="{report.tone}"><h1>{safe(report.name)}</h1>'
        f"<p>{safe(report.headline)}</p>{_blocks(report.lead)}{table}</header>{notes}"
    )


def _advice(advice: Advices | None) -> Iterator[str]:
    if advice is None:
        return
    items = "".join(
        f"<li>{safe(it.text)}{f'<br>&rarr; {safe(it.remedy)}' if it.remedy else ''}</li>"
        for it in advice.items
    )
    if not items:
        yield f"<p>{safe(advice.otherwise)}</p>"
    else:
        yield f"<section><h2>{safe(advice.title)}</h2><ul>{items}</ul></section>"


def _section(section: Section) -> str:
    kind, when = "", ""
    if section.at is not None:
        kind = ' class="chapter"'
        when = f"<p><time>{clock(section.at, day=True)}</time></p>"
    named = f' id="{safe(section.id)}"' if section.id else ""
    return (
        f"<section{named}{kind}><h2>{safe(section.title)}</h2>{when}"
        f"{_blocks(section.blocks)}</section>"
    )


def _blocks(blocks: Iterable[Block]) -> str:
    """Lines that follow each other are one list."""
    return "".join(
        f"<ul>{''.join(map(_block, some))}</ul>" if lines else "".join(map(_block, some))
        for lines, some in groupby(blocks, key=lambda block: isinstance(block, TextLine))
    )


def _block(block: Block) -> str:
    match block:
        case TextLine(text=text, tone=tone, at=at, deeper=deeper):
            when = f"<time>{clock(at)}</time> " if at is not None else ""
            return f'<li class="{tone}{" deeper" * deeper}">{when}{safe(text)}</li>'
        case Verbatim():
            return _verbatim(block)
        case Table(heads=heads, rows=rows):
            head = "".join(f"<th>{safe(it)}</th>" for it in heads)
            drawn = "".join(map(_row, rows))
            return f'<div class="wide"><table><tr>{head}</tr>{drawn}</table></div>'
        case Bars():
            return _bars(block)
        case Curves():
            return _curves(block)
        case _:
            assert_never(block)


def _verbatim(block: Verbatim) -> str:
    # Each line by itself: a secret ends with its line.
    told = "\n".join(safe(shortened(masked(line), LONGEST_LINE)) for line in block.lines)
    title = safe(block.title)
    if block.folded:
        return f"<details><summary>{title}</summary><pre>{told}</pre></details>"
    return f"{f'<p>{title}:</p>' if title else ''}<pre>{told}</pre>"


def _row(row: TableRow) -> str:
    below = "<br>".join(map(safe, row.below))
    more = f'<tr class="below"><td colspan="{len(row.cells)}">{below}</td></tr>' if below else ""
    return f'<tr class="{row.tone}">{_cells(row.cells)}</tr>{more}'


def _rows(rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"<tr>{_cells(row)}</tr>" for row in rows)


def _cells(cells: Iterable[str]) -> str:
    return "".join(f"<td>{safe(cell)}</td>" for cell in cells)


def _bars(block: Bars) -> str:
    bars = "".join(_bar(bar, block) for bar in block.bars)
    sums = "".join(
        f'<tr><td><i class="key" style="background:var(--{kind.name})"></i>{safe(kind.words)}</td>'
        f"{_cells((f'{100 * kind.share:.1f} %', kind.amount))}</tr>"
        for kind in block.kinds
    )
    first, last = map(safe, block.scale)
    return (
        f'{bars}<p class="scale dim"><span>{first}</span><span>{last}</span></p>'
        f'<table class="sums">{sums}</table>'
    )


def _bar(bar: Bar, block: Bars) -> str:
    words = {kind.name: safe(kind.words) for kind in block.kinds}
    left, whole = min(bar.start, 1.0), sum(bar.parts.values())
    width = min(whole, 1.0 - left)
    parts = "".join(
        f'<i style="width:{100 * part / whole:.3f}%;background:var(--{name})" '
        f'title="{words[name]}"></i>'
        for name, part in bar.parts.items()
        if part
    )
    target = f' href="#{safe(bar.section)}"' if bar.section else ""
    return (
        f'<a class="line"{target}><b>{safe(bar.name)}</b><span class="track">'
        f'<span class="bar" style="margin-left:{100 * left:.3f}%;width:{100 * width:.3f}%">{parts}'
        f"</span></span><em>{safe(bar.mark)}</em></a>"
    )


def _curves(block: Curves) -> str:
    legend = "".join(
        f'<span><i class="key" style="background:var(--c{run % COLORS})"></i>{safe(name)}</span>'
        for run, name in enumerate(block.names)
    )
    figures = "".join(_figure(block, metric) for metric in block.pictures)
    return f'<p class="legend">{legend}</p><div class="figures">{figures}</div>'


def _figure(block: Curves, metric: str) -> str:
    picture = block.pictures[metric]
    seen, shown = frame(picture), ""
    if seen is not None:
        shown = (
            f'<div class="plot"><b>{seen.high:.4g}</b>{svg(picture, compared=block.compared)}'
            f'<b>{seen.low:.4g}</b></div><p class="steps"><span>step {seen.first:,}</span>'
            f"<span>{seen.last:,}</span></p>"
        )
    wrong = "; ".join(no_numbers(block, metric))
    note = f'<p class="note">{safe(wrong)}</p>' if wrong else ""
    name = safe(metric[:LONGEST_NAME])
    return f"<figure><figcaption>{name}</figcaption>{shown}{note}</figure>"
