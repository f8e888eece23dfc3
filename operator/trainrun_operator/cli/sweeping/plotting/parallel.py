"""Trials as lines over parallel axes, one for each parameter and one for the objective.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainrun.sweep.space import Parameter
from trainrun_operator.cli import wording
from trainrun_operator.cli.pages.strokes import Place, stroke
from trainrun_operator.cli.sweeping.plotting.drawing import (
    ASIDE,
    WITHOUT,
    Box,
    PagePart,
    grades,
    left_out,
    thinned,
    words,
)
from trainrun_operator.cli.sweeping.plotting.plotted import Plotted, Shown
from trainrun_operator.cli.sweeping.plotting.scales import Scale, scale_of

MOST_LINES = 300
"""Trials."""
MOST_AXES = 10
"""Parameters that have an axis: those that are declared first."""
LONGEST_NAME = 13
"""Characters above an axis."""
BOX = Box(width=920, height=380, left=70, right=40, top=40, bottom=34)


def parallel(plotted: Plotted) -> PagePart:
    """All trials; a parameter that a trial does not have lies below its axis."""
    shown = plotted.worst_first(plotted.some(plotted.trials, MOST_LINES))
    space = plotted.space[:MOST_AXES]
    scales = [scale_of(it.domain) for it in space]
    axes = "".join(
        _axis(place, scale, parameter.name, len(space), below="absent" if parameter.when else "")
        for place, (parameter, scale) in enumerate(zip(space, scales, strict=True))
    )
    below = WITHOUT if any(it.value is None for it in shown) else ""
    metric = plotted.objective.metric
    own = _axis(len(space), plotted.values, metric, len(space), below=below)
    lines = "".join(_line(it, plotted, space, scales) for it in shown)
    names = ", ".join([*(it.name for it in space), metric])
    drawn = BOX.svg(lines + axes + own, told=f"each trial as a line over the axes {names}")
    notes = (
        thinned(len(plotted.trials), MOST_LINES),
        left_out(it.name for it in plotted.space[MOST_AXES:]),
    )
    return PagePart(grades() + drawn, notes)


def _axis(place: int, scale: Scale, name: str, count: int, *, below: str) -> str:
    x = BOX.x(place / count)
    ticks = "".join(
        f'<line class="axis" x1="{x - 4:.1f}" x2="{x:.1f}" y1="{BOX.y(share):.1f}" '
        f'y2="{BOX.y(share):.1f}"/>' + words(x - 7, BOX.y(share) + 4, text, anchor="end")
        for share, text in scale.ticks(8)
    )
    line = f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{BOX.top}" y2="{BOX.floor}"/>'
    head = words(
        x, BOX.top - 14, wording.shortened(name, LONGEST_NAME), anchor="middle", kind="name"
    )
    foot = words(x - 7, BOX.floor + ASIDE + 4, below, anchor="end") if below else ""
    return f"{line}{ticks}{head}{foot}"


def _line(shown: Shown, plotted: Plotted, space: tuple[Parameter, ...], scales: list[Scale]) -> str:
    kind = "best" if plotted.leads(shown) else f"v{shown.grade}"
    places = stroke(_places(shown, plotted, space, scales))
    return f'<path class="trial {kind}" d="{places}">{plotted.title(shown)}</path>'


def _places(
    shown: Shown, plotted: Plotted, space: tuple[Parameter, ...], scales: list[Scale]
) -> Iterator[Place]:
    for place, (parameter, scale) in enumerate(zip(space, scales, strict=True)):
        value = shown.trial.params.get(parameter.name)
        share = None if value is None else scale.at(value)
        yield BOX.x(place / len(space)), BOX.y(share)
    yield BOX.x(1.0), BOX.y(None if shown.value is None else plotted.values.at(shown.value))
