"""A drill as one static page: verdicts, findings, and the curves over each other. No scripts,
nothing fetched, light and dark.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.chart import CHART_STYLE, COLOURS, chart
from trainrun_operator.cli.drilling.series import pictures
from trainrun_operator.cli.drilling.text import (
    CURVES,
    FAULTS,
    OUTCOMES,
    control_lines,
    stage_words,
)
from trainrun_operator.cli.pages.frame import framed, safe
from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.rehearsed import Drill, Rehearsed
    from trainrun_operator.cli.drilling.series import Picture

MOST_METRICS = 6

STYLE = """
:root{--good:#1a7f37;--bad:#cf222e;--open:#9a6700}
@media(prefers-color-scheme:dark){:root{--good:#3fb950;--bad:#f85149;--open:#d29922}}
header.open{border-color:var(--open)}
table{margin:0;width:100%}
td,th{padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:not(.more) td{border:0;padding-bottom:0}
.Fine{color:var(--good)}.Found{color:var(--bad);font-weight:600}.NotRehearsed{color:var(--open)}
.finding{background:var(--card);border-left:.25rem solid var(--bad);padding:.5rem .7rem;
margin:.6rem 0;overflow-wrap:anywhere}
"""


def page(drill: Drill) -> str:
    """The whole page."""
    body = "\n".join(part for part in _parts(drill) if part)
    return framed(f"Drill of {drill.run}", body, style=STYLE + CHART_STYLE)


def _parts(drill: Drill) -> Iterator[str]:
    state = "bad" if drill.findings else "good" if drill.complete else "open"
    said = {"bad": "Something would go wrong.", "good": "Nothing was found."}.get(
        state, "Nothing was found in what was rehearsed."
    )
    to = f"to step {drill.until}, " if drill.until is not None else ""
    notes = "".join(f"<p>{safe(note)}</p>" for note in (*control_lines(drill), *drill.notes))
    yield (
        f'<header class="{state}"><h1>Drill of {safe(drill.run)}</h1><p>{said}</p>'
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
    more = "<br>".join(safe(text) for text in (it.why_not, parts, saved) if text)
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
        f"<p>{safe(by_kind[kind].text)}</p><p>&rarr; {safe(by_kind[kind].remedy)}</p></div>"
        for kind in dict.fromkeys(it.kind for _, it in told)
    )
    return f"<h2>What would go wrong</h2>{items}"


def _figure(picture: Picture) -> str:
    keys = "".join(
        f'<span class="key"><i style="background:var(--c{number % COLOURS})"></i>{safe(it.name)}'
        "</span>"
        for number, it in enumerate(picture.series)
    )
    return (
        f"<h2>{safe(picture.metric)}</h2><figure>{chart(picture)}"
        f'<figcaption class="dim">{keys}</figcaption></figure>'
    )
