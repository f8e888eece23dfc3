"""The Kubernetes world of one run: its workers are pods, its status is the TrainRun's.

Layer: worlds/kubernetes. Invariants: it decides nothing; a status is written only over the
observed version; nothing is written unless we lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.core.run.boundary import (
    NAMELESS,
    Action,
    CreateWorker,
    DeleteRun,
    DeleteWorker,
    Event,
    Installation,
    NodeStrike,
    Observation,
    WorkerFact,
)
from trainrun_operator.core.run.gang.roster import MAKES_ROOM
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
)
from trainrun_operator.worlds.base import (
    AgentContact,
    Agents,
    Seen,
    StatusConflict,
    StatusRefused,
    StatusUnwritable,
)
from trainrun_operator.worlds.kubernetes.observing.facts import worker_fact
from trainrun_operator.worlds.kubernetes.observing.foreign_pods import (
    ForeignPods,
    OrphanSearch,
    holds_something,
    leftovers,
)
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeLeases, NoticeTaint
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact
from trainrun_operator.worlds.kubernetes.observing.worker_observation import LastSeenTimes
from trainrun_operator.worlds.kubernetes.pod_writes import (
    FIRST_PAUSE,
    Refusals,
    delete_pod,
    reason_of,
)
from trainrun_operator.worlds.kubernetes.render import OperatorPlace, worker_pod
from trainrun_operator.worlds.kubernetes.run_object import (
    ManagedVersion,
    RunObject,
    RunVersion,
    number_of,
    run_version,
)
from trainrun_operator.worlds.kubernetes.trimmed_objects import RecentSpecs, trimmed

SUSPICIOUS = 3
"""A worker silent for 1/SUSPICIOUS of the heartbeat timeout has its node's Lease checked."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldDependencies:
    """The dependencies that the worlds of all runs share."""

    api: KubeApi
    pods: PodIndex
    reads_nodes: bool
    """Whether nodes and their Leases may be read."""
    place: OperatorPlace
    notices: tuple[NoticeTaint, ...]
    """Taints that announce the end of a node."""
    leads: Callable[[], bool]
    """Whether our Lease is valid now."""
    learn_run: Callable[[dict[str, Any], int], object]
    """Takes the API server's answer about a TrainRun, and the resourceVersion that we had before a
    read (0: the call was a write). If it is new, the run gets it.
    """
    installation: Installation = NAMELESS
    """Our installation."""
    written: RecentSpecs[RunVersion] = field(default_factory=RecentSpecs)
    """Recently used specs of workers."""

    def check_leadership(self) -> None:
        """Raises StatusUnwritable if another operator leads."""
        if not self.leads():
            raise StatusUnwritable("another operator leads now")


class KubernetesWorld:
    """The World of one TrainRun."""

    display_interval = 15.0

    def __init__(
        self,
        *,
        run: RunObject,
        around: WorldDependencies,
        wake: Callable[[float], None],
        wrote: Callable[[TrainRunStatus, TrainRunStatus], None],
        record_event: Callable[[Event], None],
        strikes: Callable[[], tuple[NodeStrike, ...]] = tuple,
    ) -> None:
        """`wake` requests a pass within so many seconds. `wrote` gets (before, after) of every
        status written, even if the answer to the write got lost. `record_event` takes events that
        the core does not know; `strikes` returns the incidents on nodes of the namespace's runs."""
        self._run = run
        self._around = around
        self._api, self._guard = around.api, around.check_leadership
        self._wake = wake
        self._wrote = wrote
        self._record_event = record_event
        self._strikes = strikes
        self._refusals = Refusals()
        self._foreign_pods = ForeignPods(run.current.name, wake)
        self._orphan_search = OrphanSearch(around.api, around.pods, wake)
        self._sightings = LastSeenTimes()
        self._leases = NodeLeases(around.api)
        self._reported_status = run.current.status
        """The status last passed to `wrote`."""
        self._observed = run.current
        """The version of the newest observation."""
        self._status_uncertain = False
        """True: we do not know whether our last status write arrived."""
        self._outdated: ManagedVersion | None = None
        """The version whose spec the API server no longer has."""

    # -------------------------------------------------------------------- the World protocol

    async def observe(self, agents: Agents) -> Seen:
        """Gather the facts of one pass: caches, and the Leases of nodes that fell silent."""
        if self._status_uncertain:
            # The watch may lag: a decision from the previous status would delete workers of an
            # attempt that has started.
            await self._read_run()
            self._status_uncertain = False
        await self._handle_foreign_pods()
        version = self._run.current
        contacts = {pod.name: agents.contact(pod.name) for pod in self._pods()}
        stale = await self._stale_leases(contacts, version.config.heartbeat_timeout)
        now, version = datetime.now(UTC), self._run.current
        pods = [pod for pod in self._pods() if pod.name in contacts]
        observation = Observation(
            now=now,
            generation=version.generation,
            status=version.status,
            workers=tuple(self._fact(pod, contacts[pod.name], stale, now) for pod in pods),
            listening_for=agents.listening_for,
            ordered=agents.ordered,
            last_words=agents.last_words,
            ready_since=self._ready_since(version.status),
            strikes=self._strikes(),
            installation=self._around.installation,
            refused=self._refusals.facts(),
            too_large=self._run.too_large,
            invalid=self._run.invalid,
        )
        self._sightings.keep({pod.uid for pod in self._pods()})
        self._observed = version
        self._report_written(version.status)  # includes our writes whose answers got lost
        return Seen(observation=observation, config=version.config)

    async def write_status(self, status: TrainRunStatus) -> None:
        """Replace the status of the last observed version."""
        self._guard()
        version = self._observed  # the watch may have brought a newer one since
        # This path writes only the status; the rest, up to a megabyte, need not be sent.
        body = {**version.head, "status": json_object(status)}
        self._run.written = status  # the watch may bring it before the answer arrives
        try:
            path = f"{self._run.path}/status"
            answer = await self._api.put(path, body, guard=self._guard)
            self._around.learn_run(answer, 0)
        except KubeError as error:
            self._status_uncertain, self._run.written = True, None
            if isinstance(error, (Conflict, NotFound)):
                raise StatusConflict(f"{version.name}: {error}") from error
            refused = isinstance(error, (Forbidden, Invalid, Unauthorized))
            kind = StatusRefused if refused else StatusUnwritable
            raise kind(f"the status cannot be written: {error}") from error
        self._report_written(status)

    def _report_written(self, status: TrainRunStatus) -> None:
        if status != self._reported_status:
            self._wrote(self._reported_status, status)
            self._reported_status = status

    async def apply(self, action: Action) -> None:
        """Carry out one action."""
        self._guard()
        match action:
            case CreateWorker():
                await self._create(action)
            case DeleteWorker():
                await self._delete(action)
            case DeleteRun():
                await self._delete_run()

    # ----------------------------------------------------------------------------- observing

    def _pods(self) -> tuple[PodFact, ...]:
        return self._around.pods.of(self._run.current.uid)

    def _fact(
        self, pod: PodFact, contact: AgentContact, stale: Mapping[str, timedelta], now: datetime
    ) -> WorkerFact:
        return worker_fact(
            pod,
            self._around.pods.node(pod.node),
            contact,
            training_container=self._run.current.config.container,
            now=now,
            node_lease_age=stale.get(pod.node),
            notices=self._around.notices,
            sightings=self._sightings,
        )

    async def _handle_foreign_pods(self) -> None:
        version, pods, trying = self._run.current, self._around.pods, self._foreign_pods.trying
        if version.status.holder != self._around.installation.holder or self._foreign_pods.rest:
            return  # not ours yet, or refused a moment ago
        if not self._orphan_search.is_done:
            await trying(self._orphan_search.look(version))
        foreign_pods = pods.foreign_pods(version.uid)
        left_over = leftovers(version, foreign_pods)
        why = "another installation created it"
        await asyncio.gather(
            *(trying(self._handle_vanished(pod)) for pod in pods.vanished(version.uid)),
            *(trying(self._delete_pod(p, why)) for p in left_over if holds_something(p)),
        )
        for event in self._foreign_pods.news(pod for pod in foreign_pods if pod not in left_over):
            self._record_event(event)

    async def _handle_vanished(self, pod: PodFact) -> None:
        """Delete a worker without its label, signature or owner: it would train unseen."""
        with suppress(NotFound):
            raw = await self._api.get(f"{self._pods_path}/{pod.name}")
            self._around.pods.learn(raw)  # the watch may lag: the pod may be marked again
            ours = {other.uid for other in self._pods()}
            if raw["metadata"]["uid"] == pod.uid and pod.uid not in ours:
                await self._delete_pod(pod, "it is no longer marked as a worker")
                self._record_event(self._foreign_pods.disowned(pod))
        self._around.pods.looked_after(pod)

    def _ready_since(self, status: TrainRunStatus) -> dict[str, datetime]:
        named = {i.node for i in (status.incident, *status.incidents) if i is not None}
        nodes = (self._around.pods.node(name) for name in named)
        return {
            node.name: node.ready_since
            for node in nodes
            if node is not None and node.ready == "True" and node.ready_since is not None
        }

    async def _stale_leases(
        self, contacts: Mapping[str, AgentContact], timeout: timedelta
    ) -> dict[str, timedelta]:
        if not self._around.reads_nodes:
            return {}
        silent = {
            pod.node
            for pod in self._pods()
            if pod.node
            and pod.phase == "Running"
            and pod.name in contacts
            and contacts[pod.name].state is not None
            and contacts[pod.name].silent_for * SUSPICIOUS > timeout
        }
        if silent:
            self._wake(1.0)  # judging a Lease takes more than one read
        return await self._leases.stale(silent)

    async def _read_run(self) -> None:
        """Raises StatusUnwritable if the run cannot be read."""
        before = self._run.current.number
        try:
            raw = await self._api.get(self._run.path)
            self._around.learn_run(raw, before)
        except NotFound:
            self._run.deleted = True
        except KubeError as error:
            raise StatusUnwritable(f"the run cannot be read: {error}") from error
        else:
            if self._run.current.number == before != number_of(raw):
                message = "the run cannot be read: a newer operator may have written it"
                raise StatusUnwritable(message)

    # ------------------------------------------------------------------------------- writing

    async def _create(self, action: CreateWorker) -> None:
        if not self._refusals.may_try(action.slot):
            return
        version = self._observed  # the plan is based on it; a newer one may be edited
        try:
            async with self._around.written.turn(version.trimmed):
                await self._make(action, version)
        except AlreadyExists:
            await self._adopt_existing(action)
        except KubeError as error:  # a quota, a policy, a webhook that is down: only for this slot
            self._refused(action, error)
        else:
            self._refusals.clear(action.slot)

    async def _make(self, action: CreateWorker, version: ManagedVersion) -> None:
        """Raises KubeError."""
        spec, place = await self._written(version), self._around.place
        body = worker_pod(spec.run, version.config, spec.template, action, place)
        made = await self._api.post(self._pods_path, body, guard=self._guard)
        self._around.pods.learn(made)

    async def _written(self, version: ManagedVersion) -> RunVersion:
        """This version as its user wrote it. Raises KubeError, and Conflict if the API server has
        another version by now, which the watch will bring."""
        written = self._around.written.get(version.trimmed) or version.written()
        if written is None and version is not self._outdated:
            raw = await self._api.get(self._run.path)
            written = run_version(raw) if trimmed(raw).digest == version.trimmed.digest else None
        if written is None:
            self._outdated = version
            raise Conflict("the API server no longer has the spec in use: edit the run again")
        self._around.written.put(version.trimmed, written)
        return written

    def _refused(self, action: CreateWorker, error: KubeError) -> None:
        pause = self._refusals.record(action, reason_of(error), error.message)
        _log.warning("%s was refused: %s", action.name, error)
        self._wake(pause)
        self._wake(0.0)  # so that it is reported

    async def _adopt_existing(self, action: CreateWorker) -> None:
        """A pod of this name exists: usually ours, created by a call whose answer got lost."""
        try:
            found = await self._api.get(f"{self._pods_path}/{action.name}")
        except KubeError as error:
            self._refused(action, error)
            return
        self._around.pods.learn(found)
        if any(pod.name == action.name for pod in self._pods()):
            self._refusals.clear(action.slot)
            self._wake(0.0)
            return
        message = f"pod {action.name} exists but does not belong to this run; delete it"
        self._wake(self._refusals.record(action, "NameTaken", message))

    async def _delete(self, action: DeleteWorker) -> None:
        pod = next((pod for pod in self._pods() if pod.name == action.name), None)
        if pod is None:
            return
        # By force: its node cannot confirm the end; the attempt number fences what still runs.
        await self._delete_pod(pod, action.reason, force=action.force)
        if action.reason == MAKES_ROOM:
            message = f"the ended worker {pod.name} was deleted with its logs: {MAKES_ROOM}"
            self._record_event(Event(type="Warning", reason="QuotaExceeded", message=message))
            self._refusals.try_again("QuotaExceeded")
            self._wake(FIRST_PAUSE)

    async def _delete_pod(self, pod: PodFact, why: str, *, force: bool = False) -> None:
        _log.info("deleting pod %s/%s: %s", pod.namespace, pod.name, why)
        pods = self._around.pods
        await delete_pod(pod, api=self._api, pods=pods, guard=self._guard, force=force)

    async def _delete_run(self) -> None:
        # Only the observed version: an edit since then may let the run continue.
        observed = self._observed
        body = {
            "preconditions": {"uid": observed.uid, "resourceVersion": str(observed.number)},
            "propagationPolicy": "Background",
        }
        try:
            await self._api.delete(self._run.path, body=body, guard=self._guard)
        except NotFound:
            self._run.deleted = True
        except Conflict:
            self._status_uncertain = True
            self._wake(0.0)

    @property
    def _pods_path(self) -> str:
        return f"/api/v1/namespaces/{self._run.current.namespace}/pods"
