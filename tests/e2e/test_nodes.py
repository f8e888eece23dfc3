"""Nodes that lose power, network or room: told from each other, counted once, and not again when
they come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.api import ApiError
from testbed.faults import nodes
from tests.e2e.support.incidents import succeeded, training
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.spreading import on_different_nodes
from tests.e2e.support.workers import TRAINING
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import ClusterRun
    from tests.e2e.support.incidents import Before
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("mended")]


BEYOND_THE_TIMEOUT = 250
"""At least 25 seconds of training, more than twice what an agent may be silent for; many times as
long on a busy machine, where two ranks that wait for each other take their steps late."""


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[LastingRun]:
    """Two workers on two of the three nodes, so that there is room elsewhere for each of them."""
    options = {
        "replicas": 2,
        "gpus": 0,
        "args": ["--together", "--yield"],
        "pod": {"terminationGracePeriodSeconds": 60, **on_different_nodes("run")},
        "failurePolicy": {"maxFailures": 20, "maxPreemptions": 20, "backoff": {"initial": "0s"}},
        # On a busy machine an agent may well be silent for five seconds, also one that is healthy.
        "health": {"heartbeatTimeout": "10s"},
    }
    with a_lasting_run(installation.cluster, "nodes", **options) as lasting:
        yield lasting


def node_of(run: ClusterRun, slot: int) -> str:
    return str(run.pod(slot)["spec"]["nodeName"])


def slot_beside_the_leader(run: LastingRun, installation: Installation) -> int:
    """A slot on another node than the leader of the operators, which is not what is tried here."""
    leader = installation.leader_node()
    return next(slot for slot in (1, 0) if node_of(run, slot) != leader)


def wait_until_gone(run: LastingRun, pod: str) -> None:
    """Return once there is no such pod any more."""

    def is_gone() -> bool:
        try:
            run.bed.api.get(f"/api/v1/namespaces/{run.bed.namespace}/pods/{pod}")
        except ApiError as error:
            return error.status == 404
        return False

    eventually(is_gone, timeout=90, what=f"{pod} is gone")


def trains_on(before: Before, steps: int) -> None:
    """Wait until so many steps more are committed; nothing has happened meanwhile."""
    newest = before.run.newest_step()
    assert newest is not None
    before.run.wait_for_checkpoint(newest + steps, seconds=300)
    before.nothing_happened()


def leaves_after_saving(
    run: LastingRun, installation: Installation, take_away: Callable[[str], None], why: str
) -> None:
    """The run saves and goes on elsewhere; the script ends itself once it has saved. `take_away`
    gets the name of a worker's node, `{node}` in `why`."""
    before = training(run)
    slot = slot_beside_the_leader(run, installation)
    node = node_of(run, slot)
    take_away(node)
    incident = before.saved_on_notice(slot)
    assert f"is being taken away ({why.format(node=node)}" in incident["message"]
    assert incident["lostSteps"] == 0
    assert node_of(run, slot) != node


@pytest.mark.case("nodes", "A node falls silent (power, network)", counted="maxPreemptions")
def test_the_node_of_rank_0_loses_power_and_comes_back(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    node, old = node_of(run, 0), run.pod(0)["metadata"]["name"]
    installation.lead_elsewhere(node)
    nodes.power_off(run.bed.cluster, node)
    incident = before.one_incident("NodeLost")
    assert (incident["slot"], incident["node"]) == (0, node)
    assert f"worker {old} has sent no heartbeat for " in incident["message"]
    assert before.replaced() == {0}
    assert run.pod(0)["metadata"]["annotations"]["trainrun.dev/avoids"] == node
    assert node_of(run, 0) != node

    after = training(run)
    nodes.power_on(run.bed.cluster, node)
    wait_until_gone(run, old)
    trains_on(after, 50)


@pytest.mark.case("nodes", "A lost node comes back")
def test_a_node_that_was_cut_off_comes_back_too_late(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    slot = slot_beside_the_leader(run, installation)
    node, old = node_of(run, slot), run.pod(slot)["metadata"]["name"]
    nodes.partition(run.bed.cluster, node)
    incident = before.one_incident("NodeLost")
    assert (incident["slot"], incident["node"]) == (slot, node)
    after = training(run)
    assert trainings_on(run, node) > 0, "the old worker's process runs on"

    nodes.heal(run.bed.cluster, node)
    eventually(lambda: trainings_on(run, node) == 0, timeout=90, what="its old process ends")
    wait_until_gone(run, old)
    trains_on(after, 20)
    resumed = incident["resumedFrom"]["step"]
    late = [step for step, attempt in run.committed() if attempt == before.attempt]
    assert all(step <= resumed for step in late), "it has committed what nobody shall use"


def trainings_on(run: LastingRun, node: str) -> int:
    """How many processes train on this node, whoever may know of them."""
    found = run.bed.cluster.node(node).run("bash", "-c", f"pgrep -fc '{TRAINING}' || true")
    return int(found)


@pytest.mark.case("nodes", "Only the API server cannot reach a node")
def test_a_node_that_only_the_api_server_cannot_reach_trains_on(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    slot = slot_beside_the_leader(run, installation)
    node = node_of(run, slot)
    nodes.partition_from_api_server(run.bed.cluster, node)
    nodes.wait_until_not_ready(run.bed.cluster, node)
    trains_on(before, 80)
    nodes.heal(run.bed.cluster, node)
    trains_on(before, 10)


@pytest.mark.rare("tests/simulation/test_partitions.py")
def test_a_worker_beside_the_leader_trains_on_when_only_the_api_server_cannot_reach_them(
    run: LastingRun, installation: Installation
) -> None:
    """The other replica leads, and the kube-proxy of this node never learns of it."""
    before = training(run)
    here = {node_of(run, slot) for slot in (0, 1)}
    if installation.leader_node() not in here:
        installation.lead_elsewhere(installation.leader_node())
    node, leader = installation.leader_node(), installation.leader()
    assert node in here, "the two others have the workers"
    installation.stand_by_elsewhere(node)
    installation.wait_until_each_replica_knows_both()
    nodes.partition_from_api_server(run.bed.cluster, node)
    installation.wait_for_leader(other_than=leader, seconds=60)
    nodes.wait_until_not_ready(run.bed.cluster, node)
    trains_on(before, BEYOND_THE_TIMEOUT)
    nodes.heal(run.bed.cluster, node)
    trains_on(before, 10)


@pytest.mark.case("nodes", "A PodDisruptionBudget selects workers or clerks", counted="its cause")
def test_a_drained_node_is_left_after_saving(run: LastingRun, installation: Installation) -> None:
    """Also where a policy of the cluster makes a budget for all pods of a namespace."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": run.bed.namespace},
        "spec": {"selector": {}, "maxUnavailable": "50%"},
    }

    def drain(node: str) -> None:
        run.bed.apply(budget)
        nodes.drain(run.bed.cluster, node)
        run.bed.kubectl("delete", "pdb", "all")

    leaves_after_saving(run, installation, drain, "evicted")


@pytest.mark.rare("tests/worlds/kubernetes/observing/test_notices.py")
def test_a_node_with_a_no_execute_taint_is_left_after_saving(
    run: LastingRun, installation: Installation
) -> None:
    def taint(node: str) -> None:
        nodes.taint(run.bed.cluster, node, "example.com/broken")

    leaves_after_saving(run, installation, taint, "")


@pytest.mark.case(
    "nodes", "A worker gets a notice (SIGTERM, eviction, reclaim)", counted="maxPreemptions"
)
def test_a_spot_node_is_left_when_its_end_is_announced(
    run: LastingRun, installation: Installation
) -> None:
    def announce(node: str) -> None:
        key = "aws-node-termination-handler/spot-itn"
        nodes.taint(run.bed.cluster, node, key, effect="NoSchedule")

    leaves_after_saving(run, installation, announce, "node {node} ")


@pytest.mark.rare("tests/worlds/kubernetes/observing/test_notices.py")
def test_a_deleted_node_is_left_after_saving(run: LastingRun, installation: Installation) -> None:
    def delete(node: str) -> None:
        nodes.delete(run.bed.cluster, node)

    leaves_after_saving(run, installation, delete, "node {node} was deleted")


@pytest.mark.after_all_of_its_file
def test_after_all_that_it_has_learned_what_an_undisturbed_run_learns(run: LastingRun) -> None:
    before = training(run)
    status = run.finish()
    assert status["failures"]["preemptions"] == before.preemptions
    run.ends_with("Succeeded")


@pytest.mark.case(
    "nodes",
    "Peers report connection errors before the operator learns of the node",
    counted="one incident",
)
@pytest.mark.case("nodes", "A node is lost", counted="maxPreemptions")
def test_a_crashed_node_is_the_cause_though_its_peers_fail_first(
    bed: Bed, installation: Installation
) -> None:
    run = bed.run(
        replicas=2,
        gpus=0,
        args=["--together", "--attempts", 2],
        pod=on_different_nodes("run"),
        failurePolicy={"maxFailures": 0, "maxPreemptions": -1},
    )
    before = training(run)
    node = node_of(run, 1)
    installation.lead_elsewhere(node)
    before.nothing_happened()
    nodes.crash(bed.cluster, node)
    # Rank 0 says at once that a connection broke, which alone would fail the run.
    incident = before.one_incident("NodeLost")
    assert (incident["slot"], incident["node"]) == (1, node)
    status = succeeded(run)
    assert len(run.incidents) == 1
    assert status["failures"]["counted"] == 0


@pytest.mark.rare("tests/simulation/test_lives.py")
def test_a_drained_node_takes_the_leader_with_it_and_still_nothing_fails(
    bed: Bed, installation: Installation
) -> None:
    node = installation.leader_node()
    here = {"weight": 100, "preference": {"matchExpressions": [hostname_is(node)]}}
    pod = on_different_nodes("run")
    pod["affinity"]["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [here]}
    run = bed.run(
        replicas=2,
        gpus=0,
        args=["--together", "--yield", "--attempts", 2],
        pod={"terminationGracePeriodSeconds": 60, **pod},
        failurePolicy={"maxFailures": 0, "maxPreemptions": -1},
        health={"heartbeatTimeout": "10s"},
    )
    before = training(run)
    slot = next(slot for slot in (0, 1) if node_of(run, slot) == node)
    assert installation.leader_node() == node

    nodes.drain(bed.cluster, node)

    # The next leader may find a worker that has saved and left before anybody asked it to.
    incident = before.one_incident("Preempted")
    assert "evicted" in incident["message"]
    assert incident["lostSteps"] in (0, 1)
    assert before.replaced() == {slot}
    assert installation.leader_node() != node
    status = succeeded(run)
    assert (status["failures"]["counted"], len(run.incidents)) == (0, 1)


def hostname_is(node: str) -> dict[str, object]:
    return {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
