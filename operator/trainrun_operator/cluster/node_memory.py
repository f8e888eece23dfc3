"""The incidents of each namespace's runs on nodes, indexed from the runs' statuses.

Layer: cluster. An index, not a store: a new leader rebuilds it from the statuses of all runs, and
no pass reads the status of another run. Only settled incidents count: the explanation of an open
one may still change.
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
"""Incidents of a namespace that count, the newest ones."""

RECORD_WITHIN = timedelta(minutes=10)
"""The previous leader recorded older ones."""

NAMED = 5
"""Runs that an event names."""

REASON = "TrainRunIncidents"
"""Reason of the event on a node."""

RecordOnNode = Callable[[str, Event, datetime], None]
"""Takes the name of a node, and an event on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunIncidents:
    namespace: str
    incidents: tuple[Incident, ...]
    strikes: tuple[NodeStrike, ...]


class NodeMemory:
    """The incidents on nodes of all runs."""

    def __init__(self, record: RecordOnNode) -> None:
        self._record_on_node = record
        self._runs: dict[str, _RunIncidents] = {}
        """By uid; only runs with incidents against a node."""
        self._of: dict[str, tuple[NodeStrike, ...]] = {}
        """Cached answers of `of`."""

    def of(self, namespace: str) -> tuple[NodeStrike, ...]:
        """The strikes of the runs of a namespace, the newest first."""
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
        """A status of this run was read or written; if `leads`, record events on nodes."""
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
            self._record(strike, f"{text} of namespace {namespace} lost workers here within a day")
            return
        if struck is not None and struck.node == strike.node:
            text = f"the same failure of TrainRun {namespace}/{strike.run} ({strike.cause})"
            self._record(strike, f"{text} occurred {AGAIN} or more times here, and nowhere else")

    def _record(self, strike: NodeStrike, what: str) -> None:
        message = (
            f"{what}; their new workers avoid this node if there is room elsewhere. Check the node"
        )
        self._record_on_node(
            strike.node, Event(type="Warning", reason=REASON, message=message), strike.time
        )
