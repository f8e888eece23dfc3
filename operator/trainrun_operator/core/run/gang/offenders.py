"""Nodes on which workers were lost again and again, whichever runs of the namespace they were of.

Layer: core. Derived from what the statuses of the runs tell of their incidents, and stored nowhere:
what a deleted run has met is forgotten with it. A single loss may be anybody's fault, and weighs
less from hour to hour. A run with a bug fails wherever it is: to others it speaks against a node
only once, by its newest incident there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from trainrun_operator.core.run.causes import row_of
from trainrun_operator.core.run.observation import NodeStrike
from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from trainrun_operator.api.run.incident import Incident

HALF_LIFE = timedelta(hours=6)
"""After so long an incident weighs half as much."""

REMEMBERED = timedelta(days=1)
"""After so long it is forgotten: by then somebody has looked at the node."""

ENOUGH = 1.25
"""Weight from which on a node is better not used: a fresh incident weighs 1. Two are remembered for
four hours; beside a fresh one counts what was less than twelve hours before."""

TOGETHER = timedelta(minutes=5)
"""What strikes several runs on one node within this time is one event: the node was lost, once."""

AHEAD = timedelta(minutes=10)
"""Clocks of operators may differ by so much; what lies further ahead is no time to go by."""

NAMED = 3
"""Causes and runs that a text names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A node that is better not used, and why."""

    node: str
    weight: float
    strikes: tuple[NodeStrike, ...]
    """Oldest first."""

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs that speak against it."""
        return tuple(sorted({strike.run for strike in self.strikes}))

    @property
    def text(self) -> str:
        """`n7 (3 incidents of 2 runs: AppError, NodeLost; the last on 2026-01-01 at 12:31 UTC)`."""
        number, runs = len(self.strikes), len(self.runs)
        causes = [cause for cause, _ in Counter(s.cause for s in self.strikes).most_common(NAMED)]
        return (
            f"{self.node} ({counted(number, 'incident')} of {counted(runs, 'run')}: "
            f"{', '.join(sorted(causes))}; the last on {self.strikes[-1].time:%Y-%m-%d at %H:%M} "
            "UTC)"
        )


def strikes_of(run: str, incidents: Iterable[Incident]) -> tuple[NodeStrike, ...]:
    """Those of a run that speak against a node."""
    return tuple(
        NodeStrike(node=i.node, run=run, cause=i.cause, time=i.time)
        for i in incidents
        if i.node and not i.collateral and row_of(i.cause).against_node != "Never"
    )


def offenders(
    strikes: Iterable[NodeStrike], *, own: str = "", now: datetime
) -> tuple[Offender, ...]:
    """Nodes that are better not used, the worst first; of the run `own` each incident counts."""
    at: dict[str, list[NodeStrike]] = {}
    for strike in strikes:
        if -AHEAD <= now - strike.time < REMEMBERED:
            at.setdefault(strike.node, []).append(strike)
    # Most nodes cannot weigh enough, which is soon seen: each pass of a fleet looks at all.
    found = (
        _offender(node, tuple(sorted(here, key=lambda s: (s.time, s.run))), own, now)
        for node, here in at.items()
        if len(here) > 1 and _more_than_one_counts(here, own)
    )
    bad = (offender for offender in found if offender.weight >= ENOUGH)
    return tuple(sorted(bad, key=lambda offender: (-offender.weight, offender.node)))


def _more_than_one_counts(here: Iterable[NodeStrike], own: str) -> bool:
    runs = {strike.run for strike in here}
    return len(runs) > 1 or own in runs


def _offender(node: str, here: tuple[NodeStrike, ...], own: str, now: datetime) -> Offender:
    counts = sorted((*_own(here, own), *_others(here, own)), key=lambda s: (s.time, s.run))
    return Offender(node=node, weight=sum(_weight(s, now) for s in counts), strikes=tuple(counts))


def _weight(strike: NodeStrike, now: datetime) -> float:
    age = max(now - strike.time, timedelta(0))
    return float(0.5 ** (age / HALF_LIFE))


def _own(here: Sequence[NodeStrike], own: str) -> Iterator[NodeStrike]:
    return (strike for strike in here if strike.run == own)


def _others(here: Sequence[NodeStrike], own: str) -> tuple[NodeStrike, ...]:
    """The newest of each other run, but one of those that came together, and none that came
    together with one of our own."""
    newest = {strike.run: strike for strike in here if strike.run != own}
    ours = [strike.time for strike in _own(here, own)]
    left = sorted(newest.values(), key=lambda s: (s.time, s.run))
    apart = [s for s in left if all(abs(s.time - time) >= TOGETHER for time in ours)]
    followed = {s.run for s, after in pairwise(apart) if after.time - s.time < TOGETHER}
    return tuple(strike for strike in apart if strike.run not in followed)
