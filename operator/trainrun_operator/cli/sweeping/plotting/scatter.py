"""Trials as marks: the value of each over something else.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from trainrun.sweep.space import Parameter, Scalar
from trainrun_operator.cli.pages.strokes import Place, stroke
from trainrun_operator.cli.sweeping.plotting.drawing import (
    ASIDE,
    WITHOUT,
    Box,
    PagePart,
    beyond,
    left_out,
    legend,
    mark,
    thinned,
    words,
)
from trainrun_operator.cli.sweeping.plotting.plotted import Plotted, Shown
from trainrun_operator.cli.sweeping.plotting.scales import Numbers, Scale, scale_of
from trainrun_operator.cli.sweeping.texts import trials

MOST_IN_HISTORY = 1000
MOST_IN_SLICE = 250
"""Trials."""
MOST_SLICES = 16
"""Parameters that have a picture: those that are declared first."""
HISTORY = Box(width=920, height=330)
SLICE = Box(width=440, height=270, left=60)


def history(plotted: Plotted) -> PagePart:
    """The value of each ended trial over its number, and the best one so far."""
    ended = [it for it in plotted.trials if not it.trial.open]
    if not ended:
        return PagePart("<p>No trial has ended yet.</p>")
    metric = plotted.objective.metric
    across = Numbers(ended[0].number, ended[-1].number, whole=True)
    dots = [(it, it.number) for it in plotted.some(ended, MOST_IN_HISTORY)]
    line = stroke(_best_so_far(plotted, ended, across))
    drawn = HISTORY.svg(
        HISTORY.axes(across, plotted.values, named="trial", valued=metric, most=12)
        + f'<path class="trial best" d="{line}"><title>the best so far</title></path>'
        + _marks(plotted, dots, HISTORY, across),
        told=f"{metric} of each ended trial over its number, and the best one so far",
    )
    told = (it.value for it in ended if it.value is not None)
    notes = (thinned(len(ended), MOST_IN_HISTORY), beyond(plotted.values, told))
    return PagePart(legend() + drawn, notes)


def slices(plotted: Plotted) -> PagePart:
    """The value of each trial over each parameter."""
    figures = "".join(_slice(plotted, it) for it in plotted.space[:MOST_SLICES])
    notes = (
        thinned(len(plotted.trials), MOST_IN_SLICE),
        left_out(it.name for it in plotted.space[MOST_SLICES:]),
    )
    return PagePart(f'<div class="figures">{figures}</div>', notes)


def _slice(plotted: Plotted, parameter: Parameter) -> str:
    name, metric, across = parameter.name, plotted.objective.metric, scale_of(parameter.domain)
    having = [it for it in plotted.trials if name in it.trial.params]
    dots = [(it, it.trial.params[name]) for it in plotted.some(having, MOST_IN_SLICE)]
    drawn = SLICE.svg(
        SLICE.axes(across, plotted.values, named=name, valued=metric, most=5)
        + _marks(plotted, dots, SLICE, across),
        told=f"{metric} of each trial over {name}",
    )
    absent = len(plotted.trials) - len(having)
    note = f'<p class="dim">absent in {trials(absent)}</p>' if absent else ""
    return f"<figure>{drawn}{note}</figure>"


def _marks(plotted: Plotted, dots: Sequence[tuple[Shown, Scalar]], box: Box, across: Scale) -> str:
    """Those without a value stand below the axis."""
    value_of = {it.number: at for it, at in dots}
    drawn, without = "", ""
    for shown in plotted.worst_first(it for it, _ in dots):
        share = across.at(value_of[shown.number])
        if share is None:
            continue
        up = None if shown.value is None else plotted.values.at(shown.value)
        if up is None:
            without = words(box.left - 8, box.floor + ASIDE + 4, WITHOUT, anchor="end")
        drawn += mark(shown, (box.x(share), box.y(up)), plotted)
    return without + drawn


def _best_so_far(plotted: Plotted, ended: list[Shown], across: Numbers) -> Iterator[Place]:
    ahead: list[tuple[int, float]] = []
    for it in ended:
        value = it.value if it.in_the_running else None
        if value is not None and (not ahead or plotted.objective.better(value, ahead[-1][1])):
            ahead.append((it.number, value))
    if not ahead:
        return
    for (number, value), (until, _) in pairwise([*ahead, (ended[-1].number, 0.0)]):
        for at in (number, until):
            yield HISTORY.x(across.at(at) or 0.0), HISTORY.y(plotted.values.at(value))
