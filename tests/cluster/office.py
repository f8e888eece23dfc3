"""A manager of runs that does not lead, and TrainRuns as lists show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import aiohttp

from tests.runtime.states import a_state
from trainrun_operator.cluster.manager import RunManager
from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.core.run.installation import Installation
from trainrun_operator.core.run.plan import Event
from trainrun_operator.runtime.agent_server import AgentServer, shared_token


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

    def _record(self, _raw: Mapping[str, Any], event: Event, _time: datetime) -> None:
        self.events.append(event)

    def lists(self, *raws: Mapping[str, Any]) -> None:
        """These are all TrainRuns."""
        known = self.manager.uids()
        for each in raws:
            self.manager.listed(each, known_before=known)
        versions = {it["metadata"]["uid"]: int(it["metadata"]["resourceVersion"]) for it in raws}
        self.manager.relisted(versions, known_before=known)

    def max_failures(self) -> list[int]:
        return [config.limits["failures"] for _, config in self.manager.states()]

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
