"""A rank that holds its peers up: its steps take longer or, where all wait for each other, it works
longer in each of them.

Layer: core; pure. Judged by medians over minutes that agents tell, so nothing is remembered here.
Only told, never a reason to end anything. What it says changes seldom: a rank that was named stays
named until it is clearly well.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun_operator.core.run.incidents.hangs import judged
from trainrun_operator.core.run.view import View, done

if TYPE_CHECKING:
    from trainrun.contract.agent_state import Pace
    from trainrun_operator.core.run.observation import WorkerFact

STRAGGLER = "Straggler"
"""Type of the condition."""

FACTOR, NO_MORE = 1.5, 1.25
"""Times as much as usual that make a straggler, and below which one is none any more."""

WORKS = 0.5
"""Part of the time for which a rank is busy at least if others wait for it: with less it waits
itself most of the time."""

TOLD_AT = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Factors that are told."""

NEARLY = 1.15
"""A factor that has changed by less reads as before."""

TEXTS = {
    "SlowSteps": "takes at least {factor:g} times as long for a step as its peers",
    "WorksLonger": (
        "computes, or waits for a CPU, at least {factor:g} times as long in each step as its "
        "peers, which seem to wait for it"
    ),
}
"""By the reason of the condition."""

ADVICE = (
    "look at its node (clocks, other load), and at what only this rank does. Nothing is ended for "
    "it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paced:
    """One that reports, and how it works."""

    rank: int
    worker: WorkerFact
    pace: Pace


def warning(view: View) -> tuple[str, str]:
    """The condition's reason and message; empty where no rank holds the others up."""
    if view.running is None or view.all_done:
        return "", ""
    known = view.status.condition(STRAGGLER)
    told = ("", "") if known is None else (known.reason, known.message)
    if not judged(view):
        return told
    ranks = _ranks(view)
    if len(ranks) < 2:
        return "", ""
    return _found(ranks, "SlowSteps", _step, told) or _working(ranks, told) or ("", "")


def _ranks(view: View) -> list[_Paced]:
    found = []
    for worker in view.roster:
        agent = view.joined(worker)
        if worker is None or agent is None or done(agent):
            continue
        first, left = agent.slot * len(agent.paces), {end.rank for end in agent.exits}
        found += [
            _Paced(rank=rank, worker=worker, pace=pace)
            for rank, pace in enumerate(agent.paces, first)
            if pace is not None and rank not in left
        ]
    return found


def _step(rank: _Paced) -> float:
    return rank.pace.step


def _busy(rank: _Paced) -> float:
    return rank.pace.busy


def _working(ranks: Sequence[_Paced], told: tuple[str, str]) -> tuple[str, str] | None:
    busiest = max(map(_busy, ranks))
    return _found(ranks, "WorksLonger", _busy, told) if busiest >= WORKS else None


def _found(
    ranks: Sequence[_Paced], reason: str, value: Callable[[_Paced], float], told: tuple[str, str]
) -> tuple[str, str] | None:
    """The reason and the message, if some rank has so much more than most of the others."""
    usual = max(statistics.median_low(map(value, ranks)), 1e-3)
    for rank in ranks:
        factor = value(rank) / usual
        if factor >= NO_MORE and told[0] == reason and told[1] in _readings(rank, reason, factor):
            return told
    worst = max(ranks, key=value)
    factor = value(worst) / usual
    return (reason, _message(worst, reason, factor)) if factor >= FACTOR else None


def _readings(rank: _Paced, reason: str, factor: float) -> set[str]:
    """What may have been said of it when its factor was nearly this one."""
    nearly = (factor / NEARLY, factor, factor * NEARLY, max(factor, FACTOR))
    return {_message(rank, reason, it) for it in nearly}


def _message(rank: _Paced, reason: str, factor: float) -> str:
    shown = max((it for it in TOLD_AT if it <= factor), default=TOLD_AT[0])
    worker = rank.worker
    where = f"worker {worker.name} on node {worker.node}"
    return f"rank {rank.rank} ({where}) {TEXTS[reason].format(factor=shown)}; {ADVICE}"
