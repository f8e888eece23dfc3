"""The operator killed, stopped, away, and twice at once: nothing is lost, nothing counted twice."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.support.incidents import training
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.operator_process import OperatorProcess
from tests.e2e.support.workers import (
    about_to_kill_training,
    delete_pod,
    kill_training,
    training_processes,
)
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.support.incidents import Before
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = pytest.mark.cluster

MEMORY_LIMIT = 150_000_000
ANOTHER_MOMENT = pytest.mark.rare("tests/simulation/test_crash_everywhere.py")


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[LastingRun]:
    """Three workers that train until the last test of this file; the tests take them in turn."""
    with a_lasting_run(
        installation.cluster,
        "operator",
        args=["--together"],
        failurePolicy={"maxFailures": 20, "maxPreemptions": 20, "backoff": {"initial": "0s"}},
        health={"heartbeatTimeout": "10s"},
    ) as lasting:
        yield lasting


@pytest.fixture
def leader(installation: Installation) -> Iterator[OperatorProcess]:
    """The process that leads; both replicas are whole before and after."""
    installation.make_whole()
    yield OperatorProcess.leading(installation)
    installation.make_whole()


def incident_is_written(before: Before) -> bool:
    return bool(before.run.status["internal"].get("ending", {}).get("attempt") == before.attempt)


def resume_point_is_chosen(before: Before) -> bool:
    run = before.run
    claim = f"{run.bed.bucket}/runs/{run.name}/attempts/{before.attempt + 1:06d}.json"
    return (run.bed.cluster.s3.data / claim).exists()


def replacement_is_created(before: Before) -> bool:
    uids = {pod["metadata"]["uid"] for pod in before.run.pods()}
    return not uids.issubset(before.uids)


def next_attempt_is_started(before: Before) -> bool:
    return bool(before.run.status["internal"]["startRecord"]["attempt"] == before.attempt + 1)


@pytest.mark.parametrize(
    "reached",
    [
        pytest.param(incident_is_written, marks=ANOTHER_MOMENT),
        resume_point_is_chosen,
        replacement_is_created,
        pytest.param(next_attempt_is_started, marks=ANOTHER_MOMENT),
    ],
)
def test_a_leader_killed_in_a_restart_is_followed_by_one_that_goes_on_there(
    run: LastingRun,
    installation: Installation,
    leader: OperatorProcess,
    reached: Callable[[Before], bool],
) -> None:
    before = training(run)
    with (
        leader.about_to(signal.SIGKILL) as kill_leader,
        about_to_kill_training(run, 1) as kill,
    ):
        if reached is replacement_is_created:
            delete_pod(run, 1)
            cause, replaced = "Preempted", {1}
        else:
            kill()
            cause, replaced = "AppError", set[int]()
        eventually(lambda: reached(before), timeout=60, what=reached.__name__)
        kill_leader()
    killed = time.monotonic()
    installation.wait_for_leader(other_than=leader.pod, seconds=60)
    print(f"another one leads {time.monotonic() - killed:.1f} s after the leader's death")

    before.one_incident(cause)
    assert before.replaced() == replaced
    # Each attempt was started once, and told once.
    assert run.status["restarts"] == before.attempt
    assert run.reasons().count("Started") == before.attempt + 1


@pytest.mark.case("operator", "The operator is frozen for a while (SIGSTOP)")
def test_a_stopped_leader_finds_another_one_leading_and_ends(
    run: LastingRun, installation: Installation, leader: OperatorProcess
) -> None:
    before = training(run)
    with leader.about_to(signal.SIGCONT) as thaw, about_to_kill_training(run, 1) as kill:
        leader.freeze()
        try:
            installation.wait_for_leader(other_than=leader.pod, seconds=60)
            # Both alive while the restart is under way: the old one wakes up in the middle of it.
            kill()
            eventually(lambda: incident_is_written(before), timeout=60)
        finally:
            thaw()

    before.one_incident("AppError")
    assert before.replaced() == set()
    eventually(lambda: leader.restarts() == 1, timeout=60, what="the old leader ends")
    assert run.reasons().count("Started") == before.attempt + 1
    log = installation.kubectl("logs", leader.pod, "--previous")
    assert "exiting, so that a new process starts" in log


@pytest.mark.case("operator", "The operator is down")
@pytest.mark.rare(
    "tests/e2e/test_outages.py::test_training_goes_on_and_is_saved_without_an_api_server"
)
def test_training_goes_on_and_is_saved_while_there_is_no_operator(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    installation.scale(0)
    try:
        # Far longer than an agent may be silent.
        run.wait_for_checkpoint(before.committed + 150, seconds=180)
        before.nothing_happened()
    finally:
        installation.scale(2)
    installation.make_whole()

    training(run)
    before.nothing_happened()
    assert before.run.condition("Running")["status"] == "True"


def test_what_happens_while_there_is_no_operator_is_counted_once_when_it_is_back(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    installation.scale(0)
    try:
        kill_training(run, 2)
        eventually(lambda: not training_processes(run, 2), timeout=60, what="the process ends")
    finally:
        installation.scale(2)
    installation.make_whole()

    incident = before.one_incident("AppError")
    assert incident["message"] == "rank 2 was killed by SIGKILL"
    assert before.replaced() == set()


def test_metrics_say_what_happened(run: LastingRun, leader: OperatorProcess) -> None:
    before, told = training(run), leader.metrics()
    kill_training(run, 0)
    before.one_incident("AppError")
    training(run)

    metrics = leader.metrics()
    grown = {name: value - told.get(name, 0.0) for name, value in metrics.items()}
    assert metrics["trainrun_leader"] == 1
    assert grown['trainrun_incidents_total{cause="AppError",counted="true"}'] == 1
    assert grown['trainrun_restarts_total{cause="AppError"}'] == 1
    for stage in ("detect", "restart", "first_step"):
        assert grown[f'trainrun_recovery_seconds_count{{stage="{stage}"}}'] == 1
    assert grown["trainrun_reconcile_seconds_count"] > 0
    assert grown['trainrun_api_requests_total{code="200",verb="put"}'] > 0
    assert metrics['trainrun_runs{phase="Running"}'] == 1
    assert metrics['trainrun_workers{state="ready"}'] == 3
    assert metrics['trainrun_workers{state="missing"}'] == 0
    named = f'{{run="{run.bed.namespace}/{run.name}"}}'
    counted = run.status["failures"]["counted"]
    assert metrics[f"trainrun_failures_remaining{named}"] == 20 - counted
    assert time.time() - metrics[f"trainrun_checkpoint_time_seconds{named}"] < 60
    assert time.time() - metrics[f"trainrun_step_time_seconds{named}"] < 60


def test_only_the_leader_says_that_it_leads(
    installation: Installation, leader: OperatorProcess
) -> None:
    values = {
        pod: OperatorProcess.of(installation, pod).metrics()["trainrun_leader"]
        for pod in (pod["metadata"]["name"] for pod in installation.pods())
    }
    assert sorted(values.values()) == [0, 1]
    assert values[leader.pod] == 1


def test_the_operator_needs_little_memory(
    installation: Installation, leader: OperatorProcess
) -> None:
    for pod in installation.pods():
        name = pod["metadata"]["name"]
        used = OperatorProcess.of(installation, name).resident_bytes()
        role = "leader" if name == leader.pod else "standby"
        print(f"{role}: {used / 1e6:.0f} MB resident")
        assert used < MEMORY_LIMIT


@pytest.mark.case("operator", "The operator dies between any two actions")
@pytest.mark.after_all_of_its_file
def test_after_all_that_it_has_learned_what_an_undisturbed_run_learns(run: LastingRun) -> None:
    before = training(run)
    status = run.finish()
    assert status["failures"]["counted"] == before.failures
