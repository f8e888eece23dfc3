"""What is said of a search, in sentences.

Layer: cli; pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from trainrun.sweep.records import TrialState
from trainrun.sweep.results import standing
from trainrun_operator.cli import wording
from trainrun_operator.cli.explaining.sweeps.life import newest_attempt
from trainrun_operator.cli.sweeping.texts import LONGEST_TEXT, first_line, led, number, value_at
from trainrun_operator.cli.wording import counted, counts, joined
from trainrun_operator.core.run.causes import row_of
from trainrun_operator.core.sweep.config import as_text, in_sweep

if TYPE_CHECKING:
    from trainrun.sweep.view import TrialView
    from trainrun_operator.cli.explaining.life import Life
    from trainrun_operator.cli.explaining.sweeps.life import SearchLife

MOST_PARAMETERS = 6
"""Of a space, in a sentence."""
MOST_CHOICES = 4
"""Of a parameter, in a sentence."""
MOST_NUMBERS = 10
"""Of trials, in a sentence."""
STATES: Mapping[TrialState, str] = {
    "Succeeded": "succeeded",
    "Errored": "errored",
    "Diverged": "diverged",
    "Stopped": "stopped",
    "Skipped": "skipped",
    "Open": "open",
}
"""As they are told, in order."""


def headline(life: SearchLife, *, now: datetime | None = None) -> str:
    """How it ended, or stands."""
    name, end = life.sweep.folder.run_name, life.view.end
    if end is not None:
        word = "succeeded" if end.record.verdict == "Succeeded" else "failed"
        message = in_sweep(end.record.message)
        return f"Sweep {name} {word} ({end.record.reason}): {message}."
    where = f"{counted(life.view.asked, 'trial')} with parameters, {life.view.count('Open')} open"
    version = life.sweep.version
    if version is not None:
        said = led(version.status)
        return f"Sweep {version.where} is {said.phase} ({said.reason}): {said.message}; {where}."
    if life.leader is not None:
        return f"Sweep {name} goes on, led by process {life.leader} of this machine: {where}."
    written = ""
    if life.written is not None:
        ago = ((now or datetime.now(UTC)) - life.written).total_seconds()
        written = (
            f" The newest record of its log is of {wording.clock(life.written, day=True)}, "
            f"{wording.seconds(max(ago, 0.0))} ago."
        )
    return f"Sweep {name} has not ended, and no process of this machine leads it: {where}.{written}"


def searched(life: SearchLife) -> str:
    """What was searched, for what, by whom."""
    spec, goal = json.loads(life.view.sessions[0].spec), life.sweep.objective
    space = [_range(it) for it in spec["space"]]
    if len(space) > MOST_PARAMETERS:
        space = [*space[:MOST_PARAMETERS], f"{len(space) - MOST_PARAMETERS} more"]
    extreme = "smallest" if goal.goal == "minimize" else "greatest"
    which = " at any step" if goal.value == "best" else ""
    sampler = spec["sampler"]["name"]
    return f"It searched {joined(space)} for the {extreme} {goal.metric}{which}, by {sampler}."


def _range(parameter: Mapping[str, Any]) -> str:
    name = str(parameter["name"])
    for kind in ("float", "int"):
        if kind in parameter:
            it = parameter[kind]
            log = " (log)" if it.get("log") else ""
            return f"{name} from {it['low']:.6g} to {it['high']:.6g}{log}"
    choices = [wording.shortened(as_text(it), LONGEST_TEXT) for it in parameter["choice"]]
    if len(choices) > MOST_CHOICES:
        return f"{name} among {len(choices)} values"
    return f"{name} ({', '.join(choices)})"


def cost(life: SearchLife) -> str:
    """What it cost."""
    view = life.view
    states = {word: view.count(it) for it, word in STATES.items()}
    sessions = counted(len(view.sessions), "session")
    restarted = f"; {counted(again, 'restart')}" if (again := restarts(life)) else ""
    return (
        f"It took {wording.seconds(view.active)} with trials at work, in {sessions}: "
        f"{counted(view.asked, 'trial')}, {counts(states)}{restarted}."
    )


def restarts(life: SearchLife) -> int:
    """Of all trials that have ended, each since it was opened last."""
    return sum(trial.restarts for trial in life.view.trials.values())


def worker_cost(life: SearchLife) -> str:
    """What the trials that had trouble cost; empty where nothing is known of them."""
    whole, useful = worker_seconds(life.lives.values())
    if not whole:
        return ""
    return (
        f"{counted(len(life.lives), 'trial')} with trouble took {wording.seconds(whole)} of "
        f"workers' time, {wording.seconds(useful)} of it in steps that count."
    )


def worker_seconds(lives: Iterable[Life]) -> tuple[float, float]:
    """Seconds times workers of all attempts, and those of them that made steps that count."""
    ran = [chapter for life in lives for chapter in life.ran]
    whole = sum(it.workers * sum(it.spent.values()) for it in ran)
    return whole, sum(it.workers * it.spent.get("useful", 0.0) for it in ran)


def title(life: SearchLife, trial: TrialView) -> str:
    """A trial in one line: how it ended, after how many restarts, and why."""
    own = standing(trial, life.sweep.objective)
    at = "" if own is None else f" with {value_at(life.sweep.objective, own.value, own.step)}"
    again = f" after {counted(trial.restarts, 'restart')}"
    head = f"trial {trial.number} {_ending(trial)}{again if trial.restarts else ''}{at}"
    said = why(trial)
    return f"{head}: {said}" if said else head


def _ending(trial: TrialView) -> str:
    if trial.open:
        attempt = newest_attempt(trial)
        return f"is open, in attempt {attempt}" if attempt else "is open, and was not heard of"
    return (
        STATES[trial.state]
        if trial.state == "Succeeded"
        else (f"{STATES[trial.state]} ({trial.reason})")
    )


def why(trial: TrialView) -> str:
    """The first line of what its end said."""
    return in_sweep(first_line(trial.message))


def causes(life: Life) -> str:
    """`AppError 2 times (rank 0, trial.py:27)`: what ended the attempts of a trial."""
    incidents = [chapter.incident for chapter in life.incidents]
    count = Counter(str(it.get("cause", "Unknown")) for it in incidents)
    return ", ".join(
        f"{cause}{_times(n)}{_place(incidents, cause)}" for cause, n in count.most_common()
    )


def _times(count: int) -> str:
    return "" if count == 1 else f" {count} times"


def _place(incidents: list[dict[str, Any]], cause: str) -> str:
    """Of the newest incident of this cause."""
    newest = [it for it in incidents if str(it.get("cause", "Unknown")) == cause][-1]
    parts = [f"rank {newest['rank']}"] if "rank" in newest else []
    parts += [f"node {newest['node']}"] if newest.get("node") else []
    parts += [str(newest["raisedAt"])] if newest.get("raisedAt") else []
    return f" ({', '.join(parts)})" if parts else ""


def advice_of(life: Life | None) -> str:
    """What a user can do about what ended the newest attempt; empty where that is not known."""
    if life is None or not life.incidents:
        return ""
    return in_sweep(row_of(str(life.incidents[-1].incident.get("cause", ""))).advice)


def reasons(trials: Iterable[TrialView]) -> str:
    """`MaxFailuresExceeded 2, NoObjective 1`."""
    return ", ".join(f"{it} {n}" for it, n in Counter(t.reason for t in trials).most_common())


def by_chance(life: SearchLife) -> Iterator[str]:
    """Why the sampler did not choose, with the trials that this happened to."""
    found: dict[str, list[int]] = {}
    for trial in life.view.trials.values():
        if trial.fallback:
            found.setdefault(first_line(trial.fallback), []).append(trial.number)
    for reason, numbers in found.items():
        newest = joined(str(it) for it in numbers[-MOST_NUMBERS:])
        which = "the newest: " if len(numbers) > MOST_NUMBERS else ""
        yield f"{counted(len(numbers), 'trial')} drawn by chance ({which}{newest}): {reason}"


def records_lost(life: SearchLife) -> Iterator[str]:
    """Which trials show that the log has lost records."""
    moved = [trial.number for trial in life.view.trials.values() if trial.first > 1]
    if moved:
        newest = joined(str(it) for it in moved[-MOST_NUMBERS:])
        yield (
            f"the log has lost records: {counted(len(moved), 'trial')} ({newest}) began in a new "
            "folder, since an earlier trial had used that of its number"
        )


def succeeded(life: SearchLife) -> str:
    """All that succeeded, in one sentence; empty: none did."""
    goal = life.sweep.objective
    trials = [it for it in life.view.trials.values() if it.state == "Succeeded"]
    values = sorted(it.value for it in trials if it.value is not None)
    if not values:
        return ""
    if len(values) == 1:
        return f"1 trial succeeded: trial {trials[0].number}, {goal.metric} {number(values[0])}."
    return (
        f"{counted(len(values), 'trial')} succeeded: {goal.metric} from {number(values[0])} to "
        f"{number(values[-1])}, median {number(median(values))}."
    )
