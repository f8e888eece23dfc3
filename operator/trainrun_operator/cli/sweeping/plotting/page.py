"""A sweep as one static page.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out.
"""

from __future__ import annotations

from trainrun.sweep.results import standing
from trainrun_operator.cli import wording
from trainrun_operator.cli.pages.frame import framed, safe
from trainrun_operator.cli.sweeping.plotting.drawing import MARKS, STATES, PagePart
from trainrun_operator.cli.sweeping.plotting.learning import curves
from trainrun_operator.cli.sweeping.plotting.parallel import parallel
from trainrun_operator.cli.sweeping.plotting.plotted import Plotted, plotted_of
from trainrun_operator.cli.sweeping.plotting.scatter import history, slices
from trainrun_operator.cli.sweeping.plotting.style import STYLE
from trainrun_operator.cli.sweeping.reading import ReadSweep
from trainrun_operator.cli.sweeping.texts import counted, first_line, trials, value_at
from trainrun_operator.core.sweep.trial import as_text


def page(sweep: ReadSweep) -> str:
    """The whole page."""
    plotted = plotted_of(sweep.view, sweep.objective, sweep.space)
    parts = [MARKS, _head(sweep)]
    if plotted.trials:
        parts += [
            _section("The best trial", _best(plotted)),
            _section("Values, and the best so far", history(plotted)),
            _section("Learning curves", curves(plotted)),
            _section("Parameters together", parallel(plotted)),
            _section("Parameters one by one", slices(plotted)),
        ]
    return framed(f"Sweep {sweep.name}", "\n".join(parts), style=STYLE)


def _head(sweep: ReadSweep) -> str:
    view, goal = sweep.view, sweep.objective
    wanted = "smallest" if goal.goal == "minimize" else "greatest"
    which = "at its last step" if goal.value == "last" else "at its best step"
    counts = counted({state.lower(): view.count(state) for state in STATES})
    state, said = "open", "Not over yet, as far as its log tells."
    if view.end is not None:
        end = view.end.record
        state = "good" if end.verdict == "Succeeded" else "bad"
        said = f"{end.verdict}: {first_line(end.message) or end.reason}"
    return (
        f'<header class="{state}"><h1>{safe(sweep.name)}</h1>'
        f"<p>Searched for: the {wanted} {safe(goal.metric)} of a trial {which}. {safe(said)}</p>"
        f"<p>{trials(view.asked)}: {counts}. "
        f"{safe(wording.seconds(view.active))} with trials at work.</p>"
        f'<p class="dim">{safe(sweep.uri)}</p></header>'
    )


def _best(plotted: Plotted) -> PagePart:
    if plotted.best is None:
        return PagePart(f"<p>No trial has a {safe(plotted.objective.metric)} yet.</p>")
    trial = plotted.trials[plotted.best].trial
    own = standing(trial, plotted.objective)
    assert own is not None, "the best trial has a value"
    told = value_at(plotted.objective, own.value, own.step)
    rows = "".join(
        f"<tr><td>{safe(name)}</td><td><code>{safe(as_text(value))}</code></td></tr>"
        for name, value in trial.params.items()
    )
    said = f"<p>Trial {trial.number} ({trial.state.lower()}): {safe(told)}</p>"
    return PagePart(f"{said}<table>{rows}</table>")


def _section(head: str, part: PagePart) -> str:
    notes = "".join(f'<p class="dim">{safe(note)}</p>' for note in part.notes if note)
    return f'<section><h2>{head}</h2><div class="wide">{part.html}</div>{notes}</section>'
