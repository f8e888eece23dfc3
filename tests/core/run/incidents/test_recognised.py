"""Errors that many scripts die of are told with what helps, and each loss with how it is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.losses import Loss, losses_of


def the_loss(scene: WorkerObservation) -> Loss:
    (loss,) = losses_of(scene.view)
    return loss


@pytest.mark.case(
    "decisions", "A process dies of a known CUDA, NCCL or DataLoader error", counted="its cause"
)
@pytest.mark.parametrize(
    ("exception", "remedy"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
            "the memory of its GPU is full: lower the batch",
        ),
        ("RuntimeError: CUDA error: out of memory", "the memory of its GPU is full"),
        (
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.",
            "a DataLoader's worker was killed, most likely because memory ran out",
        ),
        (
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. ",
            "mount an emptyDir with medium: Memory at /dev/shm",
        ),
        (
            "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly",
            "its own error is further up",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclUnhandledCudaError",
            "look for an earlier error of this rank",
        ),
        (
            "torch.AcceleratorError: CUDA error: device-side assert triggered",
            "mostly for an index out of range",
        ),
        (
            "DistBackendError: ncclInvalidUsage: Duplicate GPU detected",
            "give each process its own GPU",
        ),
    ],
)
def test_an_error_that_is_known_is_told_with_what_helps(exception: str, remedy: str) -> None:
    loss = the_loss(a_run().running().with_exit(1, exception=exception))
    assert loss.message.startswith(f"rank 1 exited with code 1: {exception}; ")
    assert remedy in loss.message
    assert (loss.cause, loss.collateral) == (Cause.APP_ERROR, False)


def test_a_bus_error_names_the_shared_memory() -> None:
    loss = the_loss(a_run().running().with_exit(1, code=135, signal=7))
    assert loss.message.startswith("rank 1 was killed by SIGBUS; shared memory is most likely full")


def test_a_python_that_finds_no_library_names_pythonhome() -> None:
    lines = ("ModuleNotFoundError: No module named 'encodings'", "  <no Python frame>")
    loss = the_loss(a_run().running().with_exit(1, code=1, last_lines=lines))
    assert loss.message.endswith(
        "its output:   <no Python frame>; PYTHONHOME names the folder of a Python that is not "
        "the command's: unset it"
    )


def test_a_peer_that_nccl_misses_is_collateral_and_has_no_remedy_of_its_own() -> None:
    loss = the_loss(a_run().running().with_exit(1, exception="DistBackendError: ncclRemoteError"))
    assert loss.collateral
    assert loss.message == "rank 1 exited with code 1: DistBackendError: ncclRemoteError"


def test_the_rank_whose_gpu_is_full_is_the_culprit_and_not_the_peers_that_miss_it() -> None:
    scene = a_run(max_failures=1).running()
    scene = scene.with_exit(0, exception="DistBackendError: ncclRemoteError", age=9.0)
    scene = scene.with_exit(1, exception="torch.OutOfMemoryError: CUDA out of memory", age=1.0)
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.rank, incident.collateral) == (1, False)


@pytest.mark.parametrize(
    ("end", "known_by"),
    [
        ({"code": 3}, "the process's exit code, which its agent has read"),
        ({"signal": 11}, "the signal in the process's exit status, which its agent has read"),
        (
            {"oom": True},
            "the OOM counter of the worker's memory cgroup, which rose when the process died",
        ),
        ({"exception": "ValueError: x"}, "the last traceback in the process's output"),
        (
            {"exception": "ValueError: x", "kinds": ("ValueError", "Exception")},
            "the exception that the process reported to its agent before it ended",
        ),
    ],
)
def test_an_incident_says_why_it_was_possible_to_know(end: dict[str, Any], known_by: str) -> None:
    incident = a_run(max_failures=1).running().with_exit(1, **end).plan.status.incident
    assert incident is not None
    assert incident.known_by == known_by


def test_a_silent_worker_is_known_by_the_heartbeats_that_do_not_come() -> None:
    loss = the_loss(a_run().running().silent(1, 40.0))
    assert loss.known_by == "missing heartbeats"


def test_what_the_world_knows_is_known_by_its_own_account() -> None:
    loss = the_loss(a_run().running().lost(1, Cause.NODE_LOST))
    assert loss.known_by == "what the cluster reports about the worker and its node"
