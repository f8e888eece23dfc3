"""What the page in a cluster costs with many TrainRuns: memory, the list, the first paint.

    python -m benchmarks.cluster_page [--runs N] [--namespaces N]

Method: a real API server with N TrainRuns that have a status, spread over the namespaces, and the
page as the chart starts it. Seconds are CPU seconds of the page's own process, from /proc: of the
start until all are listed, and of one answer (the median of 20), for the administrator and for a
user who may read one namespace and is asked about in all. Memory is the most that it ever had.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from benchmarks.local_job import cpu_seconds, machine
from benchmarks.on_fleet.meter import megabytes, yardstick
from tests.cli.viewing.tenants import a_tenant
from tests.kube.api_server import ADMIN_TOKEN, ApiServer
from tests.support.s3_server import free_port
from tests.support.trainruns import TrainRuns
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.api.run.status_parts import Progress
from trainrun_operator.kube.api import KubeApi

ANSWERS = 20
SPEC = {
    "storage": {"uri": "s3://bucket/prefix"},
    "workers": {
        "replicas": 8,
        "template": {"spec": {"containers": [{"name": "worker", "image": "a", "command": ["b"]}]}},
    },
}


async def furnish(api: KubeApi, *, runs: int, namespaces: int) -> str:
    """All runs; returns the token of one tenant."""
    tenants = [await a_tenant(api) for _ in range(namespaces)]

    async def one(number: int) -> None:
        path = TRAINRUN.path(tenants[number % namespaces].namespace)
        head = {**TRAINRUN.head(), "metadata": {"name": f"run-{number:04d}"}}
        raw = await api.post(path, {**head, "spec": SPEC})
        progress = Progress(step=number, metrics={"loss": 1 / (number + 1), "lr": 0.001})
        status = TrainRunStatus(phase="Running", attempt=1, progress=progress)
        name = raw["metadata"]["name"]
        await api.put(f"{path}/{name}/status", {**raw, "status": json_object(status)})

    for start in range(0, runs, 20):
        await asyncio.gather(*(one(number) for number in range(start, min(start + 20, runs))))
    return tenants[0].token


async def measure(pid: int, url: str, token: str, *, runs: int) -> None:
    """Print what one reader's list costs."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        seconds, text = [], ""
        for _ in range(ANSWERS):
            before, began = cpu_seconds(pid), time.monotonic()
            async with session.get(url) as answer:
                assert answer.status == 200, await answer.text()
                text = await answer.text()
            seconds.append((cpu_seconds(pid) - before, time.monotonic() - began))
        assert f"{runs:,} run" in text, text[:2000]
        cpu = sum(cpu for cpu, _ in seconds) / ANSWERS
        wall = [wall for _, wall in seconds]
        size = len(text.encode()) / 1000
        print(
            f"{runs:5} runs shown: {cpu:.3f} s of CPU an answer, {wall[0]:.2f} s the first, "
            f"{statistics.median(wall):.3f} s the median; {size:.0f} KB, "
            f"{len(gzip.compress(text.encode())) / 1000:.0f} KB compressed"
        )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--namespaces", type=int, default=20)
    asked = parser.parse_args()
    print(f"{machine()}; yardstick {yardstick():.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        server = ApiServer(directory=Path(folder) / "apiserver")
        server.directory.mkdir()
        server.prepare()
        server.start_etcd()
        server.start()
        os.environ["KUBECONFIG"] = str(server.kubeconfig(Path(folder) / "kubeconfig"))
        page: subprocess.Popen[bytes] | None = None
        try:
            TrainRuns(server, "default").install()
            async with KubeApi.connected() as api:
                token = await furnish(api, runs=asked.runs, namespaces=asked.namespaces)
            port = free_port()
            variables = {**os.environ, "TRAINRUN_PAGE": json.dumps({"port": port})}
            began = time.monotonic()
            command = [sys.executable, "-m", "trainrun_operator.cli.cluster_page"]
            page = subprocess.Popen(command, env=variables)
            url = f"http://127.0.0.1:{port}/"
            await listed(url)
            print(
                f"all are listed: {cpu_seconds(page.pid):.2f} s of CPU, "
                f"{time.monotonic() - began:.2f} s"
            )
            await measure(page.pid, url, ADMIN_TOKEN, runs=asked.runs)
            await measure(page.pid, url, token, runs=asked.runs // asked.namespaces)
            print(f"memory: {megabytes(page.pid, 'VmHWM'):.0f} MB at most")
        finally:
            if page is not None:
                page.terminate()
                page.wait()
            server.close()
    return 0


async def listed(url: str) -> None:
    """Wait until nothing is read any more."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if "Still reading." not in await answer.text():
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
