"""A small stand-in for scheduler and kubelets: pods run as soon as they are made, and go when told.

It watches the pods of one namespace. A new one is bound to a node, gets its token, is shown as
running, and its agent begins to live; one that is deleted goes at once. Garbage is not collected.
"""

from __future__ import annotations

import ssl
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.on_fleet.agent import Client, FleetAgent, Leader
from benchmarks.port.pods import running
from trainrun.agent import background
from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import KubeError, NotFound
from trainrun_operator.worlds.kubernetes.names import AUDIENCE, RUN_UID_LABEL

Json = dict[str, Any]

PODS_OF_A_NODE = 8
TOKEN_SECONDS = 24 * 3600


@dataclass(slots=True, kw_only=True)
class Kubelets:
    """Those of all nodes."""

    api: KubeApi
    namespace: str
    account: str
    nodes: int
    leader: Leader
    agents: dict[str, FleetAgent] = field(default_factory=dict)
    """By the uid of the pod."""
    _seen: set[str] = field(default_factory=set)
    _number: int = 0
    _tls: dict[str, ssl.SSLContext] = field(default_factory=dict)
    """By the authority's certificate."""

    async def run(self) -> None:
        """For ever."""
        path, version = f"/api/v1/namespaces/{self.namespace}/pods", "0"
        while True:
            params = {"labelSelector": RUN_UID_LABEL, "resourceVersion": version}
            with suppress(KubeError):
                async with aclosing(self.api.stream(path, params=params)) as events:
                    async for event in events:
                        if event["type"] == "ERROR":
                            version = "0"
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._changed(event["type"], event["object"])

    def _changed(self, kind: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._end(uid)
        elif "deletionTimestamp" in pod["metadata"]:
            self._end(uid)
            background.run(self._gone(pod))
        elif uid not in self._seen:
            self._seen.add(uid)
            self._number += 1
            background.run(self._begin(pod, self._number))

    async def _begin(self, pod: Json, number: int) -> None:
        metadata, container = pod["metadata"], pod["spec"]["containers"][0]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}"
        node = f"node-{number // PODS_OF_A_NODE % self.nodes}"
        address = f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"
        binding = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": node}}
        try:
            await self.api.post(f"{path}/binding", binding)
            token = await self._token(metadata)
            bound = await self.api.get(path)
            status = {**running(container["name"]), "podIP": address}
            await self.api.put(f"{path}/status", {**bound, "status": status})
        except KubeError:
            return  # it was deleted meanwhile
        config = _config(container, node, address)
        tls = self._tls.get(config.ca) or ssl.create_default_context(cadata=config.ca)
        self._tls[config.ca] = tls
        agent = FleetAgent(
            config=config,
            connect=lambda way: Client(config, token, tls, self.leader, way),
            left=lambda: self._end(metadata["uid"]),
        )
        self.agents[metadata["uid"]] = agent
        await agent.live()

    def _end(self, uid: str) -> None:
        agent = self.agents.pop(uid, None)
        if agent is not None:
            background.run(agent.heartbeat.stop())

    async def _gone(self, pod: Json) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        with suppress(NotFound):
            await self.api.delete(path, body={"gracePeriodSeconds": 0})

    async def _token(self, metadata: Json) -> str:
        head = {"kind": "Pod", "apiVersion": "v1"}
        reference = {**head, "name": metadata["name"], "uid": metadata["uid"]}
        spec = {
            "audiences": [AUDIENCE],
            "expirationSeconds": TOKEN_SECONDS,
            "boundObjectRef": reference,
        }
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"
        return str((await self.api.post(path, {"spec": spec}))["status"]["token"])


def _config(container: Json, node: str, address: str) -> AgentConfig:
    """What the agent of a real pod reads."""
    values = {
        entry["name"]: entry["value"].replace("$$", "$")
        for entry in container["env"]
        if "value" in entry
    }
    values |= {variables.POD_IP: address, variables.NODE_NAME: node}
    return AgentConfig.read(values, [])
