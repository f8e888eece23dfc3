"""A report as one static page to send, keep or read on a phone: no scripts, nothing fetched.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out: a report may hold
output of training processes.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from itertools import groupby

from trainrun.contract.masking import masked
from trainrun_operator.cli.formatting import clock, printable, shortened
from trainrun_operator.cli.report.drawing import COLORS, WIDE, frame, no_numbers, painted, svg
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
    TableRow,
    TextLine,
)
from trainrun_operator.core.run.times import BUCKETS

LONGEST_NAME, LONGEST_LINE = 80, 400
"""Characters of a metric's name, and of a line of output."""
LEAST_BAR = 0.002
"""Width of the shortest bar, so that it can be seen."""


def page(report: Document) -> str:
    """The whole page."""
    body = "\n".join((head(report), *advice(report.advice), *map(section, report.sections)))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return framed(f"<main>\n{body}\n</main>", title=report.name, policy=policy, style=STYLE)


def framed(body: str, *, title: str, policy: str, style: str, script: str = "") -> str:
    """A page with this body; the browser allows it no more than the policy says."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style>\n"
        f"{script}</head>\n<body>{body}</body></html>\n"
    )


def safe(words: str) -> str:
    """The text, escaped and without what looks like a secret."""
    return html.escape(masked(printable(words)))


def head(report: Document) -> str:
    """What is read first: name, headline, facts, remarks."""
    facts = "".join(f"<tr>{_cells(fact)}</tr>" for fact in report.facts)
    table = f"<table>{facts}</table>" if facts else ""
    notes = "".join(
        f'<p class="note">{safe(text)}</p>' for text in (*report.remarks, *report.ending)
    )
    return (
        f'<header class="{report.tone}"><h1>{safe(report.name)}</h1>'
        f"<p>{safe(report.headline)}</p>{_blocks(report.lead)}{table}</header>{notes}"
    )


def advice(found: Recommendations | None) -> Iterator[str]:
    """What to do, if there is anything to say about it."""
    if found is None:
        return
    items = "".join(
        f"<li>{safe(item.text)}{f'<br>&rarr; {safe(item.remedy)}' if item.remedy else ''}</li>"
        for item in found.items
    )
    if not items:
        yield f"<p>{safe(found.otherwise)}</p>"
    else:
        yield f"<section><h2>{safe(found.title)}</h2><ul>{items}</ul></section>"


def section(part: Section) -> str:
    """Some blocks under a title."""
    kind, when = "", ""
    if part.at is not None:
        kind = ' class="chapter"'
        when = f"<p><time>{clock(part.at, day=True)}</time></p>"
    named = f' id="{safe(part.id)}"' if part.id else ""
    return (
        f"<section{named}{kind}><h2>{safe(part.title)}</h2>{when}{_blocks(part.blocks)}</section>"
    )


def _blocks(blocks: Iterable[Block]) -> str:
    """Consecutive lines are one list."""
    return "".join(
        f"<ul>{''.join(map(_block, some))}</ul>" if lines else "".join(map(_block, some))
        for lines, some in groupby(blocks, key=lambda block: isinstance(block, TextLine))
    )


def _block(block: Block) -> str:
    match block:
        case TextLine(text=text, tone=tone, at=at, deeper=deeper):
            when = f"<time>{clock(at)}</time> " if at is not None else ""
            return f'<li class="{tone}{" deeper" * deeper}">{when}{safe(text)}</li>'
        case Preformatted():
            return _verbatim(block)
        case Table(heads=heads, rows=rows):
            head = "".join(f"<th>{safe(head)}</th>" for head in heads)
            drawn = "".join(map(_row, rows))
            return f'<div class="wide"><table><tr>{head}</tr>{drawn}</table></div>'
        case Bars():
            return _bars(block)
        case Curves():
            return _curves(block)


def _verbatim(block: Preformatted) -> str:
    # Mask each line by itself: a secret ends with its line.
    text = "\n".join(safe(shortened(masked(line), LONGEST_LINE)) for line in block.lines)
    title = safe(block.title)
    if block.folded:
        return f"<details><summary>{title}</summary><pre>{text}</pre></details>"
    return f"{f'<p>{title}:</p>' if title else ''}<pre>{text}</pre>"


def _row(row: TableRow) -> str:
    below = "<br>".join(map(safe, row.below))
    more = f'<tr class="below"><td colspan="{len(row.cells)}">{below}</td></tr>' if below else ""
    cells = _cells(row.cells)
    if row.link:
        cells = f'<td><a href="{row.link}">{safe(row.cells[0])}</a></td>{_cells(row.cells[1:])}'
    return f'<tr class="{row.tone}">{cells}</tr>{more}'


def _cells(cells: Iterable[str]) -> str:
    return "".join(f"<td>{safe(cell)}</td>" for cell in cells)


def _bars(block: Bars) -> str:
    bars = "".join(_bar(bar, block) for bar in block.bars)
    sums = "".join(
        f"<tr><td>{_key(f'class={kind.name}')}{safe(kind.words)}</td>"
        f"{_cells((f'{100 * kind.share:.1f} %', kind.amount))}</tr>"
        for kind in block.kinds
        if kind.amount
    )
    first, last = map(safe, block.scale)
    return (
        f'{bars}<p class="scale dim"><span>{first}</span><span>{last}</span></p>'
        f'<table class="sums">{sums}</table>'
    )


def _bar(bar: Bar, block: Bars) -> str:
    words = {kind.name: safe(kind.words) for kind in block.kinds}
    left, whole = min(bar.start, 1.0), sum(bar.parts.values()) or 1.0
    width = max(min(whole, 1.0 - left), LEAST_BAR)
    parts, at = "", min(left, 1.0 - width)
    for name, part in bar.parts.items():
        if part:
            place = f'x="{WIDE * at:.1f}" width="{WIDE * width * part / whole:.1f}"'
            parts += f'<rect class="{name}" {place} height="1"><title>{words[name]}</title></rect>'
            at += width * part / whole
    target = f' href="#{safe(bar.section)}"' if bar.section else ""
    return (
        f'<a class="line"{target}><b>{safe(bar.name)}</b><svg class="track" viewBox="0 0 {WIDE} 1" '
        f'preserveAspectRatio="none">{parts}</svg><em>{safe(bar.mark)}</em></a>'
    )


def _key(paint: str) -> str:
    """A small square of this color, before a text."""
    return f'<svg class="key" viewBox="0 0 1 1"><rect {paint} width="1" height="1"/></svg>'


def _curves(block: Curves) -> str:
    legend = "".join(_run(block, run) for run in range(len(block.names)))
    figures = "".join(_figure(block, metric) for metric in block.pictures)
    many = " many" * (len(block.names) > COLORS)
    return f'<p class="legend{many}">{legend}</p><div class="figures">{figures}</div>'


def _run(block: Curves, run: int) -> str:
    """The color and name of a run; with many runs, most names show only on hover."""
    name, of = safe(block.names[run]), len(block.names)
    label = name if of <= COLORS or run in (0, of - 1) else ""
    key = _key(painted(run, of, attribute="fill"))
    return f'<span title="{name}">{key}{label}</span>'


def _figure(block: Curves, metric: str) -> str:
    picture = block.pictures[metric]
    area, plot = frame(picture), ""
    if area is not None:
        drawn = svg(picture, compared=block.compared, of=len(block.names))
        plot = (
            f'<div class="plot"><b>{area.high:.4g}</b>{drawn}'
            f'<b>{area.low:.4g}</b></div><p class="steps"><span>{block.along} {area.first:,}</span>'
            f"<span>{area.last:,}</span></p>"
        )
    wrong = "; ".join(no_numbers(block, metric))
    note = f'<p class="note">{safe(wrong)}</p>' if wrong else ""
    name = safe(metric[:LONGEST_NAME])
    return f"<figure><figcaption>{name}</figcaption>{plot}{note}</figure>"


STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--card:#f6f8fa;
--good:#1a7f37;--bad:#cf222e;--note:#9a6700;
--useful:#2da44e;--rework:#cf222e;--checkpoint_stall:#bf8700;--hang:#82071e;--drain:#8250df;
--start:#54aeff;--rendezvous:#0969da;--load:#1b7c83;--first_step:#0a3069;--queue:#8c959f;
--image:#6e7781;--backoff:#afb8c1;--unknown:#d8b4a0;
--c0:#afb8c1;--c1:#cf222e;--c2:#0969da;--c3:#8250df;--c4:#1a7f37;--c5:#bf8700;--c6:#1b7c83;
--c7:#bc4c00;--c8:#bf3989;--c9:#54aeff;--c10:#6e7781}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#8d96a0;--line:#30363d;
--card:#161b22;--good:#3fb950;--bad:#f85149;--note:#d29922;
--useful:#3fb950;--rework:#f85149;--checkpoint_stall:#d29922;--hang:#ff7b72;--drain:#a371f7;
--start:#79c0ff;--rendezvous:#388bfd;--load:#39c5cf;--first_step:#a5d6ff;--queue:#6e7681;
--image:#8b949e;--backoff:#484f58;--unknown:#9e6a5a;
--c0:#6e7681;--c1:#f85149;--c2:#58a6ff;--c3:#a371f7;--c4:#3fb950;--c5:#d29922;--c6:#39c5cf;
--c7:#f0883e;--c8:#f778ba;--c9:#a5d6ff;--c10:#b1bac4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:1rem}
h1{margin:0;font-size:1.5rem}h2{font-size:1.15rem;margin:1.6rem 0 .5rem}
p{margin:.3rem 0}ul{margin:.4rem 0;padding-left:1.2rem}h1,li,p,td{overflow-wrap:anywhere}
header{border-left:.4rem solid var(--dim);padding-left:.8rem}
header.good{border-color:var(--good)}header.bad{border-color:var(--bad)}
header.note{border-color:var(--note)}
.dim,time{color:var(--dim);font-size:.875rem}.deeper{margin-left:1.2rem}
li.good,p.good,tr.good td{color:var(--good)}li.note,p.note,tr.note td{color:var(--note)}
li.bad,p.bad,tr.bad td{color:var(--bad);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;margin-top:.6rem}
td,th{padding:.15rem .9rem .15rem 0;text-align:left;vertical-align:top}
tr.below td{color:var(--dim);font-weight:400;padding:0 0 .3rem 1rem}
.sums td+td{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.chapter{border:1px solid var(--line);border-radius:.4rem;padding:.7rem .9rem;margin:.7rem 0}
.chapter h2{margin:0;font-size:1rem}
pre{overflow-x:auto;font-size:.8rem;background:var(--card);border:1px solid var(--line);
padding:.5rem;margin:.4rem 0 0}details{margin:.4rem 0 0}summary{cursor:pointer;font-size:.9rem}
.key{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.4em}
.line{display:flex;align-items:center;gap:.5rem;color:inherit;text-decoration:none;padding:.12rem 0}
.line b{flex:0 0 6.2rem;font-weight:400;font-size:.875rem}
.line em{flex:0 0 4.2rem;font-style:normal;font-size:.8rem;color:var(--bad);white-space:nowrap}
.track{flex:1;min-width:0;height:1rem;background:var(--card);border-radius:.2rem}
.scale{display:flex;justify-content:space-between;margin-left:6.7rem;margin-right:4.7rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.875rem}
.many{gap:.2rem .1rem}.many :first-child{margin-right:.4em}
a[href]:hover,.line[href] b{text-decoration:underline}.chapter:target{border-color:var(--fg)}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600;overflow-wrap:anywhere}
.plot{position:relative;background:var(--card);border-radius:.2rem;padding:1.2rem .4rem}
.plot svg{display:block;width:100%;height:8rem;overflow:visible}
.plot b{position:absolute;left:.4rem;font:400 .75rem system-ui,sans-serif;color:var(--dim)}
.plot b:first-child{top:.1rem}.plot b:last-child{bottom:.1rem}
path{fill:none;stroke:currentcolor;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round;
vector-effect:non-scaling-stroke}path.thick{stroke-width:7}path.dot{stroke-width:8}
.steps{display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem;margin:0}
@media(max-width:40rem){.scale{margin:0}
.line b{flex-basis:5rem}.chapter{padding:.6rem}.scale span{max-width:45%}}
"""
STYLE += "".join(
    f".{name}{{fill:var(--{name})}}path.{name}{{fill:none;stroke:var(--{name})}}"
    for name in (*BUCKETS, *(f"c{run}" for run in range(COLORS)))
)
