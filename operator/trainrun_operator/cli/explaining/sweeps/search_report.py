"""A search's life as a report: how it stands, what it cost, what failed, the best, what to do next.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainrun.sweep.results import best
from trainrun_operator.api.sweep.status import json_object
from trainrun_operator.cli.explaining.sweeps.advice import advice
from trainrun_operator.cli.explaining.sweeps.life import troubled_trials
from trainrun_operator.cli.explaining.sweeps.narrative import (
    STATES,
    advice_of,
    by_chance,
    causes,
    cost,
    headline,
    reasons,
    records_lost,
    restarts,
    searched,
    succeeded,
    title,
    why,
    worker_cost,
    worker_seconds,
)
from trainrun_operator.cli.report.drawing import Thinned
from trainrun_operator.cli.report.model import (
    Advices,
    Curves,
    Document,
    Section,
    TextLine,
    Verbatim,
)
from trainrun_operator.cli.sweeping.rows import row_of
from trainrun_operator.cli.sweeping.texts import parameters, value_at
from trainrun_operator.cli.wording import seconds as in_words
from trainrun_operator.core.sweep.config import in_sweep

if TYPE_CHECKING:
    from trainrun.sweep.view import TrialView
    from trainrun_operator.cli.explaining.sweeps.life import SearchLife
    from trainrun_operator.cli.report.model import Block

MOST_TOLD = 10
"""Trials of one kind; `trainrun sweep trials` shows all."""


def report_of(life: SearchLife, *, pictures: bool = False) -> Document:
    """The whole story; with `pictures` for a page."""
    end = life.view.end
    verdict = None if end is None else end.record.verdict
    lead = (searched(life), f"{cost(life)} {worker_cost(life)}")
    return Document(
        name=f"Sweep {life.sweep.folder.run_name}",
        headline=headline(life),
        tone="plain" if verdict is None else "good" if verdict == "Succeeded" else "bad",
        lead=tuple(map(TextLine, lead)),
        facts=(("storage", life.sweep.uri),),
        remarks=(*life.remarks, *by_chance(life), *records_lost(life)),
        sections=tuple(_sections(life, pictures=pictures)),
        advice=Advices(
            title="What to do next", items=advice(life), otherwise="What to do next: nothing."
        ),
        data=_data(life),
    )


def _sections(life: SearchLife, *, pictures: bool) -> Iterator[Section]:
    trials, troubled = life.view.trials.values(), troubled_trials(life.view)
    failed = [it for it in troubled if it.state in ("Errored", "Diverged")]
    if failed:
        told = [block for trial in failed[:MOST_TOLD] for block in _failed(life, trial)]
        yield Section(
            title=f"What failed ({reasons(failed)})", blocks=(*told, *_more(life, len(failed)))
        )
    for head, found in (
        ("Open", [it for it in trials if it.open]),
        ("Restarted", [it for it in troubled if it.state == "Succeeded"]),
        ("Ended before their time", [it for it in trials if it.state == "Stopped"]),
        ("Skipped", [it for it in trials if it.state == "Skipped"]),
    ):
        if found:
            newest = sorted(found, key=lambda it: (-it.told_after, -it.number))
            lines = [_other(life, trial) for trial in newest[:MOST_TOLD]]
            yield Section(title=f"{head} ({len(found)})", blocks=(*lines, *_more(life, len(found))))
    yield _best(life)
    if pictures and (drawn := history(life)):
        yield Section(title="Values of the trials, and the best so far", blocks=(drawn,))


def _failed(life: SearchLife, trial: TrialView) -> Iterator[Block]:
    """One that errored or diverged."""
    yield TextLine(title(life, trial), "bad")
    yield TextLine(parameters(trial.params, exact=True), deeper=True)
    own = life.lives.get(trial.number)
    if own is not None and own.incidents:
        spent, _ = worker_seconds([own])
        yield TextLine(f"{causes(own)}; {in_words(spent)} of workers' time", deeper=True)
    hint = advice_of(own)
    if hint and hint not in why(trial):
        yield TextLine(hint, deeper=True)
    yield Verbatim((f"trainrun explain {life.folder_of(trial)}",))


def _other(life: SearchLife, trial: TrialView) -> TextLine:
    own = life.lives.get(trial.number)
    what = f"; {causes(own)}" if own is not None and own.incidents else ""
    return TextLine(f"{title(life, trial)}{what}")


def _more(life: SearchLife, found: int) -> Iterator[Block]:
    if found > MOST_TOLD:
        yield TextLine(f"and {found - MOST_TOLD} more, older ones; all of them:")
        yield Verbatim((f"trainrun sweep trials {life.sweep.uri}",))


def _best(life: SearchLife) -> Section:
    goal, found = life.sweep.objective, best(life.view, life.sweep.objective)
    all_of_them = (TextLine(said),) if (said := succeeded(life)) else ()
    if found is None:
        return Section(title=f"No trial has a {goal.metric} that counts", blocks=all_of_them)
    so_far = ", so far" if found.trial.open else ""
    blocks = (
        TextLine(parameters(found.trial.params, exact=True)),
        Verbatim((f"trainrun checkpoints {life.folder_of(found.trial)}",)),
    )
    told = value_at(goal, found.own.value, found.own.step)
    return Section(
        title=f"Best: trial {found.trial.number}, {told}{so_far}", blocks=(*blocks, *all_of_them)
    )


def history(life: SearchLife) -> Curves | None:
    """What trials have come to, by number; None where none has a value."""
    goal = life.sweep.objective
    better = min if goal.goal == "minimize" else max
    values, ahead = Thinned(), Thinned()
    leading = math.nan
    for trial in life.view.trials.values():
        if trial.value is not None and math.isfinite(trial.value):
            leading = trial.value if math.isnan(leading) else better(leading, trial.value)
            values.add(trial.number, trial.value)
            ahead.add(trial.number, leading)
    if not values.points:
        return None
    picture = {0: values.points, 1: ahead.points}
    return Curves(names=("by trial", "the best so far"), pictures={goal.metric: picture})


def _data(life: SearchLife) -> dict[str, object]:
    """docs/explain.md is its schema; every trial that did not simply succeed, whatever their
    number."""
    view, end = life.view, life.view.end
    found = best(view, life.sweep.objective)
    return {
        "version": 1,
        "sweep": life.sweep.folder.run_name,
        "uri": life.sweep.uri,
        "summary": headline(life),
        "end": end
        and {
            "verdict": end.record.verdict,
            "reason": end.record.reason,
            "message": in_sweep(end.record.message),
        },
        "leader": life.leader,
        "object": _object(life),
        "written": None if life.written is None else life.written.isoformat(),
        "activeSeconds": view.active,
        "sessions": len(view.sessions),
        "restarts": restarts(life),
        "trials": {
            "asked": view.asked,
            **{word: view.count(state) for state, word in STATES.items()},
        },
        "best": found and row_of(found.trial, life.sweep.objective).data,
        "told": list(_told(life, view.trials.values())),
        "advice": [it.data for it in advice(life)],
        "remarks": list(life.remarks),
    }


def _object(life: SearchLife) -> dict[str, object] | None:
    """What the cluster says of it."""
    version = life.sweep.version
    if version is None:
        return None
    metadata, status = version.sweep.metadata, json_object(version.status)
    said = {it: status[it] for it in ("phase", "reason", "message", "conditions")}
    return {"namespace": metadata.namespace, "name": metadata.name, **said}


def _told(life: SearchLife, trials: Iterable[TrialView]) -> Iterator[dict[str, object]]:
    for trial in trials:
        if trial.state == "Succeeded" and not trial.restarts and not trial.fallback:
            continue
        row = row_of(trial, life.sweep.objective).data
        del row["remark"]
        own = life.lives.get(trial.number)
        yield {
            **row,
            "reason": trial.reason,
            "message": in_sweep(trial.message),
            "byChance": trial.fallback,
            "uri": life.folder_of(trial),
            "incidents": own and [chapter.incident for chapter in own.incidents],
            "workerSeconds": own and round(worker_seconds([own])[0], 3),
            "advice": advice_of(own),
        }
