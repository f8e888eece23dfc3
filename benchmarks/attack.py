"""A run crashes and recovers while somebody attacks the operator; bounded, on loopback.

    python -m benchmarks.attack [--rounds N] [NAME ...]

Method: a real API server, the real operator as a process of its own, the agents of one run as real
processes that have fetched their agent from it (`benchmarks/port/pods.py` stands in for kubelets;
it needs root). In each round one training process gets SIGKILL, then one pod is deleted; a recovery
ends when all processes of the next attempt run their first line. This is timed without an attack
before and after, during each attack of `benchmarks/port/attacks.py` on the agents' port, and under
a new operator among the objects of each case of `benchmarks/port/objects.py`, which somebody has
made in another namespace. Printed are medians, their ratio to those without an attack, and the most
memory that the operator has had, which may be LARGEST. Times have no bound: a busy machine gives
other figures, and the attackers share it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.image import memory_settings
from benchmarks.local_job import machine
from benchmarks.port.attacks import ATTACKS
from benchmarks.port.objects import NAMESPACE, OBJECTS, create, delete
from benchmarks.port.pods import Pods
from tests.kube.api_server import ApiServer
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.kube.api import KubeApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[1]
REPLICAS = 4
ROUNDS = 5
PATIENCE = 60.0
"""Seconds until a recovery is given up."""
LARGEST = 300
"""Megabytes that the operator may need, whatever strangers write."""
SETTLING = 3.0
"""Seconds between the begin of an attack and the first fault."""
SYSTEM, TEAM, ACCOUNT = "trainrun-system", "team", "default"
SERVICE = "trainrun-agents"
ALL = [*ATTACKS, *OBJECTS]

SCRIPT = """
import os, time
rank, folder = os.environ["RANK"], {folder!r}
with open(f"{{folder}}/new-{{rank}}", "w") as file:
    file.write(f"{{time.time()}} {{os.getpid()}}")
os.replace(f"{{folder}}/new-{{rank}}", f"{{folder}}/rank-{{rank}}")
time.sleep(3600)
"""


@dataclass(slots=True, kw_only=True)
class WorkerObservation:
    """The run, the operator, and what is needed to disturb both."""

    api: KubeApi
    folder: Path
    archive: Path
    port: int
    health_port: int
    operator: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Another operator, which takes over from the one before."""
        self.operator = start_operator(self.folder, self.archive, self.port, self.health_port)

    def stop(self) -> None:
        """End the operator."""
        self.operator.terminate()
        try:
            self.operator.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.operator.kill()
            self.operator.wait()

    async def restart(self) -> None:
        """One without a past, which reads all that is there before it leads."""
        self.stop()
        self.start()
        deadline = time.time() + PATIENCE
        while not await asyncio.to_thread(self._is_ready):
            assert time.time() < deadline, (self.folder / "operator.log").read_text()[-3000:]
            await asyncio.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def mark(self, rank: int) -> tuple[float, int]:
        """When the newest process of a rank began, and its id."""
        try:
            began, pid = (self.folder / "marks" / f"rank-{rank}").read_text().split()
        except FileNotFoundError:
            return 0.0, 0
        return float(began), int(pid)

    async def all_begun_since(self, moment: float) -> float:
        """Seconds from `moment` until all processes had begun anew."""
        deadline = time.time() + PATIENCE
        while (begun := [self.mark(rank)[0] for rank in range(REPLICAS)]) and min(begun) < moment:
            if time.time() > deadline:
                return PATIENCE
            await asyncio.sleep(0.005)
        return max(begun) - moment

    async def crash(self) -> float:
        """Kill a training process."""
        moment = time.time()
        os.kill(self.mark(1)[1], signal.SIGKILL)
        return await self.all_begun_since(moment)

    async def replace(self) -> float:
        """Delete a worker: the next one has to fetch its agent and to show its token."""
        pod = (await self.pods())[0]["metadata"]["name"]
        moment = time.time()
        body = {"gracePeriodSeconds": 0}
        await self.api.delete(f"/api/v1/namespaces/{TEAM}/pods/{pod}", body=body)
        return await self.all_begun_since(moment)

    async def pods(self) -> list[dict[str, Any]]:
        """Those of the run that run."""
        found = await self.api.list_all(f"/api/v1/namespaces/{TEAM}/pods")
        return [pod for pod in found if pod["status"].get("phase") == "Running"]

    def megabytes(self) -> float:
        """The most resident memory that the operator has had."""
        log = (self.folder / "operator.log").read_text()
        assert self.operator.poll() is None, f"the operator has ended:\n{log[-3000:]}"
        status = Path(f"/proc/{self.operator.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[WorkerObservation]:
    """Everything up, and the run training."""
    server = ApiServer(directory=folder / "apiserver")
    server.directory.mkdir()
    server.prepare()
    server.start_etcd()
    server.start()
    kubeconfig = server.kubeconfig(folder / "kubeconfig")
    server.kubectl("apply", "--server-side", "--filename", str(ROOT / "crds"))
    server.kubectl("wait", "--for=condition=Established", f"crd/{TRAINRUN.plural}.trainrun.dev")
    archive = folder / "agent.zip"
    subprocess.run([sys.executable, ROOT / "worker_image/inject/build.py", archive], check=True)
    os.environ["KUBECONFIG"] = str(kubeconfig)
    api = await KubeApi.connect()
    for name in (SYSTEM, TEAM, NAMESPACE):
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await api.post("/api/v1/nodes", {"metadata": {"name": "here"}})
    account = {"metadata": {"name": ACCOUNT}}
    for name in (TEAM, NAMESPACE):
        await api.post(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    found = WorkerObservation(
        api=api, folder=folder, archive=archive, port=free_port(), health_port=free_port()
    )
    pods = Pods(
        api=api,
        namespace=TEAM,
        account=ACCOUNT,
        folder=folder / "pods",
        operator=f"{SERVICE}.{SYSTEM}.svc",
    )
    running = asyncio.create_task(pods.run())
    try:
        await api.post(TRAINRUN.path(TEAM), a_trainrun(folder))
        took = await found.all_begun_since(1.0)
        assert took != PATIENCE, (folder / "operator.log").read_text()[-3000:]
        yield found
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pods.stop()
        found.stop()
        await api.close()
        server.close()


def start_operator(
    folder: Path, archive: Path, agent_port: int, health_port: int
) -> subprocess.Popen[bytes]:
    """As in its image."""
    environment = {
        **os.environ,
        **memory_settings(),
        "POD_NAME": "operator",
        "POD_NAMESPACE": SYSTEM,
        "POD_IP": "127.0.0.1",
        "TRAINRUN_SERVICE": SERVICE,
        "TRAINRUN_AGENT_PORT": str(agent_port),
        "TRAINRUN_HEALTH_PORT": str(health_port),
        "TRAINRUN_AGENT_ARCHIVE": str(archive),
        "TRAINRUN_NODES": "false",
    }
    with (folder / "operator.log").open("ab") as log:
        command = [sys.executable, "-m", "trainrun_operator.cluster.app"]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def a_trainrun(folder: Path) -> dict[str, Any]:
    """Workers that do nothing but say when they have begun."""
    marks, script = folder / "marks", folder / "train.py"
    marks.mkdir()
    script.write_text(SCRIPT.format(folder=str(marks)))
    container = {"name": "worker", "image": "none", "command": [sys.executable, str(script)]}
    template = {"spec": {"serviceAccountName": ACCOUNT, "containers": [container]}}
    return {
        **TRAINRUN.head(),
        "metadata": {"name": "run"},
        "spec": {
            "workers": {"replicas": REPLICAS, "template": template},
            "storage": {"uri": f"file://{folder}/storage"},
            # Not -1: that ends a run whose crashes bring no step, as these do.
            "failurePolicy": {"maxFailures": 1000, "backoff": {"initial": "0s"}},
        },
    }


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one attack, or of none."""

    crash: list[float]
    replace: list[float]
    megabytes: float


async def measure(found: WorkerObservation, rounds: int, name: str = "") -> Figures:
    """Crash and recover so many times while this attack goes on; without a name, none does."""
    crash: list[float] = []
    replace: list[float] = []
    pod = (await found.pods())[-1]["metadata"]
    async with attack(found, name, pod) if name else nullcontext() as process:
        await asyncio.sleep(SETTLING)
        for _ in range(rounds):
            crash.append(await found.crash())
            replace.append(await found.replace())
            assert process is None or process.poll() is None, "the attack has ended"
        return Figures(crash=crash, replace=replace, megabytes=found.megabytes())


@asynccontextmanager
async def attack(
    found: WorkerObservation, name: str, pod: dict[str, Any]
) -> AsyncIterator[subprocess.Popen[bytes] | None]:
    """It goes on meanwhile."""
    if name in OBJECTS:
        await create(found.api, name)
        await found.restart()
        yield None
        await delete(found.api, name)
        return
    target = [str(found.port), TEAM, pod["name"], pod["uid"]]
    command = [sys.executable, "-m", "benchmarks.port.attacks", name, *target]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def run(names: list[str], rounds: int) -> None:
    """Print a line for each attack."""
    with tempfile.TemporaryDirectory() as folder:
        async with scene(Path(folder)) as found:
            await measure(found, 1)  # the first recovery loads what the next ones have
            calm = [await measure(found, rounds)]
            during: dict[str, Figures] = {}
            for name in names:
                during[name] = await measure(found, rounds, name)
                print(f"{name}: {during[name]}", file=sys.stderr, flush=True)
            calm.append(await measure(found, rounds))
    usual = Figures(
        crash=[*calm[0].crash, *calm[1].crash],
        replace=[*calm[0].replace, *calm[1].replace],
        megabytes=calm[1].megabytes,
    )
    print(machine())
    print(f"{'attack':14} {'a crash':>20} {'a deleted worker':>20} {'operator':>10}")
    for name, figures in {"none": usual, **during}.items():
        parts = [
            f"{median(times):.2f} s = {median(times) / median(base):.2f} x"
            for times, base in ((figures.crash, usual.crash), (figures.replace, usual.replace))
        ]
        verdict = "   TOO MUCH" if figures.megabytes > LARGEST else ""
        print(f"{name:14} {parts[0]:>20} {parts[1]:>20} {figures.megabytes:>7.0f} MB{verdict}")


def main() -> None:
    """Attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    asyncio.run(run(options.names or ALL, options.rounds))


if __name__ == "__main__":
    main()
