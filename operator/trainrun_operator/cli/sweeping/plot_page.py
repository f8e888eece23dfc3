"""A sweep as one HTML page of Optuna's pictures, drawn by plotly.

Layer: cli; pure. The page contains plotly's script and fetches nothing. Its size is bounded however
large the sweep is. What looks like a secret is left out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial
from optuna.visualization import (
    plot_contour,
    plot_intermediate_values,
    plot_optimization_history,
    plot_parallel_coordinate,
    plot_param_importances,
    plot_slice,
)
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from trainrun._samplers.optuna_study import frozen, texts
from trainrun.contract.masking import masked
from trainrun.sweep.search import OneOf, Scalar
from trainrun.sweep.view import TrialView, best
from trainrun_operator.cli.formatting import counted
from trainrun_operator.cli.report.page import framed, safe
from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep
from trainrun_operator.cli.sweeping.trial_text import (
    cost,
    first_line,
    parameters,
    searched,
    value_at,
)

MOST_CURVES = 100
MOST_LINES = 300
MOST_IN_CONTOURS = 100
MOST_IN_SLICES = 1000
"""Trials in each picture. The grid of a contour grows with their square."""
MOST_POINTS = 300
"""Points of one curve."""
MOST_CONTOURS = 4
"""Parameters in the contours, the most important ones: each pair has a picture."""

NOT_YET = "no trial has ended with a value"
STYLE = (
    "body{margin:0 auto;max-width:70rem;padding:1rem;font:16px/1.5 system-ui,sans-serif}"
    "h1{margin:0;font-size:1.5rem}h2{font-size:1.15rem;margin:1.6rem 0 0}p{margin:.3rem 0}"
    "p{overflow-wrap:anywhere}.dim{color:#57606a;font-size:.875rem}.picture{overflow-x:auto}"
)
# plotly's script compiles code (unsafe-eval), and saves pictures as files (data:, blob:).
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False}
"""Without the button that sends a picture to plotly's servers."""
CONTOUR_HEIGHT = 900
"""Pixels, if there are more than two parameters."""


@dataclass(frozen=True)
class Drawn:
    """The sweep and its trials as the pictures show them."""

    sweep: ReadSweep
    trials: tuple[FrozenTrial, ...]
    """By number."""
    best: int | None
    """Number of the best trial."""

    @property
    def valued(self) -> list[int]:
        """Numbers of the trials that ended with a value."""
        return [at for at, trial in enumerate(self.trials) if trial.state == TrialState.COMPLETE]

    @property
    def curves(self) -> list[int]:
        """Numbers of the trials that reported a value."""
        return [at for at, trial in enumerate(self.trials) if trial.intermediate_values]

    def varied(self) -> list[str]:
        """Parameters with two or more values among the valued trials, in declared order."""
        valued = [self.trials[at].params for at in self.valued]
        names = (parameter.name for parameter in self.sweep.space)
        return [name for name in names if len({p[name] for p in valued if name in p}) > 1]

    def study(self, numbers: Iterable[int]) -> optuna.Study:
        """A study of these trials. The others are in it as failed ones, to keep the numbers."""
        study = optuna.create_study(direction=self.sweep.objective.goal)
        study.set_metric_names([self.sweep.objective.metric])
        failed, shown = create_trial(state=TrialState.FAIL), set(numbers)
        trials = enumerate(self.trials)
        study.add_trials([trial if at in shown else failed for at, trial in trials])
        return study

    def some(self, numbers: list[int], most: int) -> tuple[optuna.Study, str]:
        """A study of at most `most` of them, evenly chosen, and the best one; and a note on it."""
        if len(numbers) <= most:
            return self.study(numbers), ""
        chosen = {numbers[at * len(numbers) // most] for at in range(most)}
        note = (
            f"Shows {counted(most, 'trial')} of {len(numbers):,}, evenly chosen by their numbers, "
            "and the best one."
        )
        leading = (at for at in numbers if at == self.best)
        return self.study(chosen.union(leading)), note


def page(sweep: ReadSweep) -> str:
    """The whole page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental parts of Optuna warn at each call
        sections = "".join(_pictures(_drawn(sweep)))
    body, script = f"\n{''.join(_head(sweep))}{sections}", f"<script>{get_plotlyjs()}</script>"
    title = f"Sweep {sweep.folder.run_name}"
    return framed(body, title=title, policy=POLICY, style=STYLE, script=script)


def _drawn(sweep: ReadSweep) -> Drawn:
    found = best(sweep.view, sweep.objective)
    return Drawn(
        sweep=sweep,
        trials=tuple(_trial(trial, sweep) for trial in sweep.view.trials.values()),
        best=None if found is None else found.trial.number,
    )


def _trial(trial: TrialView, sweep: ReadSweep) -> FrozenTrial:
    """The trial for Optuna. A stopped trial counts with its last value, as for the best trial."""
    result = frozen(trial, sweep.space, _options)
    counts = trial.state in ("Succeeded", "Stopped") and trial.value is not None
    if counts and math.isfinite(trial.value or 0.0):
        result.state, result.value = TrialState.COMPLETE, trial.value
    elif not trial.open:
        result.state, result.value = TrialState.FAIL, None
    steps = [step for step, value in sorted(trial.values.items()) if math.isfinite(value)]
    points = [*steps[:: len(steps) // MOST_POINTS + 1], *steps[-1:]]
    result.intermediate_values = {step: trial.values[step] for step in points}
    return result


def _options(domain: OneOf) -> tuple[Scalar, ...]:
    """The options with secrets masked; numbered ones if masking made two of them equal."""
    options = texts(domain)
    shown = tuple(masked(option) if isinstance(option, str) else option for option in options)
    if len({*shown}) == len(shown):
        return shown
    return tuple(f"option {at}" for at in range(len(shown)))


def _pictures(drawn: Drawn) -> Iterator[str]:
    metric, valued, varied = drawn.sweep.objective.metric, drawn.valued, drawn.varied()
    whole = drawn.study(valued)
    no_value = "" if valued else NOT_YET
    left = len(drawn.trials) - len(valued)
    note = f"Leaves out {counted(left, 'trial')} without a value or still open." if left else ""
    yield _picture(
        "Optimization history",
        lambda: plot_optimization_history(whole, target_name=metric),
        lacking=no_value,
        note=note,
    )

    curves, note = drawn.some(drawn.curves, MOST_CURVES)
    yield _picture(
        "Intermediate values",
        lambda: plot_intermediate_values(curves).update_yaxes(title=metric),
        lacking="" if drawn.curves else "no trial has reported a value",
        note=note,
    )

    values = {drawn.trials[at].value for at in valued}
    alike = "" if len(values) > 1 else "all trials have ended with the same value"
    lacking = no_value or alike or ("" if varied else "no parameter has two values")
    yield _picture(
        "Parameter importances",
        lambda: plot_param_importances(whole, evaluator=PedAnovaImportanceEvaluator()),
        lacking=lacking,
        note="By PED-ANOVA: how well a parameter separates the best tenth of the trials from the "
        "others. Unreliable for few trials.",
    )

    some, note = drawn.some(valued, MOST_IN_SLICES)
    yield _picture(
        "Slice",
        lambda: plot_slice(some, target_name=metric),
        lacking=no_value or ("" if drawn.sweep.space else "no parameter is searched"),
        note=note,
    )

    some, note = drawn.some(valued, MOST_IN_CONTOURS)
    first = (
        "" if len(varied) <= MOST_CONTOURS else f"The {MOST_CONTOURS} most important parameters. "
    )
    yield _picture(
        "Contour",
        lambda: _contour(some, _first(varied, whole, ranked=not lacking), metric),
        lacking=no_value or ("" if len(varied) > 1 else "no two parameters have two values"),
        note=first + note,
    )

    some, note = drawn.some(valued, MOST_LINES)
    yield _picture(
        "Parallel coordinates",
        lambda: plot_parallel_coordinate(some, target_name=metric),
        lacking=no_value or ("" if drawn.sweep.space else "no parameter is searched"),
        note=note,
    )


def _first(names: list[str], study: optuna.Study, *, ranked: bool) -> list[str]:
    """The most important of these parameters; the first ones if they cannot be ranked."""
    if ranked and len(names) > MOST_CONTOURS:
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        names = sorted(names, key=lambda name: -found.get(name, 0.0))
    return names[:MOST_CONTOURS]


def _contour(study: optuna.Study, names: list[str], metric: str) -> Figure:
    """One picture for two parameters, a grid of pictures for more."""
    figure = plot_contour(study, params=names, target_name=metric)
    return figure.update_layout(height=CONTOUR_HEIGHT) if len(names) > 2 else figure


def _picture(head: str, draw: Callable[[], Figure], *, lacking: str, note: str) -> str:
    """A section of the page; `lacking` is why it has no picture. A picture that a library cannot
    draw is left out with a note."""
    drawn = ""
    try:
        if lacking:
            note = f"Not drawn: {lacking}."
        else:
            figure = draw().update_layout(title=None, margin={"t": 40})
            name = head.replace(" ", "-")
            div = figure.to_html(
                full_html=False, include_plotlyjs=False, div_id=name, config=CONFIG
            )
            drawn = f'<div class="picture">{div}</div>'
    except (ValueError, RuntimeError, ArithmeticError) as error:
        note = f"Not drawn: {error}."
    below = f'<p class="dim">{safe(note)}</p>' if note else ""
    return f"<section><h2>{head}</h2>{drawn}{below}</section>\n"


def _head(sweep: ReadSweep) -> Iterator[str]:
    verdict = "Its log has no end yet."
    if sweep.view.end is not None:
        end = sweep.view.end.record
        verdict = f"{end.verdict}: {first_line(end.message) or end.reason}"
    yield f"<h1>{safe(sweep.folder.run_name)}</h1>\n"
    head = f"{searched(sweep.view, sweep.objective)} {verdict}"
    for line in (head, cost(sweep.view), *_best(sweep)):
        yield f"<p>{safe(line)}</p>\n"
    yield f'<p class="dim">{safe(sweep.uri)}</p>\n'


def _best(sweep: ReadSweep) -> Iterator[str]:
    found = best(sweep.view, sweep.objective)
    if found is None:
        yield f"No trial has a {sweep.objective.metric} yet."
        return
    value = value_at(sweep.objective, found.own.value, found.own.step)
    yield f"Best: trial {found.trial.number} ({found.trial.state.lower()}), {value}."
    yield parameters(found.trial.params, exact=True)
