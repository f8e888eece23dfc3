"""A sweep that is led on a real API server; its clerk is a stand-in that keeps the log in memory,
and nobody leads the runs of its trials."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.office import surroundings
from trainrun.sweep.clerk import next_record
from trainrun.sweep.records import LogEntry, Record
from trainrun.sweep.view import SweepView, apply
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweepSpec
from trainrun_operator.cluster.sweeping.clerks import Clerks
from trainrun_operator.cluster.sweeping.manager import SweepManager
from trainrun_operator.cluster.watch import RunWatch
from trainrun_operator.core.run.boundary import Event
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import ClerkState
from trainrun_operator.core.sweep.config import search_of
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import Informer
from trainrun_operator.runtime.clerk_exchange import ClerkExchange, ClerkExchanges
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage

CRD = Path(__file__).parents[3] / "crds" / TRAINSWEEP.file_name
NAME = "search"


def watched_runs(api: KubeApi, *namespaces: str) -> RunWatch:
    """The TrainRuns, which nobody leads."""
    return RunWatch(api, namespaces=namespaces, seen=lambda _raw: None, gone=lambda _uid: None)


def kopfs_watch(api: KubeApi, namespace: str, runs: RunWatch) -> Informer[dict[str, Any]]:
    """Stands for it."""

    def tell(before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if after is not None:
            runs.changed("MODIFIED", after)
        elif before is not None:
            runs.changed("DELETED", before)

    return Informer(
        api,
        path=TRAINRUN.path(namespace),
        params={},
        project=lambda raw: raw,
        key=lambda raw: str(raw["metadata"]["name"]),
        on_change=tell,
    )


@dataclass
class KeptLog:
    """What the store holds: it outlives clerks and operators."""

    records: list[Record] = field(default_factory=list)
    view: SweepView = field(default_factory=SweepView)
    trouble: ClerkUnknown | None = None
    deaf: bool = False
    """No clerk gets as far as to call."""

    async def serve(self, exchange: ClerkExchange) -> None:
        """As a clerk does, for ever."""
        state = ClerkState(sweep_uid=exchange.sweep_uid)
        while True:
            orders = await exchange.answer(state, wait=0.2)
            if orders.targets is not None and self.trouble is None:
                search = search_of(TrainSweepSpec.model_validate(orders.spec))
                while record := next_record(self.view, orders.targets, search):
                    self.records.append(record)
                    self.view = apply(self.view, record)
            sent_after = orders.known
            state = ClerkState(
                sweep_uid=exchange.sweep_uid,
                position=len(self.records),
                sent_after=sent_after,
                records=tuple(LogEntry(it) for it in self.records[sent_after:]),
                trouble=self.trouble,
                seen=orders.digest,
            )
            exchange.hear(state)
            await asyncio.sleep(0.02)


@dataclass
class Led:
    """One operator, as far as sweeps concern it."""

    api: KubeApi
    namespace: str
    log: KeptLog
    events: list[Event] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def operator(self) -> AsyncIterator[None]:
        """Leads all sweeps of the namespace, until it is killed."""
        exchanges = _Desks()
        runs = watched_runs(self.api, self.namespace)
        manager = SweepManager(
            self.api,
            namespaces=[self.namespace],
            exchanges=exchanges,
            record=lambda _raw, event, _time: self.events.append(event),
            runs=runs,
        )
        around = surroundings(self.api, self.namespace, manager=manager, runs=runs)
        watch = kopfs_watch(self.api, self.namespace, runs)
        reading = [*around.pods.informers, *manager.index.informers, watch, runs]
        tasks = [asyncio.create_task(each.run()) for each in reading]
        try:
            around.pods.follow()
            watch.follow()
            await manager.lead(Clerks(around, ClerkImage(image="ours")), around)
            tasks.append(asyncio.create_task(self._clerk(exchanges)))
            yield
        finally:
            await manager.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _clerk(self, exchanges: _Desks) -> None:
        """Begins wherever one has a desk to report to."""
        serving: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                for exchange in exchanges.open.values():
                    if id(exchange) not in serving and not self.log.deaf:
                        serving[id(exchange)] = asyncio.create_task(self.log.serve(exchange))
                await asyncio.sleep(0.02)
        finally:
            for task in serving.values():
                task.cancel()

    # ------------------------------------------------------------------------- its objects

    async def apply(self, **spec: Any) -> None:
        """Create the sweep."""
        container = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
        # This server has no controller that gives pods a service account.
        pod = {"serviceAccountName": "trainer", "containers": [container]}
        body = {
            **TRAINSWEEP.head(),
            "metadata": {"name": NAME, "namespace": self.namespace},
            "spec": {
                "storage": {"uri": "s3://bucket/sweeps"},
                "objective": {"metric": "loss", "goal": "minimize"},
                "space": [{"name": "lr", "float": {"low": 0.001, "high": 0.1}}],
                "budget": {"trials": 4},
                "maxUnplaced": 9,
                "run": {"workers": {"template": {"spec": pod}}},
                **spec,
            },
        }
        await self.api.post(TRAINSWEEP.path(self.namespace), body)

    async def edit(self, **spec: Any) -> None:
        path = TRAINSWEEP.path(self.namespace, NAME)
        found = await self.api.get(path)
        await self.api.put(path, {**found, "spec": {**found["spec"], **spec}})

    async def status(self) -> dict[str, Any]:
        found = await self.api.get(TRAINSWEEP.path(self.namespace, NAME))
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message; empty where there is none."""
        found = {it["type"]: it for it in (await self.status()).get("conditions", ())}
        it = found.get(kind, {})
        return it.get("status", ""), it.get("reason", ""), it.get("message", "")

    async def clerk_ready(self) -> tuple[str, str, str]:
        """That condition."""
        return await self.condition("ClerkReady")

    async def trials(self) -> dict[str, Any]:
        """The TrainRuns, by name."""
        found = await self.api.get(TRAINRUN.path(self.namespace))
        return {it["metadata"]["name"]: it for it in found["items"]}

    async def end_trial(self, name: str, *, reason: str = "", message: str = "") -> None:
        """As who leads the run does: with success, or with a failure."""
        path = TRAINRUN.path(self.namespace, name)
        kind = "Failed" if reason else "Complete"
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason or "Succeeded",
            "message": message,
            "lastTransitionTime": "2026-11-01T00:00:00Z",
        }
        phase = "Failed" if reason else "Succeeded"
        body = {**await self.api.get(path), "status": {"phase": phase, "conditions": [condition]}}
        await self.api.put(f"{path}/status", body)

    async def clerks(self) -> dict[str, Any]:
        """The pods of clerks, by name."""
        found = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods")
        return {it["metadata"]["name"]: it for it in found["items"]}

    async def set_pod(self, name: str, **status: Any) -> None:
        """As the kubelet does."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        body = {**await self.api.get(path), "status": status}
        await self.api.put(f"{path}/status", body)


class _Desks(ClerkExchanges):
    """Remembers which are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, ClerkExchange] = {}

    def add(self, exchange: ClerkExchange) -> None:
        self.open[exchange.sweep_uid] = exchange
        super().add(exchange)

    def remove(self, uid: str) -> None:
        self.open.pop(uid, None)
        super().remove(uid)


async def becomes(look: Any, holds: Any, what: str, *, timeout: float = 30.0) -> Any:
    """What an asynchronous look finds, once this holds of it."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not holds(found := await look()):
        assert asyncio.get_running_loop().time() < deadline, f"{what}: {found}"
        await asyncio.sleep(0.05)
    return found
