"""The life of a search as plain text for a terminal of 80 columns.

Layer: cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trainrun.sweep.results import best
from trainrun_operator.cli.explaining.sweeps.advice import advice
from trainrun_operator.cli.explaining.sweeps.life import troubled_trials
from trainrun_operator.cli.explaining.sweeps.narrative import (
    advice_of,
    by_chance,
    causes,
    cost,
    headline,
    reasons,
    records_lost,
    searched,
    succeeded,
    title,
    why,
    worker_cost,
    worker_seconds,
)
from trainrun_operator.cli.sweeping.texts import parameters, value_at
from trainrun_operator.cli.wording import seconds as in_words
from trainrun_operator.cli.wrapping import wrapped

if TYPE_CHECKING:
    from trainrun.sweep.view import TrialView
    from trainrun_operator.cli.explaining.sweeps.life import SearchLife

MOST_TOLD = 10
"""Trials of one kind; `trainrun sweep trials` shows all."""


def lines(life: SearchLife) -> Iterator[str]:
    """The whole story."""
    yield from wrapped(headline(life), color=_color(life))
    yield from wrapped(searched(life))
    yield from wrapped(f"{cost(life)} {worker_cost(life)}")
    yield from wrapped(f"Storage: {life.sweep.uri}")
    for remark in life.remarks:
        yield from wrapped(f"! {remark}", color="yellow")
    yield from _failed(life)
    yield from _others(life)
    yield from _best(life)
    yield from _next(life)


def _color(life: SearchLife) -> str | None:
    end = life.view.end
    return None if end is None else "green" if end.record.verdict == "Succeeded" else "red"


def _failed(life: SearchLife) -> Iterator[str]:
    """Trials that errored or diverged, each with its details."""
    failed = [it for it in troubled_trials(life.view) if it.state in ("Errored", "Diverged")]
    if not failed:
        return
    yield ""
    yield from wrapped(f"What failed ({reasons(failed)}):")
    for trial in failed[:MOST_TOLD]:
        yield from wrapped(title(life, trial), indent=2, hang=2, color="red")
        yield from _details(life, trial)
    yield from _more(life, len(failed))


def _details(life: SearchLife, trial: TrialView) -> Iterator[str]:
    yield from wrapped(parameters(trial.params, exact=True), indent=4, hang=2)
    own = life.lives.get(trial.number)
    if own is not None and own.incidents:
        spent, _ = worker_seconds([own])
        yield from wrapped(f"{causes(own)}; {in_words(spent)} of workers' time", indent=4)
    hint = advice_of(own)
    if hint and hint not in why(trial):
        yield from wrapped(hint, indent=4)
    # Not wrapped: it is to be copied.
    yield f"    trainrun explain {life.folder_of(trial)}"


def _others(life: SearchLife) -> Iterator[str]:
    """A line for each trial that was ended, is open or was restarted."""
    trials = life.view.trials.values()
    restarted = [it for it in troubled_trials(life.view) if it.state == "Succeeded"]
    for head, found in (
        ("Open", [it for it in trials if it.open]),
        ("Restarted", restarted),
        ("Ended before their time", [it for it in trials if it.state == "Stopped"]),
        ("Skipped", [it for it in trials if it.state == "Skipped"]),
    ):
        if found:
            yield ""
            yield from wrapped(f"{head} ({len(found)}):")
            newest = sorted(found, key=lambda it: (-it.told_after, -it.number))
            for trial in newest[:MOST_TOLD]:
                own = life.lives.get(trial.number)
                what = f"; {causes(own)}" if own is not None and own.incidents else ""
                yield from wrapped(f"{title(life, trial)}{what}", indent=2, hang=2)
            yield from _more(life, len(found))
    for text in filter(None, (*by_chance(life), records_lost(life))):
        yield ""
        yield from wrapped(text, color="yellow")


def _more(life: SearchLife, found: int) -> Iterator[str]:
    if found > MOST_TOLD:
        yield f"  and {found - MOST_TOLD} more, older ones; all of them:"
        yield f"  trainrun sweep trials {life.sweep.uri}"


def _best(life: SearchLife) -> Iterator[str]:
    yield ""
    yield from wrapped(succeeded(life))
    found = best(life.view, life.sweep.objective)
    if found is None:
        yield f"No trial has a {life.sweep.objective.metric} that counts."
        return
    told = value_at(life.sweep.objective, found.own.value, found.own.step)
    so_far = ", so far" if found.trial.open else ""
    yield click.style(f"Best: trial {found.trial.number}, {told}{so_far}", bold=True)
    yield from wrapped(parameters(found.trial.params, exact=True), indent=2)
    yield f"  trainrun checkpoints {life.folder_of(found.trial)}"


def _next(life: SearchLife) -> Iterator[str]:
    found = advice(life)
    yield ""
    if not found:
        yield "What to do next: nothing."
        return
    yield click.style("What to do next:", bold=True)
    for item in found:
        yield from wrapped(f"- {item.text}", hang=2)
