"""The operator put together: caches, leadership, agents' server, runs, probes.

Layer: runtime. Order at the start: everything listed once, Lease held, caches fresh and followed,
runs led, and only then the address published. A process that has lost its Lease ends: a fresh one
is simpler than a second life. An API server that is away is waited for, at the start too: ending
would only lengthen the outage by the kubelet's growing pauses between restarts.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from trainrun_operator.api.resource import API_VERSION, PLURAL
from trainrun_operator.core.plan import Event
from trainrun_operator.runtime.agent_server import AgentServer
from trainrun_operator.runtime.health import serve_health
from trainrun_operator.runtime.manager import RunManager
from trainrun_operator.runtime.metrics import Metrics
from trainrun_operator.runtime.pod_tokens import pod_tokens
from trainrun_operator.runtime.settings import Settings
from trainrun_operator.worlds.kubernetes.api import KubeApi
from trainrun_operator.worlds.kubernetes.ca import Authority
from trainrun_operator.worlds.kubernetes.endpoint import publish_endpoint, withdraw_endpoint
from trainrun_operator.worlds.kubernetes.errors import KubeError
from trainrun_operator.worlds.kubernetes.events import EventRecorder, ObjectRef
from trainrun_operator.worlds.kubernetes.lease import Lease, LeaseLost
from trainrun_operator.worlds.kubernetes.names import AUDIENCE
from trainrun_operator.worlds.kubernetes.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.pods import PodFact
from trainrun_operator.worlds.kubernetes.render import OperatorPlace
from trainrun_operator.worlds.kubernetes.seal import is_ours
from trainrun_operator.worlds.kubernetes.token_review import review
from trainrun_operator.worlds.kubernetes.world import Surroundings

LEASE_NAME = "trainrun-operator"

RELIST = 60.0
"""Seconds between two lists of all TrainRuns: heals a deletion that the watch has lost."""
SILENCE = 600.0
"""Seconds without an event, bookmark or list from the API server that a healthy cache may have.
Far longer than it can be quiet while all is well: outages of the API server are not ours."""
AFTERMATH = 45.0
"""Seconds after an outage of the API server in which an operator that begins to lead takes no
silence for a loss: kube-proxy may lead agents to the one before for as long as it waits between its
tries (30 s), and kubelets seem to be gone until they are through again."""

_log = logging.getLogger(__name__)


class Operator:
    """Everything of one process."""

    def __init__(self, settings: Settings, *, api: KubeApi, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._api = api
        self._authority: Authority | None = None
        self.listed = asyncio.Event()
        """All TrainRuns have been listed once: the CRD is there."""
        self._leading = False
        self._recorder = EventRecorder(api)
        self._pods = PodIndex(
            api,
            namespaces=settings.namespaces,
            nodes=settings.nodes,
            on_change=self._wake,
        )
        self._lease = Lease(
            api, namespace=settings.namespace, name=LEASE_NAME, identity=settings.identity
        )
        self._server = AgentServer(
            authenticate=pod_tokens(
                review=lambda token: review(api, token, AUDIENCE),
                find=self._pods.find,
                is_ours=self._is_ours,
            ),
            serving=self._leads,
            archive=Path(settings.agent_archive),
        )
        self.manager = RunManager(
            server=self._server,
            metrics=metrics,
            record=self._record,
        )

    # ------------------------------------------------------------------------------ its life

    async def run(self, stopped: asyncio.Event) -> int:
        """Until `stopped` (0) or until leadership is lost (1)."""
        health = await serve_health(
            host="0.0.0.0",
            port=self._settings.health_port,
            alive=self._trouble,
            ready=self._unready,
            registry=self._metrics.registry,
        )
        background = [
            asyncio.create_task(work)
            for work in (
                *(informer.run() for informer in self._pods.informers),
                self._recorder.run(),
                self._relist(),
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
        host = self._settings.host
        tls = authority.server_context([host, f"{host}.cluster.local"], [])
        await self._server.start("0.0.0.0", port=self._settings.agent_port, tls=tls)
        await self.listed.wait()
        await self._pods.synced()
        await self._lease.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._lease.keep())
                self._pods.follow()
                await self._pods.synced()
                self._begin(authority)
                group.create_task(self._publish())
        except* LeaseLost as lost:
            _log.error("%s; ending, so that a fresh process can follow", lost.exceptions[0])
        finally:
            self._leading = False

    def _begin(self, authority: Authority) -> None:
        grace = max(0.0, AFTERMATH - self._api.since_outage)
        after = f", after an outage; silence counts in {grace:.0f} s" if grace else ""
        _log.info("%s leads now%s", self._settings.identity, after)
        self._leading = True
        self._metrics.leads(leading=True)
        self.manager.lead(self._surroundings(authority), grace=grace)

    async def _open_authority(self) -> Authority:
        """Raises AuthorityBroken."""
        while True:
            try:
                return await Authority.open(self._api, namespace=self._settings.namespace)
            except KubeError as error:
                _log.warning("the secret with the CA of the agents: %s", error)
                await asyncio.sleep(random.uniform(1.0, 3.0))

    def _is_ours(self, pod: PodFact, run_uid: str) -> bool:
        return self._authority is not None and is_ours(pod, run_uid, self._authority.seal_key)

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        await self.manager.stop()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error("ended by an error", exc_info=outcome)
        await self._server.stop()
        await self._withdraw()
        await self._lease.release()
        await self._recorder.flush()
        await self._api.close()

    async def _withdraw(self) -> None:
        """Before another one leads: agents that find nobody ask again at once."""
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

    def _surroundings(self, authority: Authority) -> Surroundings:
        settings = self._settings
        return Surroundings(
            api=self._api,
            pods=self._pods,
            reads_nodes=settings.nodes,
            place=OperatorPlace(
                url=settings.url,
                ca_pem=authority.ca_pem,
                seal_key=authority.seal_key,
            ),
            notices=settings.notice_taints,
            leads=self._leads,
        )

    async def _publish(self) -> None:
        """Tell agents where the leader is, and again if somebody changes it."""
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
                await asyncio.sleep(RELIST)

    # --------------------------------------------------------------------------- the runs

    def _wake(self, uid: str) -> None:
        self.manager.wake(uid)

    def trainrun_changed(self, kind: str | None, raw: Mapping[str, Any]) -> None:
        """The watch saw this object; `kind` is ADDED, MODIFIED, DELETED, or None in a list."""
        if kind == "DELETED":
            self.manager.gone(raw["metadata"]["uid"])
        else:
            self.manager.seen(raw)

    async def _relist(self) -> None:
        while True:
            try:
                objects, known = {}, self.manager.uids()
                for namespace in self._settings.namespaces or ("",):
                    scope = f"namespaces/{namespace}/" if namespace else ""
                    path = f"/apis/{API_VERSION}/{scope}{PLURAL}"
                    for raw in await self._api.list_all(path):
                        objects[raw["metadata"]["uid"]] = raw
                self.manager.relisted(objects, known_before=known)
                self.listed.set()
                pause = random.uniform(0.8, 1.2) * RELIST
            except KubeError as error:
                _log.warning("TrainRuns cannot be listed: %s", error)
                pause = random.uniform(1.0, 3.0)
            await asyncio.sleep(pause)

    def _record(self, raw: Mapping[str, Any], event: Event, time: datetime) -> None:
        metadata = raw["metadata"]
        self._recorder.record(
            run=ObjectRef(
                namespace=metadata["namespace"],
                name=metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            ),
            type=event.type,
            reason=event.reason,
            message=event.message,
            time=time,
        )

    # ------------------------------------------------------------------------------- probes

    def _trouble(self) -> str:
        silent = [i for i in self._pods.informers if i.synced.is_set() and i.last_heard() > SILENCE]
        return f"{len(silent)} watches have not been heard for {SILENCE:.0f} s" if silent else ""

    def _unready(self) -> str:
        if self._authority is None:
            return "the CA of the agents has not been read yet"
        if not self.listed.is_set():
            return "TrainRuns have not been listed yet"
        late = sum(not informer.synced.is_set() for informer in self._pods.informers)
        return f"{late} caches are not whole yet" if late else ""
