"""What the runs of each namespace have met on nodes, from their statuses as they are seen.

Layer: cluster. An index and no store: a leader that begins reads it from the statuses of all runs,
and no pass looks at the status of another run. Only incidents that are settled count: what explains
an open one may still change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.boundary import Event, NodeStrike
from trainrun_operator.core.run.gang.avoiding import offenders, strikes_of
from trainrun_operator.core.run.incidents.repeats import AGAIN, same_node

MAX_STRIKES = 256
"""Incidents of a namespace that are looked at, the newest ones."""

RECORD_WITHIN = timedelta(minutes=10)
"""What is older was told by who led before."""

NAMED = 5
"""Runs that an event names."""

REASON = "TrainRunIncidents"
"""Of the event on a node."""

RecordOnNode = Callable[[str, Event, datetime], None]
"""Takes the name of a node, and an event on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunIncidents:
    namespace: str
    incidents: tuple[Incident, ...]
    strikes: tuple[NodeStrike, ...]


class NodeMemory:
    """Of all runs that we know."""

    def __init__(self, record: RecordOnNode) -> None:
        self._record_on_node = record
        self._runs: dict[str, _RunIncidents] = {}
        """By uid; only runs that speak against a node."""
        self._of: dict[str, tuple[NodeStrike, ...]] = {}
        """What `of` has answered, until it changes."""

    def of(self, namespace: str) -> tuple[NodeStrike, ...]:
        """What the runs of a namespace have met, the newest first."""
        if namespace not in self._of:
            here = (run for run in self._runs.values() if run.namespace == namespace)
            strikes = [strike for run in here for strike in run.strikes]
            newest = sorted(strikes, key=lambda s: (s.time, s.run, s.node), reverse=True)
            self._of[namespace] = tuple(newest[:MAX_STRIKES])
        return self._of[namespace]

    def learn(
        self,
        metadata: Mapping[str, str],
        status: TrainRunStatus,
        *,
        now: datetime,
        leads: bool,
    ) -> None:
        """A status of this run was seen or written; one who leads tells of nodes."""
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        recorded = self._runs.get(uid)
        if status.incidents == (recorded.incidents if recorded is not None else ()):
            return
        strikes = strikes_of(name, status.incidents)
        before = recorded.strikes if recorded is not None else ()
        self.forget(uid)
        if strikes:
            self._runs[uid] = _RunIncidents(
                namespace=namespace, incidents=status.incidents, strikes=strikes
            )
        self._of.pop(namespace, None)
        for strike in (s for s in strikes if s not in before):
            if leads and now - strike.time < RECORD_WITHIN:
                self._report(strike, namespace, status, now)

    def forget(self, uid: str) -> None:
        """The run is gone."""
        if (recorded := self._runs.pop(uid, None)) is not None:
            self._of.pop(recorded.namespace, None)

    def _report(
        self, strike: NodeStrike, namespace: str, status: TrainRunStatus, now: datetime
    ) -> None:
        here = [s for s in self.of(namespace) if s.node == strike.node]
        struck = same_node(status.incidents)
        for offender in offenders(here, now=now):
            names = ", ".join(offender.runs[:NAMED])
            more = ", ..." if len(offender.runs) > NAMED else ""
            causes = ", ".join(sorted({s.cause for s in offender.strikes}))
            text = f"{len(offender.strikes)} TrainRuns ({names}{more}: {causes})"
            self._record(
                strike, f"{text} of namespace {namespace} have lost workers here within a day"
            )
            return
        if struck is not None and struck.node == strike.node:
            text = f"the same failure of TrainRun {namespace}/{strike.run} ({strike.cause})"
            self._record(strike, f"{text} has struck {AGAIN} times and more here, and nowhere else")

    def _record(self, strike: NodeStrike, what: str) -> None:
        message = (
            f"{what}; their new workers are put elsewhere where there is room: have it checked"
        )
        self._record_on_node(
            strike.node, Event(type="Warning", reason=REASON, message=message), strike.time
        )
