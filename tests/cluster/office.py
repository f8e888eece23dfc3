"""A manager of runs that does not lead, and TrainRuns as lists show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from tests.runtime.states import a_state
from trainrun_operator.cluster.manager import RunManager
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.cluster.watch import RunWatch
from trainrun_operator.core.run.boundary import Event, Installation
from trainrun_operator.runtime.agent_server import AgentServer, shared_token
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.render import OperatorPlace
from trainrun_operator.worlds.kubernetes.world import WorldDependencies

if TYPE_CHECKING:
    from trainrun_operator.cluster.sweeping.manager import SweepManager
    from trainrun_operator.kube.api import KubeApi


def surroundings(
    api: KubeApi, *namespaces: str, manager: RunManager | SweepManager, runs: RunWatch
) -> WorldDependencies:
    """Those of an operator that leads, in a cluster in which each pod is sealed."""
    pods = PodIndex(
        api,
        namespaces=namespaces,
        nodes=False,
        signed=lambda _pod: True,
        on_change=manager.wake,
    )
    return WorldDependencies(
        api=api,
        pods=pods,
        reads_nodes=False,
        place=OperatorPlace(url="https://operator", ca_pem="", signing_key=b"key"),
        notices=(),
        leads=lambda: True,
        learn_run=runs.learn,
    )


def raw(name: str = "run", *, uid: str = "uid-1", version: int = 1, **spec: Any) -> dict[str, Any]:
    """A TrainRun as it stands in a list: without apiVersion and kind."""
    container = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "generation": version,
            "resourceVersion": str(version),
        },
        "spec": {
            "workers": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            "storage": {"uri": "s3://bucket/runs"},
            **spec,
        },
    }


class Office:
    """A manager that does not lead, and what it recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.server = AgentServer(authenticate=shared_token("token"))
        self.manager = RunManager(
            installation=Installation(name="ours"),
            server=self.server,
            metrics=Metrics(),
            record=self._record,
        )
        self.watch = self.watching(cast("KubeApi", None))

    def watching(self, api: KubeApi, *namespaces: str) -> RunWatch:
        """What the manager hears of."""
        self.watch = RunWatch(
            api, namespaces=namespaces, seen=self.manager.seen, gone=self.manager.gone
        )
        return self.watch

    def around(self, api: KubeApi, *namespaces: str) -> WorldDependencies:
        """What its runs are led in."""
        return surroundings(api, *namespaces, manager=self.manager, runs=self.watch)

    def _record(self, _raw: Mapping[str, Any], event: Event, _time: datetime) -> None:
        self.events.append(event)

    def sees(self, *raws: dict[str, Any]) -> None:
        """So says a watch, or an answer."""
        for each in raws:
            self.watch.changed("MODIFIED", each)

    def uids(self) -> set[str]:
        """Of the runs that are known."""
        return {
            mark.uid
            for place in self.watch._places.values()
            for mark in place._cache.items.values()
        }

    def max_failures(self) -> list[int]:
        return [config.limits["failures"] for _, _, config, _ in self.manager.states()]

    async def status_for(self, uid: str) -> int:
        """What the agent of a worker of this run is answered."""
        port = await self.server.start("127.0.0.1")
        state = replace(a_state(), run_uid=uid)
        try:
            async with (
                aiohttp.ClientSession(headers={"Authorization": "Bearer token"}) as session,
                session.post(
                    f"http://127.0.0.1:{port}/v1/heartbeat", data=state.to_json()
                ) as response,
            ):
                return response.status
        finally:
            await self.server.stop()
