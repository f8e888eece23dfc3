"""Nodes that new workers are kept away from, or are better not put on.

Layer: core. The scheduler hears of a dead node from the node controller, 40 to 50 s late, and until
then likes it best: it is the emptiest. A worker that was put there would be one more to replace.
Of a node on which workers fail again and again, as on one with a broken GPU, it never hears: the
statuses of the runs of the namespace tell, and nothing is stored besides, so what a deleted run has
met is forgotten with it. A single loss may be anybody's fault, and weighs less from hour to hour. A
run with a bug fails wherever it is: to others it speaks against a node only once, by its newest
incident there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.boundary import NodeStrike, WorkerFact
from trainrun_operator.core.run.causes import row_of
from trainrun_operator.core.run.incidents.attribution import attribution_open
from trainrun_operator.core.run.incidents.repeats import AGAIN, same_node
from trainrun_operator.core.run.view import View, counted

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


RECENT = timedelta(minutes=1)
"""A node is kept away from for so long after it was lost, unless it was seen to come back. Then the
node controller has tainted it (node-monitor-grace-period: 40 s, since Kubernetes 1.32 50 s) and
nothing is placed there anyway."""

MOST = 32
"""Nodes at most: every one is a term that the scheduler looks at."""

NAMED_NODES = 3
"""Nodes that a message names."""


def avoided(view: View) -> tuple[str, ...]:
    """Names of nodes that must not be used, in order."""
    return tuple(sorted(_lost_nodes(view)))[:MOST]


def _lost_nodes(view: View) -> set[str]:
    recent = {i.node for i in view.status.all_incidents if _is_still_lost(view, i)}
    lost = {w.node for w in view.workers if view.is_unreachable(w) or _fell_silent(view, w)}
    return (recent | lost) - {""}


def disfavored(view: View) -> tuple[str, ...]:
    """Names of nodes that others are preferred to, in order.

    Never more than that: the script may be at fault, and a run must not end up without a node. At
    most failurePolicy.maxAvoidedNodes, those that a rule asks for before all others, and of them
    those of the newest incidents.
    """
    now, incidents = view.observation.now, view.status.all_incidents
    newest_first = sorted(incidents, key=lambda incident: incident.time, reverse=True)
    asked = (i.node for i in newest_first if _asked_for(i) and now - i.time < REMEMBERED and i.node)
    worst = (offender.node for offender in offending(view))
    return tuple(sorted([*dict.fromkeys((*asked, *worst))][: view.config.max_avoided_nodes]))


def offending(view: View) -> tuple[Offender, ...]:
    """Nodes on which this run, or several of its namespace, have lost workers; the worst first."""
    strikes = (*_own_strikes(view), *_strikes_of_others(view))
    return _worst(view, strikes)


def _own_offenders(view: View) -> tuple[Offender, ...]:
    """Those that this run has met."""
    own = _own_strikes(view)
    here = {strike.node for strike in own}
    return _worst(view, (*own, *(s for s in _strikes_of_others(view) if s.node in here)))


def _own_strikes(view: View) -> tuple[NodeStrike, ...]:
    return strikes_of(view.config.name, view.status.all_incidents)


def _strikes_of_others(view: View) -> Iterator[NodeStrike]:
    return (strike for strike in view.observation.strikes if strike.run != view.config.name)


def _worst(view: View, strikes: Iterable[NodeStrike]) -> tuple[Offender, ...]:
    config, now = view.config, view.observation.now
    return offenders(strikes, own=config.name, now=now)[: config.max_avoided_nodes]


def offenders_text(view: View) -> str:
    """What to say of them: of all while workers are gathered, then of those that this run has met;
    "" where there are none."""
    if view.status.finished or view.config.suspend:
        return ""
    if view.running is not None and not view.status.all_incidents:
        return ""
    found = offending(view) if view.running is None else _own_offenders(view)
    if not found:
        return ""
    rest = f" and {len(found) - NAMED_NODES} more" if len(found) > NAMED_NODES else ""
    named = ", ".join(offender.text for offender in found[:NAMED_NODES])
    return f"new workers are put elsewhere where there is room: {named}{rest}; have them checked"


def must_leave(view: View, worker: WorkerFact) -> str:
    """Why it gives its place up though it is well; "": it need not."""
    if not worker.node:
        return ""
    incidents = view.status.incidents if may_be_another(view) else view.status.all_incidents
    if any(
        _asked_for(i) and i.node == worker.node and _was_there(view, worker, i) for i in incidents
    ):
        return f"a rule of failurePolicy keeps the run away from its node {worker.node}"
    first = same_node(incidents)
    struck = first is not None and first.node == worker.node and _was_there(view, worker, first)
    if struck and view.config.max_avoided_nodes:
        return f"the same failure has struck {AGAIN} times, and on its node {worker.node} alone"
    return ""


def _was_there(view: View, worker: WorkerFact, incident: Incident) -> bool:
    """In the incident's attempt. One that was made anew since the store refused the one before has
    a number above that of the attempt it takes part in."""
    took_part = incident.attempt == view.status.attempt and worker in view.roster
    return took_part or worker.created_for <= incident.attempt or worker.name == incident.worker


def may_be_another(view: View) -> bool:
    """A rule asks for another node than that of the open incident, which may find a better
    explanation yet: of another node, or of a kind that the rule says nothing about. Workers that
    are well are not replaced for a guess."""
    incident = view.status.incident
    return incident is not None and _asked_for(incident) and attribution_open(view, incident)


def _asked_for(incident: Incident) -> bool:
    return incident.action == "RestartAvoidingNode"


def avoids_needlessly(view: View, worker: WorkerFact) -> bool:
    """It finds no room, and keeps away from a node that may be used again by now."""
    return (
        bool(worker.avoids)
        and worker.pending is not None
        and worker.pending.kind == "Unschedulable"
        and not set(worker.avoids) <= _lost_nodes(view)
    )


def _is_still_lost(view: View, incident: Incident) -> bool:
    now, back = view.observation.now, view.observation.ready_since.get(incident.node)
    return (
        (row_of(incident.cause).against_node == "AtOnce" or _asked_for(incident))
        and now - incident.time < RECENT
        and (back is None or back <= incident.time)
    )


def _fell_silent(view: View, worker: WorkerFact) -> bool:
    """Its agent is not heard any more, and nobody else is on its node."""
    # What has ended is kept for its logs, and silent for ever.
    recent = view.config.heartbeat_timeout + RECENT
    return (
        worker.phase == "Running"
        and view.is_silent(worker)
        and worker.silent_for < recent
        and not any(other.node == worker.node and _is_heard(view, other) for other in view.workers)
    )


def _is_heard(view: View, worker: WorkerFact) -> bool:
    # Agents call three times in a heartbeat timeout: whoever missed one may be on the way out too.
    return worker.agent is not None and 2 * worker.silent_for < view.config.heartbeat_timeout
