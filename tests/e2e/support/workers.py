"""What is done to the workers of a run, where it does not matter how."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed.faults import pods, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.support.cluster_run import ClusterRun

TRAINING = r"^python3 /scripts/(counting|searched)\.py"
"""The command line of a training process, which the agent runs."""


def training_processes(run: ClusterRun, slot: int) -> list[processes.Process]:
    """The training processes of a worker, at most one; it can be ended without an API server."""
    name = run.pod(slot)["metadata"]["name"]
    found = processes.processes(run.bed.cluster, name, namespace=run.bed.namespace)
    return [process for process in found if re.search(TRAINING, process.command)]


def kill_training(run: ClusterRun, slot: int) -> None:
    """kill -9 of the training process of a worker."""
    (process,) = training_processes(run, slot)
    kill(run, process)


@contextmanager
def about_to_kill_training(run: ClusterRun, slot: int) -> Iterator[Callable[[], None]]:
    """Yield a function that does so within milliseconds, to see what comes of it at once."""
    name = run.pod(slot)["metadata"]["name"]
    where = {"matching": TRAINING, "namespace": run.bed.namespace}
    with processes.about_to_kill(run.bed.cluster, name, **where) as strike:
        yield strike


def kill_worker(run: ClusterRun, slot: int) -> None:
    """kill -9 of all processes of a worker, the agent among them: its pod ends."""
    name = run.pod(slot)["metadata"]["name"]
    processes.kill(run.bed.cluster, name, namespace=run.bed.namespace)


def kill(run: ClusterRun, process: processes.Process) -> None:
    """kill -9."""
    run.bed.cluster.node(process.node).run("kill", "-9", str(process.pid))


def delete_pod(run: ClusterRun, slot: int) -> None:
    """`kubectl delete pod`, without waiting for its end."""
    name = run.pod(slot)["metadata"]["name"]
    pods.delete(run.bed.cluster, name, namespace=run.bed.namespace)
