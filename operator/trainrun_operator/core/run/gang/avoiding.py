"""Nodes that new workers must avoid, or should avoid if others have room.

Layer: core. The scheduler learns of a dead node from the node controller, 40 to 50 s late, and
until then prefers it as the emptiest. A worker placed there would have to be replaced, too. The
scheduler never learns that workers repeatedly fail on a node, for example one with a broken GPU.
The statuses of all runs of the namespace show it; nothing else is stored, so the incidents of a
deleted run are forgotten. A single loss proves little, and its weight decays by the hour. A run
with a bug fails on any node, so for other runs it counts only once against a node: by its newest
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
"""Time in which the weight of an incident halves."""

REMEMBERED = timedelta(days=1)
"""Age at which an incident is forgotten: by then the node has been checked."""

ENOUGH = 1.25
"""Weight from which on a node should be avoided: a fresh incident weighs 1. Two incidents at once
are enough for four hours; together with a fresh one, an incident up to twelve hours old counts."""

TOGETHER = timedelta(minutes=5)
"""Incidents of several runs on one node within this time are one event: the node was lost once."""

AHEAD = timedelta(minutes=10)
"""How far clocks of operators may differ; times further ahead are ignored."""

NAMED = 3
"""Most causes that a text names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A node that should be avoided, and why."""

    node: str
    weight: float
    strikes: tuple[NodeStrike, ...]
    """Oldest first."""

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs with incidents against it."""
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
    """The incidents of a run that count against a node."""
    return tuple(
        NodeStrike(node=i.node, run=run, cause=i.cause, time=i.time)
        for i in incidents
        if i.node and not i.collateral and row_of(i.cause).against_node != "Never"
    )


def offenders(
    strikes: Iterable[NodeStrike], *, own: str = "", now: datetime
) -> tuple[Offender, ...]:
    """Nodes that should be avoided, the worst first; of the run `own` every incident counts."""
    at: dict[str, list[NodeStrike]] = {}
    for strike in strikes:
        if -AHEAD <= now - strike.time < REMEMBERED:
            at.setdefault(strike.node, []).append(strike)
    # Most nodes cannot reach the weight. Skip them early: each pass of a fleet looks at all.
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
    """The newest strike of each other run; only one of those close together in time, and none that
    is close to one of our own."""
    newest = {strike.run: strike for strike in here if strike.run != own}
    ours = [strike.time for strike in _own(here, own)]
    left = sorted(newest.values(), key=lambda s: (s.time, s.run))
    apart = [s for s in left if all(abs(s.time - time) >= TOGETHER for time in ours)]
    followed = {s.run for s, after in pairwise(apart) if after.time - s.time < TOGETHER}
    return tuple(strike for strike in apart if strike.run not in followed)


RECENT = timedelta(minutes=1)
"""How long new workers avoid a lost node, unless it comes back. After that the node controller has
tainted it (node-monitor-grace-period: 40 s, since Kubernetes 1.32 50 s), and nothing is placed
there anyway."""

MOST = 32
"""Most nodes to avoid: each one is a term that the scheduler evaluates."""

NAMED_NODES = 3
"""Most nodes that a message names."""


def avoided(view: View) -> tuple[str, ...]:
    """Names of nodes that must not be used, in order."""
    return tuple(sorted(_lost_nodes(view)))[:MOST]


def _lost_nodes(view: View) -> set[str]:
    recent = {i.node for i in view.status.all_incidents if _is_still_lost(view, i)}
    lost = {w.node for w in view.workers if view.is_unreachable(w) or _fell_silent(view, w)}
    return (recent | lost) - {""}


def disfavored(view: View) -> tuple[str, ...]:
    """Names of nodes that new workers should avoid if others have room, in order.

    It is only a preference: the script may be at fault, and a run must not end up without a node.
    At most failurePolicy.maxAvoidedNodes: first those that a rule asks for, newest incidents first.
    """
    now, incidents = view.observation.now, view.status.all_incidents
    newest_first = sorted(incidents, key=lambda incident: incident.time, reverse=True)
    asked = (i.node for i in newest_first if _asked_for(i) and now - i.time < REMEMBERED and i.node)
    worst = (offender.node for offender in offending(view))
    return tuple(sorted([*dict.fromkeys((*asked, *worst))][: view.config.max_avoided_nodes]))


def offending(view: View) -> tuple[Offender, ...]:
    """Nodes on which this run, or several of its namespace, lost workers; the worst first."""
    strikes = (*_own_strikes(view), *_strikes_of_others(view))
    return _worst(view, strikes)


def _own_offenders(view: View) -> tuple[Offender, ...]:
    """Those on which this run itself has had incidents."""
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
    """The message about them; "" where there are none. While workers are gathered it covers all of
    them, later those on which this run has had incidents."""
    if view.status.finished or view.config.suspend:
        return ""
    if view.running is not None and not view.status.all_incidents:
        return ""
    found = offending(view) if view.running is None else _own_offenders(view)
    if not found:
        return ""
    rest = f" and {len(found) - NAMED_NODES} more" if len(found) > NAMED_NODES else ""
    named = ", ".join(offender.text for offender in found[:NAMED_NODES])
    return f"new workers avoid these nodes if others have room: {named}{rest}; have them checked"


def must_leave(view: View, worker: WorkerFact) -> str:
    """Why it must leave its node although it works; "": it need not."""
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
        return f"the same failure has occurred {AGAIN} times, always on its node {worker.node}"
    return ""


def _was_there(view: View, worker: WorkerFact, incident: Incident) -> bool:
    """Whether it took part in the incident's attempt. A worker that replaced one that the store
    refused has a number above that of its attempt."""
    took_part = incident.attempt == view.status.attempt and worker in view.roster
    return took_part or worker.created_for <= incident.attempt or worker.name == incident.worker


def may_be_another(view: View) -> bool:
    """Whether a rule asks for another node than that of the open incident, but the incident may
    still get a better explanation: on another node, or one that the rule does not match. Workers
    that work are not replaced for a guess."""
    incident = view.status.incident
    return incident is not None and _asked_for(incident) and attribution_open(view, incident)


def _asked_for(incident: Incident) -> bool:
    return incident.action == "RestartAvoidingNode"


def avoids_needlessly(view: View, worker: WorkerFact) -> bool:
    """Whether it finds no room, and avoids a node that may be used again by now."""
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
    """Whether its agent stopped sending heartbeats, and no other worker of its node sends any."""
    # An ended worker is kept for its logs, and stays silent.
    recent = view.config.heartbeat_timeout + RECENT
    return (
        worker.phase == "Running"
        and view.is_silent(worker)
        and worker.silent_for < recent
        and not any(other.node == worker.node and _answers(view, other) for other in view.workers)
    )


def _answers(view: View, worker: WorkerFact) -> bool:
    # Agents call three times per heartbeat timeout: one that missed a call may be failing, too.
    return worker.agent is not None and 2 * worker.silent_for < view.config.heartbeat_timeout
