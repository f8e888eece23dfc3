"""Parts of the page that come from the run's storage: curves and last lines.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from trainrun.contract.masking import masked
from trainrun_operator.cli.explaining.curves import LONGEST_NAME
from trainrun_operator.cli.explaining.extras import MOST_LINES
from trainrun_operator.cli.explaining.picture import COLORS, limits, no_numbers, svg
from trainrun_operator.cli.pages.frame import safe
from trainrun_operator.cli.wording import printable

if TYPE_CHECKING:
    from trainrun.checkpoint import RankLog
    from trainrun_operator.cli.explaining.curves import Curves
    from trainrun_operator.cli.pages.curve import Point

LONGEST_LINE = 400
"""Characters of a line of output."""


def curves_section(curves: Curves) -> str:
    """All metrics of rank 0; empty where there are none."""
    if not curves.by_metric:
        return ""
    attempts = sorted({attempt for found in curves.by_metric.values() for attempt in found})
    colors = {attempt: number % COLORS for number, attempt in enumerate(attempts)}
    figures = "".join(_figure(name, found, colors) for name, found in curves.by_metric.items())
    more = ""
    if curves.left_out:
        names = ", ".join(curves.left_out)
        more = f'<p class="dim">Without a picture: {safe(names)}.</p>'
    legend = "".join(
        f'<span><i class="c{colors[attempt]}"></i>attempt {attempt}</span>' for attempt in attempts
    )
    return (
        f'<section><h2>What rank 0 reported</h2><p class="legend">{legend}</p>'
        f'<div class="figures">{figures}</div>{more}</section>'
    )


def lines_of(ranks: Iterable[RankLog]) -> str:
    """The last lines of an attempt that failed, to be unfolded."""
    tails = "".join(map(_tail, ranks))
    if not tails:
        return ""
    return f"<details><summary>Last lines of its processes</summary>{tails}</details>"


def _figure(name: str, curves: Mapping[int, list[Point]], colors: Mapping[int, int]) -> str:
    low, high, first, last = limits(curves)
    wrong = "; ".join(no_numbers(curves))
    note = f'<p class="note">{safe(wrong)}</p>' if wrong else ""
    shown = svg(curves, colors)
    if shown:
        shown = (
            f'<div class="plot"><b>{high}</b>{shown}<b>{low}</b></div>'
            f'<p class="steps"><span>step {first}</span><span>{last}</span></p>'
        )
    return f"<figure><figcaption>{safe(name[:LONGEST_NAME])}</figcaption>{shown}{note}</figure>"


def _tail(rank: RankLog) -> str:
    lines = [printable(line.text)[:LONGEST_LINE] for line in rank.lines[-MOST_LINES:]]
    before = rank.dropped + len(rank.lines) - len(lines)
    more = f", {before:,} before them left out" if before else ""
    noun = "line" if len(lines) == 1 else "lines"
    body = safe("\n".join(map(masked, lines))) if lines else ""
    return (
        f"<details><summary>rank {rank.rank}: {len(lines)} {noun}{more}</summary>"
        f"<pre>{body}</pre></details>"
    )
