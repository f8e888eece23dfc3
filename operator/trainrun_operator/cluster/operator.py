"""The lifecycle of an operator process: wiring, start, leadership, shutdown.

Layer: cluster. Order at the start: list once everything that can be listed, acquire the Lease,
refresh and follow the caches, lead the runs, and only then publish the address. A process that lost
its Lease exits: a fresh process is simpler than a reset. It waits while the API server is down, at
the start too: an exit would prolong the outage by the kubelet's growing restart backoff.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from trainrun_operator.cluster.ca import Authority
from trainrun_operator.cluster.endpoint import publish_endpoint, service_place, withdraw_endpoint
from trainrun_operator.cluster.manager import RunManager
from trainrun_operator.cluster.metrics import Metrics, serve_health
from trainrun_operator.cluster.pod_tokens import pod_tokens, review
from trainrun_operator.cluster.settings import Settings
from trainrun_operator.cluster.sweeping.clerks import Clerks
from trainrun_operator.cluster.sweeping.manager import SweepManager
from trainrun_operator.cluster.watch import RunWatch
from trainrun_operator.core.run.boundary import Event
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.kube.events import EventRecorder
from trainrun_operator.kube.informer import Informer, ListState
from trainrun_operator.kube.lease import Lease, LeaseLost
from trainrun_operator.runtime.agent_archive import AgentArchive
from trainrun_operator.runtime.agent_server import AgentServer
from trainrun_operator.runtime.agents import silence_grace
from trainrun_operator.worlds.kubernetes.installation import LEASE_NAME
from trainrun_operator.worlds.kubernetes.names import AUDIENCE
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact, is_ours, key_id
from trainrun_operator.worlds.kubernetes.render import OperatorPlace
from trainrun_operator.worlds.kubernetes.world import WorldDependencies

REPUBLISH = 60.0
"""Seconds between two checks that our address is still published."""
SILENCE = 600.0
"""Seconds without an event, bookmark or list after which a cache is unhealthy. Far longer than any
normal silence: an outage of the API server is not our failure."""

_log = logging.getLogger(__name__)


class Operator:
    """All parts of one operator process."""

    def __init__(self, settings: Settings, *, api: KubeApi, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._api = api
        self._authority: Authority | None = None
        self._opened = asyncio.Event()
        """Set once the authority is read: informers need it to recognize our pods."""
        self._start_trouble = "the CA of the agents has not been read yet"
        """What the start waits for, apart from lists."""
        self._service: tuple[str, ...] = ()
        """The address of the Service itself."""
        self._leading = False
        self._recorder = EventRecorder(api)
        self._node_recorder = EventRecorder(api, optional=True)
        self._pods = PodIndex(
            api,
            namespaces=settings.namespaces,
            nodes=settings.nodes,
            signed=lambda pod: self._is_ours(pod, pod.run_uid),
            on_change=self._wake,
        )
        self._lease = Lease(
            api=api,
            namespace=settings.namespace,
            name=LEASE_NAME,
            identity=settings.identity,
            address=settings.place,
        )
        self._server = AgentServer(
            authenticate=pod_tokens(
                review=lambda token: review(api, token, AUDIENCE),
                find=self._find,
                is_ours=self._is_ours,
            ),
            serving=self._leads,
            operators=self._operators,
            archive=AgentArchive(Path(settings.agent_archive)),
        )
        self._manager = RunManager(
            installation=settings.installation,
            server=self._server,
            metrics=metrics,
            record=self._record,
            record_on_node=self._record_on_node,
        )
        self.watch = RunWatch(
            api,
            namespaces=settings.namespaces,
            seen=self._manager.seen,
            gone=self._manager.gone,
        )
        self._sweeps = SweepManager(
            api,
            namespaces=settings.namespaces,
            exchanges=self._server.clerks,
            record=self._record,
            runs=self.watch,
        )
        metrics.listings = self._listings

    # ----------------------------------------------------------------------------- lifecycle

    async def run(self, stopped: asyncio.Event) -> int:
        """Run until `stopped` (returns 0) or until leadership is lost (returns 1)."""
        health = await serve_health(
            host="0.0.0.0",
            port=self._settings.health_port,
            alive=self.trouble,
            ready=self._unready,
            unread=self._unread,
            registry=self._metrics.registry,
        )
        background = [
            asyncio.create_task(work)
            for work in (
                *(self._run_informer(informer) for informer in self._pods.informers),
                *(informer.run() for informer in self._sweeps.index.informers),
                self._recorder.run(),
                self._node_recorder.run(),
                self.watch.run(),
                self._find_service(),
            )
        ]
        leading = asyncio.create_task(self._lead())
        stopping = asyncio.create_task(stopped.wait())
        tasks = [leading, stopping, *background]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code = 0 if stopped.is_set() else 1
        await self._end(tasks)
        await health.cleanup()
        return code

    async def _lead(self) -> None:
        """Take the Lease when it is free, and lead until it is lost."""
        self._authority = authority = await self._open_authority()
        self._start_trouble = ""
        self._opened.set()
        host = self._settings.host
        tls = authority.server_context([host, f"{host}.cluster.local"], [])
        await self._server.start("0.0.0.0", port=self._settings.agent_port, tls=tls)
        await self.watch.listed.wait()
        await self._pods.settle()
        await self._lease.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._lease.keep())
                self._pods.follow()
                await self._pods.settle()
                around = self._world_dependencies(authority)
                self._start_leading(around)
                group.create_task(self._publish())
                clerks = Clerks(around, self._settings.clerk_image)
                group.create_task(self._sweeps.lead(clerks, around))
        except* LeaseLost as lost:
            _log.error("%s; exiting, so that a new process starts", lost.exceptions[0])
        finally:
            self._leading = False

    def _start_leading(self, around: WorldDependencies) -> None:
        grace = silence_grace(
            since_outage=self._api.since_outage, vacant_for=self._lease.vacant_for
        )
        after = f", after an outage; agents' silence counts in {grace:.0f} s" if grace else ""
        _log.info("%s leads now%s", self._settings.identity, after)
        self._leading = True
        self._metrics.leads(leading=True)
        self._manager.lead(around, grace=grace)

    async def _open_authority(self) -> Authority:
        """Raises AuthorityBroken."""
        while True:
            try:
                return await Authority.open(self._api, namespace=self._settings.namespace)
            except KubeError as error:
                self._start_trouble = f"cannot read the secret with the CA of the agents: {error}"
                _log.warning(self._start_trouble)
                await asyncio.sleep(random.uniform(1.0, 3.0))

    async def _run_informer(self, informer: Informer[Any]) -> None:
        await self._opened.wait()
        await informer.run()

    def _find(self, namespace: str, name: str) -> PodFact | None:
        """A pod of a listed namespace: an agent of an unlisted run must wait instead of getting
        the answer that its run is gone."""
        return self._pods.find(namespace, name) if self.watch.knows(namespace) else None

    def _is_ours(self, pod: PodFact, run_uid: str) -> bool:
        return self._authority is not None and is_ours(pod, run_uid, self._authority.signing_key)

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        await self._manager.stop()
        await self._sweeps.stop()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error("a task of the operator failed", exc_info=outcome)
        await self._server.stop()
        await self._withdraw()
        await self._lease.release()
        await self._recorder.flush()
        await self._api.close()

    async def _withdraw(self) -> None:
        """Withdraw the address before another operator leads: agents without a leader retry at
        once."""
        if not self._lease.is_valid():
            return
        settings = self._settings
        try:
            async with asyncio.timeout(2.0):
                await withdraw_endpoint(
                    self._api,
                    namespace=settings.namespace,
                    service=settings.service,
                    address=settings.address,
                )
        except (KubeError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            _log.info("the leader's address was not withdrawn: %s", why)

    def _leads(self) -> bool:
        return self._leading and self._lease.is_valid()

    def _operators(self) -> tuple[str, ...]:
        """Addresses to reach the leader: operators' addresses change, the Service's does not."""
        addresses = self._lease.addresses
        return (*addresses, *self._service) if addresses else ()

    def _world_dependencies(self, authority: Authority) -> WorldDependencies:
        settings = self._settings
        return WorldDependencies(
            api=self._api,
            pods=self._pods,
            reads_nodes=settings.nodes,
            place=OperatorPlace(
                url=settings.url,
                operators=self._operators,
                ca_pem=authority.ca_pem,
                signing_key=authority.signing_key,
                certify=authority.node_certificate,
            ),
            notices=settings.notice_taints,
            leads=self._leads,
            learn_run=self.watch.learn,
            installation=replace(settings.installation, key=key_id(authority.signing_key)),
        )

    async def _find_service(self) -> None:
        settings = self._settings
        while True:
            try:
                found = await service_place(
                    self._api,
                    namespace=settings.namespace,
                    service=settings.service,
                    port=settings.agent_port,
                )
                self._service = (found,) if found else ()
            except KubeError as error:
                _log.warning("the address of the agents' Service cannot be read: %s", error)
            await asyncio.sleep(REPUBLISH)

    async def _publish(self) -> None:
        """Publish the leader's address, and again if it was changed."""
        while True:
            try:
                await publish_endpoint(
                    self._api,
                    namespace=self._settings.namespace,
                    service=self._settings.service,
                    address=self._settings.address,
                    port=self._settings.agent_port,
                )
            except KubeError as error:
                _log.warning("the leader's address could not be published: %s", error)
                await asyncio.sleep(1.0)
            else:
                await asyncio.sleep(REPUBLISH)

    # --------------------------------------------------------------------------- its runs

    def _wake(self, uid: str) -> None:
        self._manager.wake(uid)
        self._sweeps.wake(uid)

    def _record(self, about: Mapping[str, Any], event: Event, time: datetime) -> None:
        self._recorder.record(about, event.type, event.reason, event.message, time=time)

    def _record_on_node(self, node: str, event: Event, time: datetime) -> None:
        if self._settings.nodes:
            # As in the kubelet's events the uid is the name: `kubectl describe node` needs that.
            about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "uid": node}}
            self._node_recorder.record(about, event.type, event.reason, event.message, time=time)

    # ------------------------------------------------------------------------------- probes

    def trouble(self) -> str:
        """What is wrong with this process, as a sentence; empty: nothing."""
        silent = [i for i in self._pods.informers if i.synced.is_set() and i.silent_for() > SILENCE]
        return f"{len(silent)} watches received nothing for {SILENCE:.0f} s" if silent else ""

    def _unready(self) -> str:
        if self._authority is not None and not self.watch.listed.is_set():
            return "TrainRuns have not been listed yet"
        if trouble := self._start_trouble or self._lease.refusal:
            return trouble
        return "" if self._pods.settled else "pods and nodes have not been listed yet"

    def _listings(self) -> tuple[ListState, ...]:
        informers = (*self._pods.informers, *self._sweeps.index.informers)
        return (*self.watch.listings, *(informer.listing for informer in informers))

    def _unread(self) -> str:
        """Unreadable lists, a line each; the operator works with the others."""
        troubles = {
            listing.path: listing.trouble for listing in self._listings() if listing.trouble
        }
        return "\n".join(f"cannot be read: {path}: {why}" for path, why in troubles.items())
