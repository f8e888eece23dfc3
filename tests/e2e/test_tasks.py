"""A program of tasks whose nodes go and whose operator dies: each incident is counted once, nothing
that was done is done again, and the result is what it would have been."""

from __future__ import annotations

import base64
import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from testbed.faults import nodes, pods
from tests.e2e.scripts.sharded import SHARDS
from tests.e2e.support.bed import PYTHON_IMAGE, a_bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.incidents import Before, uids
from tests.e2e.support.operator_process import OperatorProcess
from tests.support.eventually import eventually
from tests.support.task_logs import records_of
from trainrun.tasks.records import Dispatched, Done, Failed, Record
from trainrun_operator.runtime.agents import attempt_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import Json
    from tests.e2e.support.installation import Installation

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("mended")]

FOR_EVER = 1_000_000
GPUS = 8
"""All of a node: so its two workers are on two of the three nodes, with room on the third."""


class Program(ClusterRun):
    """A run of sharded.py."""

    def __init__(self, bed: Bed) -> None:
        super().__init__(bed, "run")
        self.apply(FOR_EVER)

    def apply(self, blocks: int) -> None:
        self.bed.run(
            script="sharded.py",
            args=["--blocks", blocks],
            replicas=2,
            gpus=GPUS,
            container={"env": [{"name": "TRAINRUN_TASKS_CPUS", "value": "2"}]},
            pod={"terminationGracePeriodSeconds": 20},
            failurePolicy={"maxFailures": 0, "maxPreemptions": 20, "backoff": {"initial": "0s"}},
            health={"heartbeatTimeout": "10s"},
        )

    def log_of_tasks(self) -> list[Record]:
        bed = self.bed
        return records_of(bed.cluster.s3.data / bed.bucket / "runs" / self.name)

    def done(self) -> int:
        return sum(isinstance(record, Done) for record in self.log_of_tasks())

    def works_on(self, *, more: int = 2 * SHARDS) -> None:
        """Wait until so many more tasks are done."""
        goal = self.done() + more
        eventually(lambda: self.done() >= goal, timeout=60, what=f"{goal} tasks are done")


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[Program]:
    """The tests take it in turn, and the last one lets it end."""
    with a_bed(installation.cluster, "tasks") as bed:
        yield Program(bed)


def working(run: Program) -> Before:
    """Wait until the run's workers are at work."""
    status = run.wait_for_phase("Running", seconds=120)
    run.works_on()
    counts = Before.counts(status)
    return Before(run=run, attempt=status["attempt"], committed=0, uids=uids(run), **counts)


def one_incident(before: Before, run: Program, cause: str) -> Json:
    """Wait until tasks are done again after one incident, in the budget of preemptions."""
    status = run.wait(
        f"attempt {before.attempt + 1} to run",
        lambda s: s["attempt"] > before.attempt and s["phase"] == "Running",
        seconds=120,
    )
    run.works_on()
    assert status["attempt"] == before.attempt + 1, run.story()
    incidents: list[dict[str, Any]] = [
        it for it in run.incidents if it["attempt"] >= before.attempt
    ]
    assert [(it["attempt"], it["cause"]) for it in incidents] == [(before.attempt, cause)]
    assert Before.counts(run.status) == {"failures": 0, "preemptions": before.preemptions + 1}
    return incidents[0]


def node_of(run: Program, slot: int) -> str:
    return str(run.pod(slot)["spec"]["nodeName"])


@pytest.mark.case(
    "tasks", "A rank, an agent, a pod or a node with tasks is lost", counted="its cause"
)
def test_the_driver_s_node_loses_power_and_costs_one_incident(
    run: Program, installation: Installation
) -> None:
    before = working(run)
    node = node_of(run, 0)
    installation.lead_elsewhere(node)
    nodes.power_off(run.bed.cluster, node)
    incident = one_incident(before, run, "NodeLost")
    assert (incident["slot"], incident["node"]) == (0, node)
    assert before.replaced() == {0}
    nodes.power_on(run.bed.cluster, node)


@pytest.mark.rare("tests/e2e/test_nodes.py::test_a_drained_node_is_left_after_saving")
def test_a_drained_node_is_left(run: Program) -> None:
    before = working(run)
    nodes.drain(run.bed.cluster, node_of(run, 1))
    one_incident(before, run, "Preempted")
    assert before.replaced() == {1}


@pytest.mark.rare("tests/e2e/test_preemption.py")
def test_a_more_important_pod_takes_a_worker_s_place(run: Program) -> None:
    before = working(run)
    pods.preempt(run.bed.cluster, gpus=GPUS, node=node_of(run, 1), namespace=run.bed.namespace)
    one_incident(before, run, "Preempted")
    assert before.replaced() == {1}
    pods.relieve(run.bed.cluster, namespace=run.bed.namespace)


@pytest.mark.case("tasks", "The operator dies while tasks run")
def test_an_operator_that_is_killed_costs_nothing(run: Program, installation: Installation) -> None:
    before = working(run)
    leader = OperatorProcess.leading(installation)
    with leader.about_to(signal.SIGKILL) as kill:
        kill()
    run.works_on(more=4 * SHARDS)
    installation.wait_for_leader(other_than=leader.pod, seconds=60)
    before.nothing_happened()


def test_a_stranger_in_another_pod_gets_nothing_unpickled(run: Program) -> None:
    before = working(run)
    lead, port = run.pod(0), run.status["internal"]["startRecord"]["masterPort"]
    stranger = {
        "name": "stranger",
        "image": PYTHON_IMAGE,
        "command": ["python3", "/scripts/stranger.py", lead["status"]["podIP"], str(port)],
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
    }
    volumes = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    spec = {"containers": [stranger], "volumes": volumes, "restartPolicy": "Never"}
    metadata = {"name": "stranger", "namespace": run.bed.namespace}
    run.bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    run.bed.kubectl("wait", "pod/stranger", "--for=jsonpath={.status.phase}=Succeeded")

    heard = [int(line) for line in run.bed.kubectl("logs", "stranger").split()]
    assert len(heard) == 4
    assert max(heard) <= 36, "more than the greeting"
    assert "unpickled" not in inside(run, lead, "ls", "/tmp")
    run.works_on()
    before.nothing_happened()


def test_the_keys_of_its_attempts_lie_around_nowhere(
    run: Program, installation: Installation
) -> None:
    working(run)
    found = json.loads(installation.kubectl("get", "secret", "trainrun-ca", "--output", "json"))
    secret = base64.b64decode(found["data"]["signing.key"])
    uid, attempts = run.bed.json("trainrun", run.name)["metadata"]["uid"], run.status["attempt"]
    keys = [attempt_key(secret, run_uid=uid, attempt=it + 1) for it in range(attempts)]

    shown = run.bed.kubectl("get", "trainruns,pods,events,configmaps,secrets", "--output", "json")
    for pod in run.pods():
        shown += run.log(pod["metadata"]["name"])
        shown += inside(run, pod, "sh", "-c", "cat /proc/*/environ /proc/*/cmdline | tr '\\0' ' '")
    shown += installation.log()
    assert "MASTER_PORT" in shown
    files = [it for it in (run.bed.cluster.s3.data / run.bed.bucket).rglob("*") if it.is_file()]
    stored = b"".join(it.read_bytes() for it in files)
    assert len(files) > 10
    for key in map(bytes.fromhex, keys):
        assert key not in stored
        for written in (key.hex(), base64.b64encode(key).decode().rstrip("=")):
            assert written not in shown
            assert written.encode() not in stored


def inside(run: Program, pod: Json, *command: str) -> str:
    """What a command prints in a worker."""
    name = pod["metadata"]["name"]
    return run.bed.kubectl("exec", name, "--container", "worker", "--", *command)


@pytest.mark.after_all_of_its_file
def test_after_all_that_the_result_is_right_and_nothing_was_done_twice(run: Program) -> None:
    working(run)
    # The blocks before are done: only their results are read again.
    blocks = run.done() // (SHARDS + 1) + 3
    run.apply(blocks)
    run.wait_for_phase("Succeeded", seconds=120)

    assert f"total {sum(range(blocks * SHARDS))}" in run.log(run.pod(0)["metadata"]["name"])
    done: Counter[str] = Counter()
    for record in run.log_of_tasks():
        if isinstance(record, Done):
            done[record.key] += 1
        if isinstance(record, Dispatched):
            assert not done[record.key], "a task that was done ran again"
        if isinstance(record, Failed):
            assert record.reason == "WorkerLost"
    assert set(done.values()) == {1}
    run.ends_with("Succeeded")
