"""Figures about a life, and what they advise to change: derived from the life of a run alone.

Layer: cli; pure. Nothing is said without a number behind it, and nothing about what costs less than
a hundredth of the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.report.model import Advice
from trainrun_operator.core.run.attempts import unsaved
from trainrun_operator.core.run.causes import advice_on
from trainrun_operator.core.run.incidents.evidence import place_of
from trainrun_operator.core.run.incidents.hangs import HUNG
from trainrun_operator.core.run.warnings import REMEDIES, SAVE_TOO_LATE

NOTABLE = 0.01
"""Part of the time below which nothing is said about the checkpoint interval."""

MUCH = 0.05
"""Part of the time from which a bucket is worth a word."""

FAR = 1.5
"""How many times longer or shorter than the best an interval is before a change is worth it."""

SOURCE = "T = sqrt(2 x cost of a save x time between failures): Young 1974, Daly 2006"

HINTS: Mapping[str, str] = {
    "queue": "waiting for room: give the run a quota or a priority of its own, or fewer workers",
    "image": "pulling images: use a smaller image, or have nodes pull it beforehand",
    "backoff": "waiting before restarts of a run that made no progress: mend what fails first",
    "start": "making pods and starting processes: replacements of workers that are gone cost most",
    "rendezvous": "between the start of the processes and their question for a checkpoint: "
    "imports, meeting, building the model",
    "load": "finding and loading checkpoints: save smaller ones, or keep them nearer",
    "first_step": "from the checkpoint to the first step: compilation, data loading, warm-up; a "
    "compile cache on a volume helps",
    "checkpoint_stall": "waiting until there was room for a checkpoint: save less often, raise "
    "checkpoint.maxPending, or use a faster store",
    "drain": "saving, stopping and uploading at the ends of attempts",
}
"""What lies behind a bucket, and what helps."""

NOTICED_BY: Mapping[str, str] = {
    Cause.HUNG: "set health.progressTimeout to a few times your slowest step",
    Cause.SILENT: "lower health.heartbeatTimeout",
    Cause.NODE_LOST: "lower health.heartbeatTimeout",
}
"""What notices a cause sooner; of the others their processes tell at once."""

LEAST_STALL = 1.0
"""Seconds that a save is taken to cost at least: what it costs beside the wait is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingFigures:
    """How often the run saves, what that costs, and how often would be best. Seconds."""

    step: float
    """Of training between two steps, on average, waits for uploads left out."""
    interval: float
    """Of training between two checkpoints."""
    between_failures: float
    """Of training between two incidents."""
    stall: float
    """That training waits for one save: measured, and at least LEAST_STALL."""
    best: float
    """The best interval: sqrt(2 * stall * between_failures)."""

    def loss(self, interval: float) -> float:
        """The part of the time that saving so often costs, in waits and in steps done again."""
        part = self.stall / (self.stall + interval) + interval / 2 / self.between_failures
        return min(part, 1.0)  # the formula is for failures that are rarer than saves

    @property
    def improves(self) -> bool:
        """The best interval is better than the present one; where failures come faster than it,
        what is best is not known."""
        rare = self.best < self.between_failures
        return rare and self.loss(self.best) < self.loss(self.interval)


def worked(chapter: Chapter) -> float:
    """Seconds in which an attempt made steps."""
    return chapter.spent.get("useful", 0.0) + chapter.spent.get("rework", 0.0)


def steps_of(chapter: Chapter) -> int:
    """Steps that an attempt made."""
    base = chapter.resumed_from.step if chapter.resumed_from is not None else 0
    return max((chapter.reached or base) - base, 0)


def lost_steps(chapter: Chapter) -> int:
    """Steps of an attempt that were done again, or would have to be."""
    if chapter.reached is None or chapter.closed is None:
        return 0
    base = chapter.resumed_from.step if chapter.resumed_from is not None else 0
    return max(chapter.reached - max(chapter.survived or 0, base), 0)


def step_seconds(life: Life) -> float:
    """Of all attempts; 0 where no two steps of an attempt are known."""
    made = sum(max(steps_of(chapter) - 1, 0) for chapter in life.ran)
    return sum(worked(chapter) for chapter in life.ran) / made if made else 0.0


def saving(life: Life) -> SavingFigures | None:
    """None where too little is known: no incident, no steps, or no two checkpoints."""
    step, failures = step_seconds(life), len([c for c in life.incidents if c.workers])
    every = _steps_between_saves(life)
    if not step or not failures or not every:
        return None
    trained = sum(worked(chapter) for chapter in life.ran)
    interval = every * step
    saves = max(trained / interval, 1.0)
    stalled = sum(chapter.spent.get("checkpoint_stall", 0.0) for chapter in life.ran)
    stall, between = max(stalled / saves, LEAST_STALL), trained / failures
    # T* = sqrt(2 * d * M): Young 1974. Daly's terms of higher order matter for d > M/50 only.
    best = max(math.sqrt(2 * stall * between), step)
    return SavingFigures(
        step=step, interval=interval, between_failures=between, stall=stall, best=best
    )


def _steps_between_saves(life: Life) -> float:
    """The usual distance of two checkpoints of one attempt; else twice the usual loss."""
    good = sorted((c.id.attempt, c.id.step) for c in life.checkpoints if c.state == "good")
    apart = sorted(b[1] - a[1] for a, b in pairwise(good) if a[0] == b[0] and b[1] > a[1])
    if apart:
        return float(apart[len(apart) // 2])
    lost = [lost_steps(chapter) for chapter in life.incidents if chapter.reached is not None]
    return 2.0 * sum(lost) / len(lost) if lost else 0.0


def advice(life: Life) -> tuple[Advice, ...]:
    """The most expensive first."""
    # Where it stands now matters more than where the time went before.
    kinds = (_unsaved, _interval, _nodes, _causes, _asking)
    spent = _buckets(life) if life.hung is None else ()
    return (*(found for kind in kinds for found in kind(life)), *spent)


def _unsaved(life: Life) -> Iterator[Advice]:
    """A restart has nothing to go on from, once there has been one or there may be no other."""
    saved = life.checkpoints or any(
        chapter.resumed_from or chapter.survived for chapter in life.ran
    )
    if not saved and life.tasks is None and any(chapter.closed for chapter in life.ran):
        yield Advice(kind="NothingSaved", text=unsaved(reports=life.reports))


def _interval(life: Life) -> Iterator[Advice]:
    found, spent = saving(life), life.seconds
    if found is None:
        return
    whole = sum(spent.values())
    rework = spent.get("rework", 0.0) / whole if whole else 0.0
    stall = spent.get("checkpoint_stall", 0.0) / whole if whole else 0.0
    often = found.interval > FAR * found.best and rework >= NOTABLE
    rarely = found.best > FAR * found.interval and stall >= NOTABLE
    if not found.improves or not (often or rarely):
        return
    cost = f"{100 * (rework if often else stall):.0f} %"
    what = f"{cost} rework" if often else f"{cost} of the time in waits for uploads"
    steps = max(round(found.best / found.step), 1)
    text = (
        f"saving every {in_words(found.interval)} cost {what}; with a failure every "
        f"{in_words(found.between_failures)} of training, and {in_words(found.stall)} a save, "
        f"every {in_words(found.best)} ({steps} steps) is best: about "
        f"{100 * found.loss(found.best):.0f} % instead of {100 * found.loss(found.interval):.0f} % "
        f"({SOURCE})"
    )
    yield Advice(
        kind="CheckpointInterval",
        text=text,
        numbers={
            "intervalSeconds": round(found.interval, 3),
            "bestSeconds": round(found.best, 3),
            "bestSteps": steps,
            "secondsBetweenFailures": round(found.between_failures, 3),
            "stallSeconds": round(found.stall, 3),
            "rework": round(rework, 4),
        },
    )


def on_node(incident: Mapping[str, object]) -> str:
    """The node that an incident was seen on; empty: none is known, or it is the folder of a worker
    of `trainrun run`, which stands for a node and is called as the worker is."""
    node = str(incident.get("node", ""))
    return "" if node == incident.get("worker") else node


def look_at(node: str, incidents: Collection[Mapping[str, object]], *, keep: str) -> str:
    """What to do about a node that caused most of these incidents; empty: nothing, since the script
    has raised the same error elsewhere. `keep` is what a broken node is to be spared."""
    there = [incident for incident in incidents if on_node(incident) == node]
    errors = {(incident.get("cause"), str(incident.get("raisedAt", ""))) for incident in there}
    ((cause, place), *others) = errors
    if others or cause != Cause.APP_ERROR or not place:
        return f"have it looked at, and keep {keep} from it until then (kubectl cordon {node})"
    if any(
        incident.get("raisedAt") == place for incident in incidents if on_node(incident) != node
    ):
        return ""
    return (
        f"each time by the same error, in {place}, so see first whether the script is to blame, "
        "and have the node looked at if it is not"
    )


def _nodes(life: Life) -> Iterator[Advice]:
    incidents = [chapter.incident for chapter in life.incidents]
    nodes = Counter(node for incident in incidents if (node := on_node(incident)))
    everywhere = len(incidents)
    if not nodes or (len({c.workers for c in life.ran}) == 1 and life.ran[0].workers == 1):
        return
    node, caused = nodes.most_common(1)[0]
    if caused < 2 or 2 * caused <= everywhere:
        return
    if found := look_at(node, incidents, keep="the run"):
        yield Advice(
            kind="Node",
            text=f"node {node} caused {caused} of {everywhere}: {found}",
            numbers={"node": node, "incidents": caused, "of": everywhere},
        )


def remedy(incident: Mapping[str, object]) -> str:
    """What a user can do about what ended an attempt."""
    cause = str(incident.get("cause", ""))
    return advice_on(cause, rank=incident.get("rank"), exit_code=incident.get("exitCode"))


def _causes(life: Life) -> Iterator[Advice]:
    """The cause that has ended most attempts, with the advice that its row gives."""
    causes = Counter(str(chapter.incident.get("cause", "")) for chapter in life.incidents)
    newest = {
        str(chapter.incident.get("cause", "")): chapter.incident for chapter in life.incidents
    }
    for cause, count in causes.most_common(1):
        times = "once" if count == 1 else f"{count} times"
        last = newest[cause]
        place = place_of(str(last.get("hang", "")), str(last.get("message", "")))
        hint = ": ".join(filter(None, (place, remedy(last))))
        yield Advice(
            kind="Cause",
            text=f"{cause} ended an attempt {times}: {hint}",
            numbers={"cause": cause, "incidents": count},
        )


def _asking(life: Life) -> Iterator[Advice]:
    """A hang, and a notice that would come too late now."""
    if (hung := life.hung) is not None:
        then = REMEDIES.get(hung.reason, hung.message)
        yield Advice(kind=HUNG, text=f"look at the lines where the ranks stand; {then}")
    found = life.status.condition(SAVE_TOO_LATE) if life.status is not None else None
    if found is not None:
        yield Advice(kind=SAVE_TOO_LATE, text=found.message)


def _buckets(life: Life) -> Iterator[Advice]:
    spent = life.seconds
    whole = sum(spent.values())
    causes = {str(chapter.incident.get("cause")) for chapter in life.incidents}
    how = ", ".join(sorted({NOTICED_BY[cause] for cause in causes & NOTICED_BY.keys()}))
    hints = {**HINTS, "hang": f"standing still before it was noticed: {how}"} if how else HINTS
    for bucket, amount in sorted(spent.items(), key=lambda item: -item[1]):
        if bucket in hints and amount > MUCH * whole:
            yield Advice(
                kind="Bucket",
                text=f"{100 * amount / whole:.0f} % of the time ({in_words(amount)}) went into "
                f"{bucket.replace('_', ' ')}: {hints[bucket]}",
                numbers={"bucket": bucket, "seconds": amount, "share": round(amount / whole, 4)},
            )
