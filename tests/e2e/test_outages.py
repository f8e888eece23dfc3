"""The servers that everything leans on are away for a while: runs wait, and nobody is lost."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from testbed.faults import servers
from tests.e2e.support.incidents import succeeded, training
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.operator_process import OperatorProcess
from tests.e2e.support.workers import (
    about_to_kill_training,
    delete_pod,
    kill,
    kill_training,
    training_processes,
)
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.cluster import Cluster
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = pytest.mark.cluster

STEPS_MEANWHILE = 150
"""At least 15 seconds of training, many times what an agent may be silent for."""


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[LastingRun]:
    """Three workers that train until the last test of this file; the tests take them in turn."""
    with a_lasting_run(
        installation.cluster,
        "outages",
        args=["--together"],
        failurePolicy={"maxFailures": 20, "maxPreemptions": 20, "backoff": {"initial": "0s"}},
        health={"heartbeatTimeout": "10s"},
    ) as lasting:
        yield lasting


@pytest.fixture(autouse=True)
def whole(installation: Installation) -> Iterator[None]:
    """Both replicas are ready before and after."""
    installation.make_whole()
    yield
    installation.make_whole()


@contextmanager
def without_api_server(
    installation: Installation, stop: Callable[[], None] | None = None
) -> Iterator[None]:
    # One that has just been started refuses everything until it has read the roles.
    with installation.taking_rights():
        if stop is None:
            servers.stop_api_server(installation.cluster)
        else:
            stop()
        try:
            yield
        finally:
            servers.start_api_server(installation.cluster)


@contextmanager
def without_s3(cluster: Cluster) -> Iterator[None]:
    servers.stop_s3(cluster)
    try:
        yield
    finally:
        servers.start_s3(cluster)


@pytest.mark.case("operator", "The API server is down")
def test_training_goes_on_and_is_saved_without_an_api_server(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    with without_api_server(installation):
        eventually(
            lambda: (run.newest_step() or 0) > before.committed + STEPS_MEANWHILE,
            timeout=180,
            what="checkpoints are committed",
        )
    installation.make_whole()
    training(run)
    before.nothing_happened()


def test_what_breaks_right_after_an_outage_of_the_api_server_is_repaired(
    run: LastingRun,
) -> None:
    before = training(run)
    delete_pod(run, 2)  # a new pod, whose token has never been reviewed
    before.one_incident("Preempted")
    assert before.replaced() == {2}


@pytest.mark.rare("tests/simulation/test_lives.py")
def test_a_restart_that_the_api_server_interrupts_goes_on_when_it_is_back(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    leader = OperatorProcess.leading(installation)
    with (
        servers.about_to_stop_api_server(installation.cluster) as stop,
        about_to_kill_training(run, 1) as kill_rank,
    ):
        kill_rank()
        eventually(
            lambda: "ending" in run.status["internal"], timeout=60, what="the incident is written"
        )
        with without_api_server(installation, stop):
            eventually(lambda: not leader.is_alive(), timeout=60, what="nobody leads")
    before.one_incident("AppError")
    assert before.replaced() == set()
    assert run.reasons().count("Started") == before.attempt + 1


def test_a_loss_while_the_api_server_is_away_is_told_when_it_is_back(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    (process,) = training_processes(run, 0)
    leader = OperatorProcess.leading(installation)
    with without_api_server(installation):
        eventually(lambda: not leader.is_alive(), timeout=60, what="nobody leads")
        kill(run, process)
    before.one_incident("AppError")
    assert before.replaced() == set()


@pytest.mark.case("storage", "The store is unreachable while training")
def test_training_goes_on_without_storage_and_commits_when_it_is_back(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    with without_s3(installation.cluster):
        run.wait("the warning", lambda _: cannot_be_reached(run), seconds=120)
        step = run.status["progress"]["step"]
        run.wait("progress", lambda s: s["progress"]["step"] > step, seconds=120)
        before.nothing_happened()
    run.wait_for_checkpoint(step, seconds=120)
    run.wait("no warning", lambda _: not cannot_be_reached(run), seconds=120)
    before.nothing_happened()


@pytest.mark.case("storage", "The store is unreachable at a restart")
def test_a_restart_waits_for_storage(run: LastingRun, installation: Installation) -> None:
    before = training(run)
    with without_s3(installation.cluster):
        kill_training(run, 1)
        # The uploads of the attempt that is killed may have told of it before.
        status = run.wait(
            "the wait",
            lambda s: s["phase"] == "Restarting" and waits_for_storage(run),
            seconds=120,
        )
        assert status["failures"]["text"] == f"{before.failures + 1}/20"
    before.one_incident("AppError")
    assert before.replaced() == set()
    assert not waits_for_storage(run)


@pytest.mark.after_all_of_its_file
def test_after_all_that_it_has_learned_what_an_undisturbed_run_learns(run: LastingRun) -> None:
    before = training(run)
    status = run.finish()
    assert status["failures"]["counted"] == before.failures


@pytest.mark.rare("tests/simulation/test_lives.py")
def test_a_run_on_slow_storage_loses_nothing(bed: Bed) -> None:
    with servers.slow_s3(bed.cluster, delay=0.3) as proxy:
        options = {"storage": {"endpointURL": proxy.endpoint}, "replicas": 2}
        run = bed.run(args=["--steps", 20, "--attempts", 2], **options)
        before = training(run)
        kill_training(run, 1)
        before.one_incident("AppError")
        assert succeeded(run)["failures"]["counted"] == 1


def cannot_be_reached(run: LastingRun) -> bool:
    """Uploads wait, while the training goes on."""
    return bool(run.condition("StorageUnavailable").get("status") == "True")


def waits_for_storage(run: LastingRun) -> bool:
    """The next attempt waits for the store."""
    condition = run.condition("StorageReady")
    return (condition["status"], condition["reason"]) == ("False", "StorageUnavailable")
