"""What libraries say of a peer that went away, or that was never met, each in its own words."""

from __future__ import annotations

import pytest

from tests.support.builders import a_run
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.losses import Loss, losses_of

WENT_AWAY = [
    "RuntimeError: Connection reset by peer",
    "RuntimeError: [gloo] Connection closed by peer [10.0.0.7]:4711",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "RuntimeError: Software caused: connection was aborted",
    "RuntimeError: the operation was aborted due to an error of another rank",
    "torch.distributed.DistBackendError: Socket Timeout",
    "OSError: [Errno 113] No route to host",
    "TimeoutError: [Errno 110] Connection timed out",
    "OSError: [Errno 101] Network is unreachable",
    "RuntimeError: Gloo connectFullMesh failed with an error of a pair",
    "RuntimeError: Timed out waiting 1800000ms for send operation to complete",
    "RuntimeError: failed to recv, got 0 bytes",
    "torch.distributed.DistBackendError: NCCL error: ncclRemoteError: a peer has left",
    "torch.distributed.DistBackendError: NCCL error: ncclSystemError: call failed",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3",
    "RuntimeError: Watchdog caught collective operation timeout: ALLREDUCE",
]

NOT_MET = [
    "OSError: [Errno 98] Address already in use",
    "RuntimeError: bind: EADDRINUSE",
    "RuntimeError: the server socket has failed to bind to [::]:29500",
    "RuntimeError: the server socket has failed to listen on any local address",
    "XlaRuntimeError: UNKNOWN: Failed to start RPC server",
    "RuntimeError: The client socket has timed out after 300000ms",
    "RuntimeError: The client socket has failed to connect to any address",
    "RuntimeError: Timed out after 301 seconds, waiting for clients; 1/2 joined",
    "torch.distributed.DistError: the store is not there",
    "torch.distributed.DistNetworkError: the store is not there",
    "torch.distributed.DistStoreError: the store is not there",
]


def the_loss(exception: str, *, step: int | None, **end: object) -> Loss:
    scene = a_run().running().with_all(steps=(step,)).with_exit(0, exception=exception, **end)
    (loss,) = losses_of(scene.view)
    return loss


@pytest.mark.parametrize("text", WENT_AWAY)
def test_a_rank_whose_peer_went_away_is_no_culprit(text: str) -> None:
    loss = the_loss(text, step=4)
    assert (loss.cause, loss.collateral) == (Cause.APP_ERROR, True)


@pytest.mark.parametrize("text", WENT_AWAY)
def test_a_watchdog_that_aborts_for_a_peer_makes_no_culprit_either(text: str) -> None:
    loss = the_loss("", step=4, signal=6, last_lines=("before", text, "after"))
    assert (loss.cause, loss.collateral) == (Cause.APP_ERROR, True)


def test_a_rank_that_another_signal_kills_after_such_a_text_is_a_culprit() -> None:
    assert not the_loss(WENT_AWAY[0], step=4, signal=11).collateral


@pytest.mark.parametrize("text", NOT_MET)
def test_ranks_that_do_not_find_each_other_have_failed_to_meet(text: str) -> None:
    loss = the_loss(text, step=None)
    assert (loss.cause, loss.collateral) == (Cause.RENDEZVOUS_FAILED, False)


@pytest.mark.parametrize(
    ("text", "step", "waited"),
    [
        ("RuntimeError: Timed out waiting 1800000ms for send operation to complete", 4, True),
        ("torch.distributed.DistBackendError: Socket Timeout", 4, True),
        ("RuntimeError: 301 seconds gone waiting for clients; 1/2 joined", None, True),
        ("RuntimeError: Connection reset by peer", 4, False),
        ("RuntimeError: the client socket has failed to connect to any address", None, False),
        ("ValueError: the download of shard 7 timed out", 4, False),
    ],
)
def test_only_who_waited_for_a_peer_until_its_patience_was_over_may_have_a_late_peer(
    text: str, step: int | None, *, waited: bool
) -> None:
    assert the_loss(text, step=step).waited is waited


@pytest.mark.parametrize("text", [*WENT_AWAY[:1], "ValueError: bad batch"])
def test_another_error_before_the_first_step_is_the_scripts(text: str) -> None:
    assert the_loss(text, step=None).cause is Cause.APP_ERROR


@pytest.mark.parametrize("name", ["AgentRefused", "StagingFailed"])
def test_what_the_library_raises_for_the_storage_is_an_error_of_the_storage(name: str) -> None:
    assert the_loss(f"{name}: the disk is full", step=4).cause is Cause.STORAGE_ERROR
