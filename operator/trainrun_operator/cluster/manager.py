"""Manages all runs of an operator: one reconciler each, started when we lead, woken by events.

Layer: cluster. One task per run, whose Wakeup merges any number of requests into the next pass:
that is the work queue, with one pass in flight per run by construction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cluster.metrics import Metrics, RunState
from trainrun_operator.cluster.node_memory import NodeMemory, RecordOnNode
from trainrun_operator.cluster.unmanaged_runs import Record, UnmanagedRuns
from trainrun_operator.core.run.boundary import Event, Installation, Plan
from trainrun_operator.core.run.display import INVALID_SPEC, TOO_LARGE
from trainrun_operator.core.run.incidents.hangs import OwedStep, step_owed
from trainrun_operator.core.run.planner import decide
from trainrun_operator.kube.errors import TRANSIENT
from trainrun_operator.runtime.agent_server import AgentServer
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.runtime.reconciler import Reconciler, Wakeup
from trainrun_operator.runtime.run_events import RunEvent, RunNews, one_line
from trainrun_operator.worlds.base import Seen
from trainrun_operator.worlds.kubernetes.run_object import (
    RunObject,
    holder_of,
    is_managed_elsewhere,
    managed_version,
)
from trainrun_operator.worlds.kubernetes.trimmed_objects import TooLarge
from trainrun_operator.worlds.kubernetes.world import KubernetesWorld, WorldDependencies

_log = logging.getLogger(__name__)

REPORT = "the operator leaves the run unchanged until its spec is edited; report the bug"

RERECORD_WITHIN = timedelta(minutes=10)
"""Events this young are recorded again when we start to lead: the previous leader may have died
before it wrote them. The cluster may have deleted older ones, which would then reappear."""


@dataclass(slots=True, kw_only=True)
class _ManagedRun:
    """A run and the parts that lead it."""

    object: RunObject
    wakeup: Wakeup
    agents: RunAgents
    task: asyncio.Task[None] | None = None

    def step_owed(self) -> OwedStep | None:
        """See `hangs.step_owed`."""
        return step_owed(self.agents.fresh_states)


class RunManager:
    """Holds every run; leads them between `lead` and `stop`."""

    def __init__(
        self,
        *,
        installation: Installation,
        server: AgentServer,
        metrics: Metrics,
        record: Record,
        record_on_node: RecordOnNode = lambda _node, _event, _time: None,
    ) -> None:
        """`installation` is ours; its key may come later. `record_on_node` takes events on nodes.

        `nodes` knows the incidents of runs on each node.
        """
        self._installation = installation
        self._unmanaged_runs = UnmanagedRuns(record, TRAINRUN)
        self._publishing: asyncio.Task[None] | None = None
        self._server = server
        self._record = record
        self.nodes = NodeMemory(record_on_node)
        self._runs: dict[str, _ManagedRun] = {}
        self._unreadable: dict[str, RunAgents] = {}
        """Agents of runs that this operator could never read: a newer operator may, so their agents
        must wait."""
        self._refused: dict[str, int] = {}
        """By the uid of an unreadable run: the generation that was reported to its user."""
        self._around: WorldDependencies | None = None
        self._metrics = metrics
        metrics.follow(self.states)

    # -------------------------------------------------------------------------- what is seen

    def seen(self, raw: Mapping[str, Any]) -> None:
        """A TrainRun exists in this version, which is the newest whatever its number."""
        raw = {**TRAINRUN.head(), **raw}  # lists omit kind and apiVersion
        try:
            self._take(raw)
        except InvalidSpec as error:
            self._refuse(raw, error)
        except Exception as error:  # noqa: BLE001 - one bad object must not stop the other runs
            odd = InvalidSpec(f"this operator cannot read it: {one_line(error)}; {REPORT}")
            if self._refuse(raw, odd):
                _log.exception("TrainRun %s cannot be read", raw["metadata"].get("name"))

    def _take(self, raw: Mapping[str, Any]) -> None:
        """Raises InvalidSpec."""
        uid = raw["metadata"]["uid"]
        if "deletionTimestamp" in raw["metadata"]:
            self.gone(uid)  # owner references delete its pods: nothing is left to decide
            self._unmanaged_runs.deleted(raw)
            return
        if is_managed_elsewhere(raw):
            return
        if not self._installation.may_lead(holder_of(raw)):
            self._stop_leading(uid)
            self._unmanaged_runs.seen(raw, by=self._installation.name)
            return
        self._unmanaged_runs.gone(uid)
        managed = self._runs.get(uid)
        if managed is None:
            self._add(raw)
        elif managed.object.learn(raw):
            self._remember(managed)
            managed.wakeup.now()
        if managed is not None and managed.object.refusal:
            self._refuse(managed.object.current.head, managed.object.refusal)
        else:
            self._forget_unreadable(uid)

    def gone(self, uid: str) -> None:
        """The TrainRun was deleted."""
        self._unmanaged_runs.gone(uid)
        self._stop_leading(uid)

    def _stop_leading(self, uid: str) -> None:
        self._forget_unreadable(uid)
        managed = self._runs.pop(uid, None)
        if managed is None:
            return
        self.nodes.forget(uid)
        managed.object.deleted = True
        if managed.task is not None:
            managed.task.cancel()
            self._server.remove(uid)

    def wake(self, uid: str) -> None:
        """Something that affects this run has changed."""
        managed = self._runs.get(uid)
        if managed is not None:
            managed.wakeup.now()

    def states(self) -> Iterator[RunState]:
        """Every run."""
        for managed in self._runs.values():
            current = managed.object.current
            name = f"{current.namespace}/{current.name}"
            yield name, current.status, current.config, managed.step_owed

    # ------------------------------------------------------------------------------- leading

    def lead(self, around: WorldDependencies, *, grace: float = 0.0) -> None:
        """Start to decide; silence of agents counts only after `grace` seconds."""
        self._around = around
        self._publishing = asyncio.create_task(self._unmanaged_runs.publish(around))
        for managed in self._runs.values():
            self._start(managed, around, grace=grace)

    async def stop(self) -> None:
        """Stop deciding; workers continue."""
        self._around = None
        tasks = [managed.task for managed in self._runs.values() if managed.task is not None]
        tasks += [self._publishing] if self._publishing is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, raw: Mapping[str, Any]) -> None:
        version = managed_version(raw)
        wakeup = Wakeup(progress_interval=lambda: self._server.cadence.interval)
        managed = _ManagedRun(
            object=RunObject(version),
            wakeup=wakeup,
            agents=RunAgents(run_uid=version.uid, on_news=wakeup.now, on_progress=wakeup.soon),
        )
        self._runs[version.uid] = managed
        self._remember(managed)
        if self._around is not None:
            self._start(managed, self._around)

    def _start(
        self, managed: _ManagedRun, around: WorldDependencies, *, grace: float = 0.0
    ) -> None:
        managed.agents.secret = around.place.signing_key
        managed.agents.certificate = partial(around.place.certify, managed.agents.run_uid)
        namespace, name = managed.object.current.namespace, managed.object.current.name
        self._server.add(managed.agents)

        def wrote(before: TrainRunStatus, after: TrainRunStatus) -> None:
            self._metrics.wrote(before, after)
            self._remember(managed, after)

        world = KubernetesWorld(
            run=managed.object,
            around=around,
            wake=managed.wakeup.after,
            wrote=wrote,
            record_event=lambda event: self._record(
                managed.object.current.head, event, datetime.now(UTC)
            ),
            strikes=lambda: self.nodes.of(namespace),
        )
        reconciler = Reconciler(
            world=world,
            agents=managed.agents,
            decide=decide,
            events=_Recorder(managed.object, self._record),
            wakeup=managed.wakeup,
            name=f"{namespace}/{name}",
            rerecord=RERECORD_WITHIN,
            on_pass=self._metrics.passed,
            transient=TRANSIENT,
            on_error=self._metrics.operator_error,
        )

        def over(_seen: Seen, _plan: Plan) -> bool:
            return managed.object.deleted

        async def lead() -> None:
            await around.pods.listed(namespace)  # else all workers would look lost
            managed.agents.restart_listening(grace=grace)  # no heartbeat was received until now
            await reconciler.run(over)

        managed.task = asyncio.create_task(lead())

    def _remember(self, managed: _ManagedRun, status: TrainRunStatus | None = None) -> None:
        self.nodes.learn(
            managed.object.current.head["metadata"],
            status or managed.object.current.status,
            now=datetime.now(UTC),
            leads=self._around is not None,
        )

    def _refuse(self, raw: Mapping[str, Any], why: InvalidSpec) -> bool:
        """Report an unreadable run to its user, once per generation; returns whether it did now."""
        metadata = raw["metadata"]
        uid, generation = metadata["uid"], metadata.get("generation", 0)
        refused, self._refused[uid] = self._refused.get(uid), generation
        if uid not in self._runs:  # else its reconciler writes the condition
            reason = TOO_LARGE if isinstance(why, TooLarge) else INVALID_SPEC
            self._unmanaged_runs.refused(raw, reason, str(why))
        if refused == generation:
            return False
        if not isinstance(why, TooLarge):
            event = Event(type="Warning", reason=INVALID_SPEC, message=str(why))
            self._record(raw, event, datetime.now(UTC))
        if uid not in self._runs and uid not in self._unreadable:
            agents = RunAgents(run_uid=uid, on_news=_nothing, on_progress=_nothing)
            self._unreadable[uid] = agents
            self._server.add(agents)
        return True

    def _forget_unreadable(self, uid: str) -> None:
        self._refused.pop(uid, None)
        if self._unreadable.pop(uid, None) is not None and uid not in self._runs:
            self._server.remove(uid)


def _nothing() -> None:
    """Ignore news of agents of an unreadable run."""


@dataclass(slots=True)
class _Recorder:
    """Writes the events of one run into the cluster."""

    object: RunObject
    record: Record

    def emit(self, news: RunNews) -> None:
        """Record events; the rest is in the status."""
        if isinstance(news, RunEvent):
            self.record(self.object.current.head, news.event, news.time)
