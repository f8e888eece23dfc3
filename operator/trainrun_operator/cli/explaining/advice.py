"""Figures about a run, and the advice that follows from them.

Layer: cli; pure. Each piece of advice has a number behind it, and none is about less than a
hundredth of the time.
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
from trainrun_operator.cli.formatting import counted
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.report.model import Advice
from trainrun_operator.core.run.attempts import unsaved
from trainrun_operator.core.run.causes import advice_on
from trainrun_operator.core.run.incidents.evidence import place_of
from trainrun_operator.core.run.incidents.hangs import HUNG
from trainrun_operator.core.run.times import base_of
from trainrun_operator.core.run.warnings import REMEDIES, SAVE_TOO_LATE

NOTABLE = 0.01
"""Part of the time below which there is no advice on the checkpoint interval."""

MUCH = 0.05
"""Part of the time from which a bucket gets advice."""

FAR = 1.5
"""How many times longer or shorter than the best interval an interval must be to be worth a
change."""

SOURCE = "T = sqrt(2 x cost of a save x time between failures): Young 1974, Daly 2006"

HINTS: Mapping[str, str] = {
    "queue": "waiting for room; give the run a quota or a priority of its own, or fewer workers",
    "image": "pulling images; use a smaller image, or pull it on the nodes beforehand",
    "backoff": "backoff before restarts of a run that made no progress; fix what fails first",
    "start": "creating pods and starting processes; replacing lost workers takes longest",
    "rendezvous": "imports, rendezvous and building the model, until the processes ask for a "
    "checkpoint",
    "load": (
        "finding and loading checkpoints; save smaller ones, or use a store closer to the workers"
    ),
    "first_step": "compilation, data loading and warm-up after the checkpoint is loaded; a "
    "compile cache on a volume helps",
    "checkpoint_stall": "waiting for earlier uploads to make room for a checkpoint; save less "
    "often, raise checkpoint.maxPending, or use a faster store",
    "drain": "saving, stopping and uploading at the end of attempts",
}
"""What the time of a bucket went into, and what helps."""

NOTICED_BY: Mapping[str, str] = {
    Cause.HUNG: "set health.progressTimeout to a few times your slowest step",
    Cause.SILENT: "lower health.heartbeatTimeout",
    Cause.NODE_LOST: "lower health.heartbeatTimeout",
}
"""What detects a cause sooner; processes report the other causes at once."""

UNMEASURED = 1.0
"""Seconds that a save costs at least where no step shows what it costs apart from the wait."""
LEAST_COST = 0.01
"""Seconds that a save costs at least: less is not distinguished from the other steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingFigures:
    """How often the run saves, what that costs, and how often would be best. Seconds."""

    step: float
    """Training time per step on average, without waits for uploads."""
    interval: float
    """Training time between two checkpoints."""
    between_failures: float
    """Training time between two incidents."""
    stall: float
    """Time that training stands still for one save."""
    best: float
    """The best interval: sqrt(2 * stall * between_failures)."""

    def cost(self, interval: float) -> float:
        """The part of the time that saves at this interval take."""
        return self.stall / (self.stall + interval)

    def loss(self, interval: float) -> float:
        """The part of the time that this interval costs, in saves and in steps done again."""
        part = self.cost(interval) + interval / 2 / self.between_failures
        return min(part, 1.0)  # the formula assumes failures rarer than saves

    @property
    def improves(self) -> bool:
        """The best interval beats the present one. False if failures come faster than the best
        interval: then the best is not known."""
        rare = self.best < self.between_failures
        return rare and self.loss(self.best) < self.loss(self.interval)


def worked(chapter: Chapter) -> float:
    """Seconds in which an attempt made steps."""
    return chapter.spent.get("useful", 0.0) + chapter.spent.get("rework", 0.0)


def steps_of(chapter: Chapter) -> int:
    """Number of steps that an attempt made."""
    base = base_of(chapter)
    return max((chapter.reached or base) - base, 0)


def lost_steps(chapter: Chapter) -> int:
    """Steps of an attempt that were done again, or would have to be. 0 for steps from output: only
    the output of the next attempt shows it."""
    if chapter.reached is None or chapter.closed is None or chapter.read_from:
        return 0
    base = chapter.resumed_from.step if chapter.resumed_from is not None else 0
    return max(chapter.reached - max(chapter.survived or 0, base), 0)


def step_seconds(life: Life) -> float:
    """Seconds per step over all attempts; 0 if no attempt has two known steps."""
    made = sum(max(steps_of(chapter) - 1, 0) for chapter in life.ran)
    return sum(worked(chapter) for chapter in life.ran) / made if made else 0.0


def saving(life: Life) -> SavingFigures | None:
    """None if too little is known: no incident, no steps, or no two checkpoints."""
    step, failures = step_seconds(life), len([c for c in life.incidents if c.workers])
    every = _steps_between_saves(life)
    if not step or not failures or not every:
        return None
    trained = sum(worked(chapter) for chapter in life.ran)
    interval = every * step
    saves = max(trained / interval, 1.0)
    stalled = sum(chapter.spent.get("checkpoint_stall", 0.0) for chapter in life.ran)
    measured = [chapter.save_seconds for chapter in life.ran if chapter.save_seconds]
    least = max(sum(measured) / len(measured), LEAST_COST) if measured else UNMEASURED
    stall, between = max(stalled / saves, least), trained / failures
    # T* = sqrt(2 * d * M): Young 1974. Daly's terms of higher order matter for d > M/50 only.
    best = max(math.sqrt(2 * stall * between), step)
    return SavingFigures(
        step=step, interval=interval, between_failures=between, stall=stall, best=best
    )


def _steps_between_saves(life: Life) -> float:
    """As the script saves; else the median distance of two checkpoints of one attempt in the store,
    which with uploadEvery are few of them; else twice the mean loss."""
    ended = [chapter for chapter in life.ran if chapter.ended is not None]
    if saves := sum(chapter.saves for chapter in ended):
        return sum(map(steps_of, ended)) / saves
    good = sorted((c.id.attempt, c.id.step) for c in life.checkpoints if c.state == "good")
    apart = sorted(b[1] - a[1] for a, b in pairwise(good) if a[0] == b[0] and b[1] > a[1])
    if apart:
        return float(apart[len(apart) // 2])
    lost = [lost_steps(chapter) for chapter in life.incidents if chapter.reached is not None]
    return 2.0 * sum(lost) / len(lost) if lost else 0.0


def advice(life: Life) -> tuple[Advice, ...]:
    """The most expensive first."""
    # A hang now matters more than where the time went before.
    kinds = (_unsaved, _interval, _nodes, _causes, _asking)
    spent = _buckets(life) if life.hung is None else ()
    return (*(found for kind in kinds for found in kind(life)), *spent)


def _unsaved(life: Life) -> Iterator[Advice]:
    """An attempt has ended, and there is no checkpoint to resume from."""
    saved = life.checkpoints or any(
        chapter.resumed_from or chapter.survived for chapter in life.ran
    )
    if not saved and life.tasks is None and any(chapter.closed for chapter in life.ran):
        yield Advice(
            kind="NothingSaved", text=unsaved(reports=life.reports and not life.reads_output)
        )


def _interval(life: Life) -> Iterator[Advice]:
    found, spent = saving(life), life.seconds
    if found is None:
        return
    whole = sum(spent.values())
    rework = spent.get("rework", 0.0) / whole if whole else 0.0
    stall = spent.get("checkpoint_stall", 0.0) / whole if whole else 0.0
    if any(chapter.save_seconds for chapter in life.ran):
        stall = found.cost(found.interval)
    often = found.interval > FAR * found.best and rework >= NOTABLE
    rarely = found.best > FAR * found.interval and stall >= NOTABLE
    if not found.improves or not (often or rarely):
        return
    cost = f"{100 * (rework if often else stall):.0f} %"
    what = f"{cost} rework" if often else f"{cost} of the time"
    steps = max(round(found.best / found.step), 1)
    gain = found.loss(found.interval) - found.loss(found.best)
    text = (
        f"saving every {in_words(found.interval)} cost {what}; every {in_words(found.best)} "
        f"({steps} steps) costs {100 * found.cost(found.best):.1f} %, at {in_words(found.stall)} a "
        f"save, and a failure loses {in_words(found.best / 2)} of work: with a failure every "
        f"{in_words(found.between_failures)} of training that gains {100 * gain:.1f} % goodput "
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
            "gain": round(gain, 4),
        },
    )


def on_node(incident: Mapping[str, object]) -> str:
    """The node of an incident; empty: not known, or the folder of a worker of `trainrun run`, which
    takes the place of a node and has the worker's name."""
    node = str(incident.get("node", ""))
    return "" if node == incident.get("worker") else node


def look_at(node: str, incidents: Collection[Mapping[str, object]], *, keep: str) -> str:
    """What to do about a node that caused most of these incidents; empty: nothing, since the script
    raised the same error elsewhere. `keep`: what to keep off a broken node."""
    there = [incident for incident in incidents if on_node(incident) == node]
    errors = {(incident.get("cause"), str(incident.get("raisedAt", ""))) for incident in there}
    ((cause, place), *others) = errors
    if others or cause != Cause.APP_ERROR or not place:
        return f"check it, and keep {keep} off it until then (kubectl cordon {node})"
    if any(
        incident.get("raisedAt") == place for incident in incidents if on_node(incident) != node
    ):
        return ""
    return f"each time by the same error, in {place}: check the script first, then the node"


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
            text=f"node {node} caused {caused} of {everywhere} incidents: {found}",
            numbers={"node": node, "incidents": caused, "of": everywhere},
        )


def remedy(incident: Mapping[str, object]) -> str:
    """What a user can do about the incident that ended an attempt."""
    cause = str(incident.get("cause", ""))
    return advice_on(cause, rank=incident.get("rank"), exit_code=incident.get("exitCode"))


def _causes(life: Life) -> Iterator[Advice]:
    """The cause that ended most attempts, with the advice for it."""
    causes = Counter(str(chapter.incident.get("cause", "")) for chapter in life.incidents)
    newest = {
        str(chapter.incident.get("cause", "")): chapter.incident for chapter in life.incidents
    }
    for cause, count in causes.most_common(1):
        last = newest[cause]
        place = place_of(str(last.get("hang", "")), str(last.get("message", "")))
        hint = ": ".join(filter(None, (place, remedy(last))))
        yield Advice(
            kind="Cause",
            text=f"{cause} ended {counted(count, 'attempt')}: {hint}",
            numbers={"cause": cause, "incidents": count},
        )


def _asking(life: Life) -> Iterator[Advice]:
    """Advice on a hang, and on a notice that would come too late now."""
    if (hung := life.hung) is not None:
        then = REMEDIES.get(hung.reason, hung.message)
        yield Advice(kind=HUNG, text=f"look at the lines where the ranks are stuck; {then}")
    found = life.status.condition(SAVE_TOO_LATE) if life.status is not None else None
    if found is not None:
        yield Advice(kind=SAVE_TOO_LATE, text=found.message)


def _buckets(life: Life) -> Iterator[Advice]:
    spent = life.seconds
    whole = sum(spent.values())
    causes = {str(chapter.incident.get("cause")) for chapter in life.incidents}
    how = ", ".join(sorted({NOTICED_BY[cause] for cause in causes & NOTICED_BY.keys()}))
    hints = {**HINTS, "hang": f"no progress before the hang was detected; {how}"} if how else HINTS
    for bucket, amount in sorted(spent.items(), key=lambda item: -item[1]):
        if bucket in hints and amount > MUCH * whole:
            yield Advice(
                kind="Bucket",
                text=f"{100 * amount / whole:.0f} % of the time ({in_words(amount)}) went into "
                f"{bucket.replace('_', ' ')}: {hints[bucket]}",
                numbers={"bucket": bucket, "seconds": amount, "share": round(amount / whole, 4)},
            )
