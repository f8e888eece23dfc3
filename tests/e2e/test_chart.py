"""The chart installed, upgraded and removed under running trainings."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.support.bed import a_bed
from tests.e2e.support.incidents import succeeded, training
from tests.e2e.support.installation import NAMESPACE, RELEASE
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.workers import kill_training
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cluster import Cluster
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = pytest.mark.cluster

RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
UNPRIVILEGED: dict[str, Any] = {
    "pod": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    },
    "container": {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    },
}


@pytest.fixture(scope="module")
def run(installation: Installation) -> Iterator[LastingRun]:
    """Three workers that train until the last test of this file."""
    with a_lasting_run(
        installation.cluster,
        "chart",
        args=["--together"],
        failurePolicy={"maxFailures": 20, "maxPreemptions": 20, "backoff": {"initial": "0s"}},
        health={"heartbeatTimeout": "10s"},
    ) as lasting:
        yield lasting


@contextmanager
def restricted(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Only pods of the restricted profile are let in."""
    cluster.kubectl("label", "namespace", namespace, RESTRICTED)
    try:
        yield
    finally:
        cluster.kubectl("label", "namespace", namespace, RESTRICTED.partition("=")[0] + "-")


@pytest.mark.case("operator", "The chart is upgraded, or removed and installed again")
def test_an_upgrade_leaves_running_trainings_alone(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    replicas = {pod["metadata"]["uid"] for pod in installation.pods()}
    with restricted(installation.cluster, NAMESPACE):
        installation.install("--set", "podAnnotations.upgraded=once")
        installation.make_whole()
    assert replicas.isdisjoint(pod["metadata"]["uid"] for pod in installation.pods())
    training(run)
    before.nothing_happened()
    # The new one leads, and not only by name.
    kill_training(run, 1)
    before.one_incident("AppError")
    assert before.replaced() == set()


@pytest.mark.rare("tests/cluster/test_helm_test.py")
def test_helm_test_lets_a_run_lose_its_rank_and_recover_and_leaves_no_rights(
    installation: Installation,
) -> None:
    with restricted(installation.cluster, NAMESPACE):
        told = installation.cluster.helm(
            "test", RELEASE, "--namespace", NAMESPACE, "--logs", "--timeout", "240s"
        )
    assert "Phase:          Succeeded" in told
    assert "attempt 1 ended: rank 0 was killed by SIGKILL (AppError)" in told
    assert "the next one continued from step " in told
    assert "the run lost its rank, continued from its checkpoint, and succeeded" in told
    for kind in ("serviceaccounts", "roles", "rolebindings"):
        assert "test" not in installation.kubectl("get", kind, "--output", "name")
    installation.kubectl("delete", "trainrun", "trainrun-test")


@pytest.mark.rare("tests/e2e/test_operator.py")
def test_a_removed_chart_leaves_runs_and_trainings_and_finds_them_again(
    run: LastingRun, installation: Installation
) -> None:
    before = training(run)
    with installation.taking_rights():
        installation.uninstall()
        eventually(lambda: not installation.pods(), timeout=60, what="the operator ends")
    assert installation.kubectl("get", "deployments,services,roles", "--output", "name") == ""
    assert run.status["phase"] == "Running"  # it is there, and so is its kind
    run.wait_for_checkpoint(before.committed + 100, seconds=120)

    installation.install()
    installation.make_whole()
    training(run)
    before.nothing_happened()
    kill_training(run, 2)
    before.one_incident("AppError")
    assert before.replaced() == set()


@pytest.mark.after_all_of_its_file
def test_after_all_that_it_has_learned_what_an_undisturbed_run_learns(run: LastingRun) -> None:
    before = training(run)
    status = run.finish()
    assert status["failures"]["counted"] == before.failures


def test_unprivileged_workers_train_where_only_they_are_let_in(bed: Bed) -> None:
    with restricted(bed.cluster, bed.namespace):
        run = bed.run(args=["--steps", 10], **UNPRIVILEGED)
        succeeded(run)


@pytest.mark.rare("tests/chart/test_rights.py")
def test_an_operator_of_single_namespaces_needs_no_rights_in_others(
    installation: Installation, bed: Bed
) -> None:
    with a_bed(installation.cluster, "somebody-elses") as other:
        try:
            with installation.taking_rights():
                installation.install("--set", f"watchNamespaces={{{bed.namespace}}}")
                installation.make_whole()
            assert cluster_roles(installation) == ["trainrun-system.trainrun-tokens"]
            not_served = other.run(args=["--steps", 10])
            run = bed.run(args=["--steps", 30, "--attempts", 2])
            before = training(run)
            kill_training(run, 1)
            before.one_incident("AppError")
            succeeded(run)
            assert not_served.status == {"observedGeneration": -1}, "as the CRD has it"
            assert not_served.pods() == []
        finally:
            with installation.taking_rights():
                installation.install()
                installation.make_whole()
        # It is served now.
        succeeded(not_served)


def cluster_roles(installation: Installation) -> list[str]:
    """Those that the operator's account is bound to."""
    found = json.loads(installation.kubectl("get", "clusterrolebindings", "--output", "json"))
    return [
        binding["roleRef"]["name"]
        for binding in found["items"]
        for subject in binding.get("subjects", [])
        if subject.get("namespace") == NAMESPACE
    ]


def test_privileged_workers_are_told_why_they_are_not_let_in(bed: Bed) -> None:
    with restricted(bed.cluster, bed.namespace):
        run = bed.run(args=["--steps", 10])
        run.wait("the condition", lambda _: run.condition("WorkersReady").get("reason"))
        eventually(lambda: run.condition("WorkersReady")["reason"] == "Forbidden", timeout=60)
        assert 'violates PodSecurity "restricted' in run.condition("WorkersReady")["message"]
        assert run.status["failures"]["text"] == "0/3"
