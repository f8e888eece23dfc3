"""What `helm test` runs in a pod: one small TrainRun, from its creation to its end.

Layer: cluster; a process of its own. Variables: TRAINRUN, the TrainRun as JSON, whose metadata has
name and namespace; TIMEOUT, seconds until it must have succeeded. Its life is told from its status:
its storage is in its pod. Exit code 0: it succeeded, and recovered from the failure that it makes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus, status_from
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import NotFound

PAUSE = 0.5
"""Seconds between two looks."""


async def lived(run: Mapping[str, Any], timeout: float) -> TrainRunStatus:
    """Create the run, in place of one that an earlier test has left, and wait until it is over.

    Returns its last status, also where `timeout` seconds were not enough. Raises KubeError, and
    SystemExit if a user has a run of this name.
    """
    namespace, name = run["metadata"]["namespace"], run["metadata"]["name"]
    path, status = TRAINRUN.path(namespace, name), TrainRunStatus()
    async with KubeApi.connected() as api:
        with suppress(NotFound):
            labels = run["metadata"]["labels"].items()
            found = (await api.get(path))["metadata"]
            if not labels <= found.get("labels", {}).items():
                sys.exit(f"{namespace} has a TrainRun {name} that a user made: delete or rename it")
            while True:
                await api.delete(path)
                await asyncio.sleep(PAUSE)
        await api.post(TRAINRUN.path(namespace), run)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not status.finished:
                    await asyncio.sleep(PAUSE)
                    status = status_from((await api.get(path)).get("status", {}))
    return status


def verdict(status: TrainRunStatus) -> str:
    """What is wrong with the end of the run; "": nothing."""
    if status.phase != "Succeeded":
        return f"the run is {status.phase} {status.reason}".rstrip() + ", and not Succeeded"
    if status.restarts != 1:
        return f"the run was restarted {status.restarts} times, and not once"
    if status.incidents[-1].resumed_from is None:
        return "the run began again without its checkpoint"
    return ""


def story(status: TrainRunStatus) -> str:
    """What the status tells of its attempts, and where the time went: a line for each."""
    lines = []
    for one in status.incidents:
        lines.append(f"attempt {one.attempt} ended: {one.message} ({one.cause})")
        if one.resumed_from is not None and one.recovery_seconds is not None:
            stages = _seconds(one.stages)
            begun = f"the next one continued from step {one.resumed_from.step}"
            lines.append(f"{begun}, {one.recovery_seconds:.1f} s after the loss: {stages}")
    lines.append(f"time went into: {_seconds(status.spent)}")
    return "\n".join(lines)


def _seconds(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())


def main() -> None:
    """Exit 1 with one sentence where the run did not do what it should."""
    run = json.loads(os.environ["TRAINRUN"])
    status = asyncio.run(lived(run, float(os.environ["TIMEOUT"])))
    sys.stdout.write(f"{story(status)}\n")
    if wrong := verdict(status):
        name, namespace = run["metadata"]["name"], run["metadata"]["namespace"]
        sys.exit(f"{wrong}: kubectl -n {namespace} describe trainrun {name}")
    sys.stdout.write("the run lost its rank, continued from its checkpoint, and succeeded\n")


if __name__ == "__main__":
    main()
