"""A sweep's life as a report: its state, its cost, what failed, the best trial, what to do next.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

from trainrun.sweep.view import TrialView, best, standing
from trainrun_operator.api.sweep.status import json_object
from trainrun_operator.cli.explaining.advice import remedy
from trainrun_operator.cli.explaining.importance import importances
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.explaining.search_life import (
    SearchLife,
    advice,
    newest_attempt,
    troubled_trials,
)
from trainrun_operator.cli.formatting import clock, counted, joined
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.report.drawing import Downsampled
from trainrun_operator.cli.report.model import (
    Bar,
    BarKind,
    Bars,
    Block,
    Curves,
    Document,
    Preformatted,
    Recommendations,
    Section,
    TextLine,
)
from trainrun_operator.cli.sweeping.trial_text import (
    STATES,
    cost,
    first_line,
    number,
    parameters,
    restarts,
    searched,
    status_or_not_led,
    trial_row,
    value_at,
)
from trainrun_operator.core.sweep.config import in_sweep

MOST_SHOWN = 10
"""Trials shown of each kind; `trainrun sweep trials` shows all."""


def report_of(life: SearchLife, *, pictures: bool = False) -> Document:
    """The whole report; with `pictures`, for a page."""
    end = life.view.end
    verdict = None if end is None else end.record.verdict
    lead = (searched(life.view, life.sweep.objective), f"{cost(life.view)} {worker_cost(life)}")
    return Document(
        name=f"Sweep {life.sweep.folder.run_name}",
        headline=headline(life),
        tone="plain" if verdict is None else "good" if verdict == "Succeeded" else "bad",
        lead=tuple(map(TextLine, lead)),
        facts=(("storage", life.sweep.uri),),
        remarks=(*life.remarks, *by_chance(life), *records_lost(life)),
        sections=tuple(_sections(life, pictures=pictures)),
        advice=Recommendations(
            title="What to do next", items=advice(life), otherwise="What to do next: nothing."
        ),
        data=_data(life),
    )


def _sections(life: SearchLife, *, pictures: bool) -> Iterator[Section]:
    trials, troubled = life.view.trials.values(), troubled_trials(life.view)
    failed = [trial for trial in troubled if trial.state in ("Errored", "Diverged")]
    if failed:
        details = [block for trial in failed[:MOST_SHOWN] for block in _failed(life, trial)]
        yield Section(
            title=f"What failed ({reasons(failed)})", blocks=(*details, *_more(life, len(failed)))
        )
    for head, found in (
        ("Open", [trial for trial in trials if trial.open]),
        ("Restarted", [trial for trial in troubled if trial.state == "Succeeded"]),
        ("Stopped early", [trial for trial in trials if trial.state == "Stopped"]),
        ("Skipped", [trial for trial in trials if trial.state == "Skipped"]),
    ):
        if found:
            newest = sorted(found, key=lambda trial: (-trial.told_after, -trial.number))
            lines = [_other(life, trial) for trial in newest[:MOST_SHOWN]]
            yield Section(title=f"{head} ({len(found)})", blocks=(*lines, *_more(life, len(found))))
    yield _best(life)
    if pictures and (drawn := history(life)):
        yield Section(title="Values of the trials, and the best so far", blocks=(drawn,))
    if pictures and (matters := importance(life)):
        about = "How much of the ranking of the trials each parameter explains by itself."
        yield Section(title="What matters", blocks=(matters, TextLine(about)))


def _failed(life: SearchLife, trial: TrialView) -> Iterator[Block]:
    """A trial that errored or diverged."""
    yield TextLine(title(life, trial), "bad")
    yield TextLine(parameters(trial.params, exact=True), deeper=True)
    own = life.lives.get(trial.number)
    if own is not None and own.incidents:
        spent, _ = worker_seconds([own])
        yield TextLine(f"{causes(own)}; {in_words(spent)} of worker time", deeper=True)
    hint = advice_of(own)
    if hint and hint not in why(trial):
        yield TextLine(hint, deeper=True)
    yield Preformatted((f"trainrun explain {life.folder_of(trial)}",))


def _other(life: SearchLife, trial: TrialView) -> TextLine:
    own = life.lives.get(trial.number)
    what = f"; {causes(own)}" if own is not None and own.incidents else ""
    return TextLine(f"{title(life, trial)}{what}")


def _more(life: SearchLife, found: int) -> Iterator[Block]:
    if found > MOST_SHOWN:
        yield TextLine(f"and {found - MOST_SHOWN} older ones; to list all:")
        yield Preformatted((f"trainrun sweep trials {life.sweep.uri}",))


def _best(life: SearchLife) -> Section:
    goal, found = life.sweep.objective, best(life.view, life.sweep.objective)
    all_of_them = (TextLine(summary),) if (summary := succeeded(life)) else ()
    if found is None:
        return Section(title=f"No trial has a {goal.metric} that counts", blocks=all_of_them)
    so_far = ", so far" if found.trial.open else ""
    blocks = (
        TextLine(parameters(found.trial.params, exact=True)),
        Preformatted((f"trainrun checkpoints {life.folder_of(found.trial)}",)),
    )
    value = value_at(goal, found.own.value, found.own.step)
    return Section(
        title=f"Best: trial {found.trial.number}, {value}{so_far}", blocks=(*blocks, *all_of_them)
    )


def history(life: SearchLife) -> Curves | None:
    """Values of the trials, by number; None if no trial has a value."""
    goal = life.sweep.objective
    better = min if goal.goal == "minimize" else max
    values, ahead = Downsampled(), Downsampled()
    leading = math.nan
    for trial in life.view.trials.values():
        if trial.value is not None and math.isfinite(trial.value):
            leading = trial.value if math.isnan(leading) else better(leading, trial.value)
            values.add(trial.number, trial.value)
            ahead.add(trial.number, leading)
    if not values.points:
        return None
    picture = {0: values.points, 1: ahead.points}
    names = ("by trial", "the best so far")
    return Curves(names=names, pictures={goal.metric: picture}, along="trial")


def importance(life: SearchLife) -> Bars | None:
    """How much each parameter matters; None if too few trials have a value."""
    names = [parameter.name for parameter in life.sweep.space]
    found = importances(life.view.trials.values(), names)
    bars = tuple(
        Bar(name=f"{name} {100 * share:.0f} %", parts={"useful": share})
        for name, share in found.items()
    )
    kind = BarKind(name="useful", sign="=", words="share of the ranking")
    return Bars(bars=bars, kinds=(kind,), scale=("0 %", "100 %")) if bars else None


def _data(life: SearchLife) -> dict[str, object]:
    """The schema is in docs/explain.md; lists every trial that did not simply succeed, without a
    limit."""
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
        "restarts": restarts(life.view),
        "trials": {"asked": view.asked, **{state.lower(): view.count(state) for state in STATES}},
        "best": found and trial_row(found.trial, life.sweep.objective).data,
        "told": list(_notable_trials(life, view.trials.values())),
        "advice": [item.data for item in advice(life)],
        "remarks": list(life.remarks),
    }


def _object(life: SearchLife) -> dict[str, object] | None:
    """The TrainSweep in the cluster."""
    version = life.sweep.version
    if version is None:
        return None
    metadata, status = version.sweep.metadata, json_object(version.status)
    shown = {name: status[name] for name in ("phase", "reason", "message", "conditions")}
    return {"namespace": metadata.namespace, "name": metadata.name, **shown}


def _notable_trials(life: SearchLife, trials: Iterable[TrialView]) -> Iterator[dict[str, object]]:
    for trial in trials:
        if trial.state == "Succeeded" and not trial.restarts and not trial.fallback:
            continue
        row = trial_row(trial, life.sweep.objective).data
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


MOST_NUMBERS = 10
"""Numbers of trials in a sentence, at most."""


def headline(life: SearchLife) -> str:
    """How the sweep ended, or its state."""
    name, end = life.sweep.folder.run_name, life.view.end
    if end is not None:
        word = "succeeded" if end.record.verdict == "Succeeded" else "failed"
        message = in_sweep(end.record.message)
        return f"Sweep {name} {word} ({end.record.reason}): {message}."
    where = f"{counted(life.view.asked, 'trial')} with parameters, {life.view.count('Open')} open"
    version = life.sweep.version
    if version is not None:
        verdict = status_or_not_led(version.status)
        text = f"{verdict.phase} ({verdict.reason}): {verdict.message}"
        return f"Sweep {version.where} is {text}; {where}."
    if life.leader is not None:
        return f"Sweep {name} is running, led by process {life.leader} on this machine: {where}."
    written = ""
    if life.written is not None:
        ago = (datetime.now(UTC) - life.written).total_seconds()
        written = (
            f" Its log was last written at {clock(life.written, day=True)}, "
            f"{in_words(max(ago, 0.0))} ago."
        )
    return f"Sweep {name} has not ended, and no process on this machine leads it: {where}.{written}"


def worker_cost(life: SearchLife) -> str:
    """Worker time of the trials that had trouble; empty if none is known."""
    whole, useful = worker_seconds(life.lives.values())
    if not whole:
        return ""
    return (
        f"{counted(len(life.lives), 'trial')} with trouble took {in_words(whole)} of worker "
        f"time, {in_words(useful)} of it in steps that count."
    )


def worker_seconds(lives: Iterable[Life]) -> tuple[float, float]:
    """Worker-seconds of all attempts, and those of them in steps that count."""
    ran = [chapter for life in lives for chapter in life.ran]
    whole = sum(chapter.workers * sum(chapter.spent.values()) for chapter in ran)
    return whole, sum(chapter.workers * chapter.spent.get("useful", 0.0) for chapter in ran)


def title(life: SearchLife, trial: TrialView) -> str:
    """A trial in one line: how it ended, after how many restarts, and why."""
    own = standing(trial, life.sweep.objective)
    at = "" if own is None else f" with {value_at(life.sweep.objective, own.value, own.step)}"
    again = f" after {counted(trial.restarts, 'restart')}"
    head = f"trial {trial.number} {_ending(trial)}{again if trial.restarts else ''}{at}"
    reason = why(trial)
    return f"{head}: {reason}" if reason else head


def _ending(trial: TrialView) -> str:
    if trial.open:
        attempt = newest_attempt(trial)
        return f"is open, in attempt {attempt}" if attempt else "is open, and has not reported"
    word = trial.state.lower()
    return word if trial.state == "Succeeded" else f"{word} ({trial.reason})"


def why(trial: TrialView) -> str:
    """The first line of the message of its end."""
    return in_sweep(first_line(trial.message))


def causes(life: Life) -> str:
    """`AppError 2 times (rank 0, trial.py:27)`: what ended the attempts of a trial."""
    incidents = [chapter.incident for chapter in life.incidents]
    count = Counter(str(incident.get("cause", "Unknown")) for incident in incidents)
    return ", ".join(
        f"{cause}{f' {n} times' if n > 1 else ''}{_place(incidents, cause)}"
        for cause, n in count.most_common()
    )


def _place(incidents: list[dict[str, Any]], cause: str) -> str:
    """Rank, node and line of the newest incident of this cause."""
    newest = [incident for incident in incidents if str(incident.get("cause", "Unknown")) == cause][
        -1
    ]
    parts = [f"rank {newest['rank']}"] if "rank" in newest else []
    parts += [f"node {newest['node']}"] if newest.get("node") else []
    parts += [str(newest["raisedAt"])] if newest.get("raisedAt") else []
    return f" ({', '.join(parts)})" if parts else ""


def advice_of(life: Life | None) -> str:
    """What a user can do about the newest incident; empty if that is not known."""
    if life is None or not life.incidents:
        return ""
    return in_sweep(remedy(life.incidents[-1].incident))


def reasons(trials: Iterable[TrialView]) -> str:
    """`MaxFailuresExceeded 2, NoObjective 1`."""
    return ", ".join(
        f"{reason} {n}" for reason, n in Counter(t.reason for t in trials).most_common()
    )


def by_chance(life: SearchLife) -> Iterator[str]:
    """Why the sampler did not choose, and for which trials."""
    found: dict[str, list[int]] = {}
    for trial in life.view.trials.values():
        if trial.fallback:
            found.setdefault(first_line(trial.fallback), []).append(trial.number)
    for reason, numbers in found.items():
        newest = joined(str(number) for number in numbers[-MOST_NUMBERS:])
        which = "the newest: " if len(numbers) > MOST_NUMBERS else ""
        yield f"{counted(len(numbers), 'trial')} drawn at random ({which}{newest}): {reason}"


def records_lost(life: SearchLife) -> Iterator[str]:
    """Which trials show that the log has lost records."""
    moved = [trial.number for trial in life.view.trials.values() if trial.first > 1]
    if moved:
        newest = joined(str(number) for number in moved[-MOST_NUMBERS:])
        yield (
            f"the log has lost records: {counted(len(moved), 'trial')} ({newest}) started in a "
            "new folder, since an earlier trial had used the folder of that number"
        )


def succeeded(life: SearchLife) -> str:
    """The trials that succeeded, in one sentence; empty: none did."""
    goal = life.sweep.objective
    trials = [trial for trial in life.view.trials.values() if trial.state == "Succeeded"]
    values = sorted(trial.value for trial in trials if trial.value is not None)
    if not values:
        return ""
    if len(values) == 1:
        return f"1 trial succeeded: trial {trials[0].number}, {goal.metric} {number(values[0])}."
    return (
        f"{counted(len(values), 'trial')} succeeded: {goal.metric} from {number(values[0])} to "
        f"{number(values[-1])}, median {number(median(values))}."
    )
