"""The learning curves of trials: what each has reported, over the steps.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainrun_operator.cli.pages.curve import Curve, Point
from trainrun_operator.cli.pages.strokes import stroke
from trainrun_operator.cli.sweeping.plotting.drawing import (
    Box,
    PagePart,
    beyond,
    kind_of,
    mark,
    thinned,
)
from trainrun_operator.cli.sweeping.plotting.plotted import Plotted, Shown
from trainrun_operator.cli.sweeping.plotting.scales import Numbers

MOST_CURVES = 100
"""Trials."""
BOX = Box(width=920, height=380)


def curves(plotted: Plotted) -> PagePart:
    """What trials have reported; the mark at the end of each line tells how its trial ended."""
    points = {it.number: _points(it.trial.values) for it in plotted.trials}
    reported = [it for it in plotted.trials if points[it.number]]
    if not reported:
        return PagePart("<p>No trial has reported a number yet.</p>")
    shown = plotted.worst_first(plotted.some(reported, MOST_CURVES))
    steps = [step for it in shown for step, _ in points[it.number]]
    values = [[value for _, value in points[it.number]] for it in shown]
    best, worst = (max, min) if plotted.objective.goal == "maximize" else (min, max)
    across = Numbers(min(steps), max(steps), whole=True)
    up = plotted.scale(map(worst, values), best=best(map(best, values)))
    metric = plotted.objective.metric
    drawn = BOX.svg(
        BOX.axes(across, up, named="step", valued=metric, most=10)
        + "".join(_curve(it, points[it.number], plotted, across, up) for it in shown),
        told=f"{metric} of each trial over its steps",
    )
    return PagePart(drawn, (thinned(len(reported), MOST_CURVES), beyond(up, map(worst, values))))


def _points(values: Mapping[int, float]) -> list[Point]:
    """Finite numbers alone."""
    curve = Curve()
    for step, value in sorted(values.items()):
        if math.isfinite(value):
            curve.add(step, value)
    return curve.points


def _curve(
    shown: Shown, points: list[Point], plotted: Plotted, across: Numbers, up: Numbers
) -> str:
    places = [(BOX.x(across.at(step) or 0.0), BOX.y(up.at(value))) for step, value in points]
    line = f'<path class="trial {kind_of(shown, plotted)}" d="{stroke(places)}">'
    return f"{line}{plotted.title(shown)}</path>{mark(shown, places[-1], plotted)}"
