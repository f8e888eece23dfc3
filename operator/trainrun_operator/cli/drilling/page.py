"""A drill as one static page: verdicts, findings, and the curves over each other. No scripts,
nothing fetched, light and dark.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainrun.contract.masking import masked
from trainrun_operator.cli.drilling.chart import CHART_STYLE, COLOURS, chart
from trainrun_operator.cli.drilling.series import pictures
from trainrun_operator.cli.drilling.text import (
    CURVES,
    FAULTS,
    OUTCOMES,
    control_lines,
    stage_words,
)
from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.rehearsed import Drill, Rehearsed
    from trainrun_operator.cli.drilling.series import Picture

MOST_METRICS = 6

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--card:#f6f8fa;
--good:#1a7f37;--bad:#cf222e;--open:#9a6700}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#8d96a0;--line:#30363d;
--card:#161b22;--good:#3fb950;--bad:#f85149;--open:#d29922}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:1rem}
h1{margin:0;font-size:1.5rem}h2{font-size:1.15rem;margin:1.6rem 0 .5rem}p{margin:.3rem 0}
header{border-left:.4rem solid var(--open);padding-left:.8rem}
header.good{border-color:var(--good)}header.bad{border-color:var(--bad)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}
td,th{padding:.3rem .8rem .3rem 0;text-align:left;border-bottom:1px solid var(--line);
vertical-align:top}
tr:not(.more) td{border:0;padding-bottom:0}.dim{color:var(--dim);font-size:.875rem}
.Fine{color:var(--good)}.Found{color:var(--bad);font-weight:600}.NotRehearsed{color:var(--open)}
.finding{background:var(--card);border-left:.25rem solid var(--bad);padding:.5rem .7rem;
margin:.6rem 0;overflow-wrap:anywhere}
"""


def page(drill: Drill) -> str:
    """The whole page."""
    body = "\n".join(part for part in _parts(drill) if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>Drill of {_text(drill.run)}</title>\n<style>{STYLE}{CHART_STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _text(text: str) -> str:
    """Escaped, and without what looks like a secret."""
    return html.escape(masked(text))


def _parts(drill: Drill) -> Iterator[str]:
    state = "bad" if drill.findings else "good" if drill.complete else "open"
    said = {"bad": "Something would go wrong.", "good": "Nothing was found."}.get(
        state, "Nothing was found in what was rehearsed."
    )
    to = f"to step {drill.until}, " if drill.until is not None else ""
    notes = "".join(f"<p>{_text(note)}</p>" for note in (*control_lines(drill), *drill.notes))
    yield (
        f'<header class="{state}"><h1>Drill of {_text(drill.run)}</h1><p>{said}</p>'
        f'<p class="dim">{drill.world_size} processes, {to}{in_words(drill.seconds)}</p></header>'
        f"{notes}"
    )
    yield _verdicts(drill)
    yield _findings(drill)
    yield "".join(_figure(it) for it in pictures(drill, most=MOST_METRICS))


def _verdicts(drill: Drill) -> str:
    rows = "".join(map(_row, drill.rehearsed))
    heads = ("fault", "verdict", "resumed from", "steps lost", "curves", "back after")
    head = "".join(f"<th>{it}</th>" for it in heads)
    return f'<h2>Faults</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _row(it: Rehearsed) -> str:
    seen = bool(it.seconds)
    resumed = f"step {it.resumed_from}" if it.resumed_from is not None else "the start"
    parts = stage_words(it)
    saved = f"committed {in_words(it.committed)} after the notice" if it.committed else ""
    more = "<br>".join(_text(text) for text in (it.why_not, parts, saved) if text)
    cells = (
        FAULTS[it.scenario.name],
        f'<span class="{it.outcome}">{OUTCOMES[it.outcome].lower()}</span>',
        resumed if seen else "-",
        str(it.lost_steps) if seen else "-",
        CURVES[it.curves],
        in_words(it.recovery),
    )
    row = "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return f'{row}<tr class="more"><td class="dim" colspan="{len(cells)}">{more}</td></tr>'


def _findings(drill: Drill) -> str:
    told = [("undisturbed", it) for it in drill.control_findings]
    told += [(FAULTS[it.scenario.name], f) for it in drill.rehearsed for f in it.findings]
    if not told:
        return ""
    by_kind = {it.kind: it for _, it in reversed(told)}
    items = "".join(
        f'<div class="finding"><strong>{kind}</strong> <span class="dim">'
        f"{', '.join(where for where, it in told if it.kind == kind)}</span>"
        f"<p>{_text(by_kind[kind].text)}</p><p>&rarr; {_text(by_kind[kind].remedy)}</p></div>"
        for kind in dict.fromkeys(it.kind for _, it in told)
    )
    return f"<h2>What would go wrong</h2>{items}"


def _figure(picture: Picture) -> str:
    keys = "".join(
        f'<span class="key"><i style="background:var(--c{number % COLOURS})"></i>{_text(it.name)}'
        "</span>"
        for number, it in enumerate(picture.series)
    )
    return (
        f"<h2>{_text(picture.metric)}</h2><figure>{chart(picture)}"
        f'<figcaption class="dim">{keys}</figcaption></figure>'
    )
