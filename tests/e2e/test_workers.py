"""Processes, containers and pods that end: what is broken is replaced, what is healthy stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.faults import memory, pods, processes
from tests.e2e.support.incidents import training
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.workers import TRAINING, delete_pod
from tests.support.eventually import eventually
from trainrun_operator.worlds.kubernetes.render import PREFERRED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = pytest.mark.cluster

# A worker's first process: what fetches the agent and then is it.
AGENT = r"^\S*python3 -I -S -c "


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[LastingRun]:
    """Three workers that train until the last test of this file; the tests take them in turn."""
    # Guaranteed, so that the kernel does not take the agent for want of memory elsewhere; and two
    # have room on a node of two processors, so that a replacement can always be put on another.
    limits = {"cpu": "700m", "memory": "192Mi", "nvidia.com/gpu": "1"}
    options = {
        "container": {"resources": {"limits": limits}},
        "pod": {"terminationGracePeriodSeconds": 60},
        "failurePolicy": {"maxFailures": 20, "maxPreemptions": 20, "backoff": {"initial": "0s"}},
        "health": {"heartbeatTimeout": "10s"},
    }
    with a_lasting_run(installation.cluster, "workers", **options) as lasting:
        yield lasting


def name_of(run: LastingRun, slot: int) -> str:
    return str(run.pod(slot)["metadata"]["name"])


@pytest.mark.case("processes", "A process is killed by a signal", counted="maxFailures")
def test_a_killed_process_restarts_in_place(run: LastingRun) -> None:
    before = training(run)
    processes.kill(run.bed.cluster, name_of(run, 1), matching=TRAINING, namespace=run.bed.namespace)
    incident = before.one_incident("AppError")
    assert incident["message"] == "rank 1 was killed by SIGKILL"
    assert (incident["rank"], incident["exitCode"]) == (1, 137)
    assert before.replaced() == set()


@pytest.mark.case("processes", "The kernel kills a process for memory", counted="maxFailures")
def test_a_process_that_takes_all_memory_restarts_in_place(run: LastingRun) -> None:
    before = training(run)
    memory.exceed_memory_limit(
        run.bed.cluster, name_of(run, 2), victims=TRAINING, namespace=run.bed.namespace
    )
    incident = before.one_incident("OutOfMemory")
    assert incident["message"] == "rank 2 was killed by the kernel: out of memory"
    assert before.replaced() == set()


def test_a_container_that_takes_all_memory_again_is_replaced_on_another_node(
    run: LastingRun,
) -> None:
    before = training(run)
    name, node = name_of(run, 2), run.pod(2)["spec"]["nodeName"]
    memory.exceed_memory_limit(run.bed.cluster, name, victims=AGENT, namespace=run.bed.namespace)
    incident = before.one_incident("OutOfMemory")
    assert incident["message"] == f"worker {name} was killed by the kernel: out of memory"
    assert before.replaced() == {2}
    (rather,) = run.pod(2)["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert rather["preference"]["matchFields"][0]["values"] == [node]
    assert run.pod(2)["spec"]["nodeName"] != node


@pytest.mark.case("nodes", "Several losses in one attempt", counted="one incident")
def test_two_workers_that_die_within_a_second_are_one_incident(run: LastingRun) -> None:
    before = training(run)
    names = [name_of(run, slot) for slot in (1, 2)]
    processes.kill_together(run.bed.cluster, names, namespace=run.bed.namespace)
    incident = before.one_incident("Unknown")
    expected = {f"worker {name} ended with exit code 137 without an order" for name in names}
    assert incident["message"] in expected
    assert before.replaced() == {1, 2}


@pytest.mark.case(
    "nodes", "Somebody deletes a worker with a grace period", counted="maxPreemptions"
)
def test_a_pod_deleted_by_hand_is_saved_first(run: LastingRun) -> None:
    before = training(run)
    name = name_of(run, 0)
    delete_pod(run, 0)
    incident = before.saved_on_notice(0)
    assert f"worker {name} is being taken away (pod was deleted)" in incident["message"]


@pytest.mark.rare("tests/e2e/test_nodes.py::test_a_drained_node_is_left_after_saving")
def test_an_evicted_pod_is_saved_first(run: LastingRun) -> None:
    before = training(run)
    name = name_of(run, 1)
    pods.evict(run.bed.cluster, name, namespace=run.bed.namespace)
    incident = before.saved_on_notice(1)
    assert f"worker {name} is being taken away (evicted" in incident["message"]


@pytest.mark.case(
    "nodes", "A worker's pod vanishes, or another pod takes its name", counted="maxPreemptions"
)
def test_a_pod_deleted_by_force_is_replaced(run: LastingRun) -> None:
    before = training(run)
    name = name_of(run, 1)
    pods.delete(run.bed.cluster, name, namespace=run.bed.namespace, grace_seconds=0)
    incident = before.one_incident("Preempted")
    assert f"worker {name} was " in incident["message"]
    assert before.replaced() == {1}


@pytest.mark.after_all_of_its_file
def test_after_all_that_it_has_learned_what_an_undisturbed_run_learns(run: LastingRun) -> None:
    before = training(run)
    status = run.finish()
    assert status["failures"]["counted"] == before.failures
    assert "TemplateChanged" in run.reasons()
    run.ends_with("Succeeded")


@pytest.mark.case(
    "processes", "A process ends with an exception or an exit code", counted="maxFailures"
)
@pytest.mark.rare("tests/worlds/local/test_runs.py")
def test_scripts_that_always_fail_end_with_the_culprits_words(bed: Bed) -> None:
    options = {"health": {"heartbeatTimeout": "10s"}}
    failing = bed.run(
        "failing",
        args=["--together", "--bad-rank", 1, "--bad-attempts", 99, "--fail-at", 7],
        failurePolicy={"maxFailures": 1, "backoff": {"initial": "0s"}},
        **options,
    )
    missing = bed.run("missing", script="missing.py", failurePolicy={"maxFailures": 0}, **options)

    status = failing.wait_for_phase("Failed")
    verdict = failing.condition("Failed")
    assert (verdict["status"], verdict["reason"]) == ("True", "MaxFailuresExceeded")
    assert status["failures"]["text"] == "2/1"
    assert failing.causes == ["AppError", "AppError"]
    for incident in failing.incidents:
        # The others die as well, of the connection that broke; they are not to blame.
        assert (incident["rank"], incident["exitCode"]) == (1, 3)
        assert "about to fail" in incident["lastLines"]
    assert failing.incidents[0]["resumedFrom"]["step"] == 5
    failing.ends_with("MaxFailuresExceeded")

    status = missing.wait_for_phase("Failed")
    assert missing.condition("Failed")["reason"] == "MaxFailuresExceeded"
    (incident,) = missing.incidents
    assert incident["exitCode"] == 2
    assert "can't open file '/scripts/missing.py'" in incident["message"]

    for run in (failing, missing):
        eventually(
            lambda run=run: [pod["status"]["phase"] for pod in run.pods()] == ["Failed"] * 3,
            timeout=60,
            what="pods have ended and are kept",
        )
    assert "about to fail" in failing.log(failing.incidents[-1]["worker"])
