"""A real API server, two real operators as processes of their own, and the load's process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.attack import free_port
from benchmarks.image import memory_settings
from tests.kube.api_server import ApiServer
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.kube.api import KubeApi

Json = dict[str, Any]
Process = subprocess.Popen[bytes]

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Before a command: a bench that is ended leaves nothing behind that would slow the next one."""

ROOT = Path(__file__).parents[2]
SYSTEM, TEAM, ACCOUNT = "trainrun-system", "team", "default"
SERVICE = "trainrun-agents"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices/{SERVICE}-leader"
NODES = 200
PREFERENCE = -15
"""Niceness of operators, API server and etcd, where we may: in a cluster nobody else uses what an
operator has requested; here it stands in one queue with the load, and with other work."""


@dataclass(slots=True, kw_only=True)
class WorkerObservation:
    """What runs, and how to ask it."""

    api: KubeApi
    server: ApiServer
    operators: dict[str, Process]
    """By their address."""
    load: asyncio.subprocess.Process
    folder: Path

    async def ask(self, what: str, *arguments: Any) -> Any:
        """Let the load's process do something."""
        assert self.load.stdin is not None
        assert self.load.stdout is not None
        self.load.stdin.write(json.dumps({"do": what, "with": arguments}).encode() + b"\n")
        line = await self.load.stdout.readline()
        assert line, "the load's process has ended"
        return json.loads(line)

    async def leader(self) -> Process:
        """The operator that leads."""
        found = await self.api.get(SLICE)
        return self.operators[found["endpoints"][0]["addresses"][0]]

    async def start(self, name: str, replicas: int) -> None:
        """Create a run."""
        await self.api.post(TRAINRUN.path(TEAM), a_trainrun(name, replicas))

    async def until_training(self, agents: int, patience: float) -> None:
        """Wait until so many agents train."""
        deadline = time.monotonic() + patience
        while (found := await self.ask("count"))["training"] < agents:
            assert time.monotonic() < deadline, f"{found}: {self.log()}"
            await asyncio.sleep(0.2)

    async def counted(self) -> Json:
        """What was counted, and which attempt runs, for each run."""
        runs = await self.api.list_all(TRAINRUN.path(TEAM))
        return {
            run["metadata"]["name"]: {
                key: run["status"].get(key) for key in ("attempt", "failures", "incidents")
            }
            for run in runs
        }

    def log(self) -> str:
        """What the operators said last."""
        files = sorted(self.folder.glob("operator-*.log"))
        return "\n".join(file.read_text()[-2000:] for file in files)

    def pids(self) -> list[int]:
        """Of everything that belongs to it."""
        own = [self.server.etcd, self.server.process, *self.operators.values()]
        return [process.pid for process in own if process is not None] + [self.load.pid]


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[WorkerObservation]:
    """Everything up, and no run."""
    server = ApiServer(directory=folder / "apiserver")
    server.directory.mkdir(parents=True)
    server.prepare()
    with suppress(PermissionError):  # all threads of what is started now inherit it
        os.setpriority(os.PRIO_PROCESS, 0, PREFERENCE)
    server.start_etcd()
    server.start()
    operators: dict[str, Process] = {}
    load = None
    os.environ["KUBECONFIG"] = str(server.kubeconfig(folder / "kubeconfig"))
    api = await KubeApi.connect()
    try:
        await _furnish(api, server)
        archive = folder / "agent.zip"
        subprocess.run([sys.executable, ROOT / "worker_image/inject/build.py", archive], check=True)
        for number in (2, 3):
            address = f"192.0.2.{number}"  # which leads to this machine, see Client
            operators[address] = _start_operator(folder, archive, address)
        load = await _start_load(folder)
        found = WorkerObservation(
            api=api, server=server, operators=operators, load=load, folder=folder
        )
        while not await _leads(found):
            await asyncio.sleep(0.2)
        yield found
    finally:
        if load is not None:
            load.kill()
            await load.wait()
        for process in operators.values():
            process.kill()
            process.wait()
        await api.close()
        server.close()


async def _furnish(api: KubeApi, server: ApiServer) -> None:
    server.kubectl("apply", "--server-side", "--filename", str(ROOT / "crds"))
    server.kubectl("wait", "--for=condition=Established", f"crd/{TRAINRUN.plural}.trainrun.dev")
    for name in (SYSTEM, TEAM):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    account = {"metadata": {"name": ACCOUNT}}
    await api.post(f"/api/v1/namespaces/{TEAM}/serviceaccounts", account)
    ready = {"type": "Ready", "status": "True"}
    for number in range(NODES):
        node = {"metadata": {"name": f"node-{number}"}, "status": {"conditions": [ready]}}
        await api.post("/api/v1/nodes", node)


def _start_operator(folder: Path, archive: Path, address: str) -> Process:
    environment = {
        **os.environ,
        **memory_settings(),
        "POD_NAME": f"operator-{address}",
        "POD_NAMESPACE": SYSTEM,
        "POD_IP": address,
        "TRAINRUN_SERVICE": SERVICE,
        "TRAINRUN_AGENT_PORT": str(free_port()),
        "TRAINRUN_HEALTH_PORT": str(free_port()),
        "TRAINRUN_AGENT_ARCHIVE": str(archive),
    }
    with (folder / f"operator-{address}.log").open("wb") as log:
        command = [*DIES_WITH_US, sys.executable, "-m", "trainrun_operator.cluster.app"]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


async def _start_load(folder: Path) -> asyncio.subprocess.Process:
    host = f"{SERVICE}.{SYSTEM}.svc"
    arguments = [TEAM, ACCOUNT, str(NODES), SLICE, host]
    with (folder / "load.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *DIES_WITH_US,
            *(sys.executable, "-m", "benchmarks.on_fleet.load", *arguments),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            limit=1 << 24,
        )


async def _leads(found: WorkerObservation) -> bool:
    for address, process in found.operators.items():
        assert process.poll() is None, f"operator {address} has ended: {found.log()}"
    slices = await found.api.list_all(SLICE.rpartition("/")[0])
    return bool(slices)


def a_trainrun(name: str, replicas: int) -> Json:
    """Its workers train until they are killed."""
    container = {"name": "worker", "image": "none", "command": ["python", "train.py"]}
    template = {"spec": {"serviceAccountName": ACCOUNT, "containers": [container]}}
    return {
        **TRAINRUN.head(),
        "metadata": {"name": name},
        "spec": {
            "workers": {"replicas": replicas, "template": template},
            "storage": {"uri": "s3://bench"},
            "failurePolicy": {"maxFailures": -1, "backoff": {"initial": "0s"}},
        },
    }
