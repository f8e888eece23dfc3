"""The load's process: all pods and their agents; told what to do by lines of JSON on stdin.

    python -m benchmarks.on_fleet.load KUBECONFIG_IN_ENV NAMESPACE ACCOUNT NODES SLICE HOST

Each line is a command and its arguments, each answer a line. `count` tells how things stand,
`crash` ends a process in each of these runs and tells, for each, the seconds until all of its
agents have their next start order (null: not within the time), `heard` the seconds from a moment
until every agent had been answered again (null: not yet all).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections import defaultdict
from contextlib import suppress

import uvloop

from benchmarks.on_fleet.agent import FleetAgent, Leader
from benchmarks.on_fleet.kubelets import Kubelets
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import KubeError

ROUTE_EVERY = 0.2
"""Seconds between two looks at where the Service leads: kube-proxy takes about as long."""
LOOK_EVERY = 0.01


class Load:
    """Everything of this process."""

    def __init__(self, kubelets: Kubelets, path: str) -> None:
        """`path` of the EndpointSlice that the Service leads by."""
        self._kubelets = kubelets
        self._path = path

    async def run(self) -> None:
        """Until stdin ends."""
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(work)
            for work in (self._kubelets.run(), self._route(), self._tick(), self._obey())
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()

    async def _route(self) -> None:
        leader = self._kubelets.leader
        while True:
            with suppress(KubeError):
                found = await self._kubelets.api.get(self._path)
                leader.port = found["ports"][0]["port"]
            await asyncio.sleep(ROUTE_EVERY)

    async def _tick(self) -> None:
        """Each agent once a second, spread over the second as their clocks are."""
        while True:
            agents = list(self._kubelets.agents.values())
            for part in range(10):
                for agent in agents[part::10]:
                    agent.tick(time.monotonic())
                await asyncio.sleep(0.1)

    async def _obey(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            name, arguments = command["do"], command.get("with", [])
            print(json.dumps(await getattr(self, f"_{name}")(*arguments)), flush=True)

    async def _count(self) -> dict[str, int]:
        agents = self._kubelets.agents.values()
        training = [agent for agent in agents if agent.training]
        return {
            "agents": len(agents),
            "training": len(training),
            "runs": len({agent.config.run for agent in training}),
            "attempts": sum(agent.desired.attempt for agent in agents),
        }

    async def _heard(self, moment: float) -> float | None:
        """`moment` is on the clock that all processes of a machine share."""
        heard = [agent.heard for agent in self._kubelets.agents.values()]
        return max(heard) - moment if heard and min(heard) > moment else None

    async def _crash(self, runs: list[str], patience: float) -> list[float | None]:
        gangs: dict[str, list[FleetAgent]] = defaultdict(list)
        for agent in self._kubelets.agents.values():
            gangs[agent.config.run].append(agent)
        moment = time.monotonic()
        attempts = {run: gangs[run][0].desired.attempt for run in runs}
        for run in runs:
            gangs[run][-1].crash()

        def took(run: str) -> float | None:
            starts = [agent.started.get(attempts[run] + 1) for agent in gangs[run]]
            known = [at for at in starts if at is not None]
            return max(known) - moment if len(known) == len(starts) else None

        while time.monotonic() < moment + patience and None in map(took, runs):
            await asyncio.sleep(LOOK_EVERY)
        return [took(run) for run in runs]


async def main() -> None:
    """Connect, and obey."""
    namespace, account, nodes, path, host = sys.argv[1:]
    api = await KubeApi.connect()
    kubelets = Kubelets(
        api=api, namespace=namespace, account=account, nodes=int(nodes), leader=Leader(host)
    )
    await Load(kubelets, path).run()


if __name__ == "__main__":
    os.nice(10)  # after what it puts under load
    logging.getLogger("trainrun.agent").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
