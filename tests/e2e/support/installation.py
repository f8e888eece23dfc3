"""The operator in a cluster, installed by its chart as a user installs it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.cluster import Cluster
from testbed.faults import nodes
from tests.support.eventually import eventually
from trainrun_operator.kube.lease import addresses_in
from trainrun_operator.worlds.kubernetes.installation import LEASE_NAME

CHART = Path(__file__).parents[3] / "charts" / "trainrun"
NAMESPACE = "trainrun-system"
RELEASE = "trainrun"
SELECTOR = "app.kubernetes.io/name=trainrun"


@dataclass(frozen=True, slots=True)
class Installation:
    """A release of the chart."""

    cluster: Cluster
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The cluster may be older, and with it the audit log."""
    without_rights: list[tuple[datetime, datetime]] = field(default_factory=list)
    """When rights were taken away from operators that still ran."""

    def install(self, *options: str) -> None:
        """`helm upgrade --install`, and wait until the operator is ready."""
        self.cluster.helm(
            "upgrade",
            "--install",
            RELEASE,
            str(CHART),
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--reset-values",  # without options Helm takes those of the release before
            "--wait",
            "--timeout",
            "120s",
            *options,
        )

    @contextmanager
    def taking_rights(self) -> Iterator[None]:
        """Helm takes a role away before the pods that use it have ended."""
        begun = datetime.now(UTC)
        try:
            yield
        finally:
            self._wait_for_ending_pods()
            self.without_rights.append((begun, datetime.now(UTC)))

    def uninstall(self) -> None:
        """`helm uninstall`."""
        self.cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")

    def kubectl(self, *args: str) -> str:
        """Run kubectl in the operator's namespace."""
        return self.cluster.kubectl("--namespace", NAMESPACE, *args)

    def pods(self) -> list[dict[str, Any]]:
        """The operator's pods that run."""
        text = self.kubectl("get", "pods", "--selector", SELECTOR, "--output", "json")
        return [
            pod
            for pod in json.loads(text)["items"]
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def _wait_for_ending_pods(self, *, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            text = self.kubectl("get", "pods", "--selector", SELECTOR, "--output", "json")
            ending = [p for p in json.loads(text)["items"] if "deletionTimestamp" in p["metadata"]]
            if not ending:
                return
            assert time.monotonic() < deadline, f"{len(ending)} replicas do not end"
            time.sleep(0.3)

    def leader(self) -> str:
        """Name of the pod that holds the Lease; empty when nobody does, or one that is gone."""
        holder = str(self._lease()["spec"].get("holderIdentity") or "")
        return holder if holder in {pod["metadata"]["name"] for pod in self.pods()} else ""

    def wait_for_leader(self, *, other_than: str = "", seconds: float = 30.0) -> str:
        """Wait until somebody (else) leads; returns its name."""
        deadline = time.monotonic() + seconds
        while (leader := self.leader()) in ("", other_than):
            assert time.monotonic() < deadline, f"nobody but {other_than or 'nobody'} leads"
            time.sleep(0.3)
        return leader

    def scale(self, replicas: int) -> None:
        """Wait until there are none, or until as many are ready."""
        self.kubectl("scale", "deployment/trainrun", f"--replicas={replicas}")
        self.kubectl("rollout", "status", "deployment/trainrun", "--timeout=60s")
        deadline = time.monotonic() + 60
        while len(self.pods()) != replicas:
            assert time.monotonic() < deadline, f"not {replicas} replicas"
            time.sleep(0.3)

    def make_whole(self, *, seconds: float = 120.0) -> None:
        """Wait until every replica is ready; those that had to be started again are made anew.

        The kubelet pauses before it starts a container again, longer each time; and it may tell of
        a start only once the API server has been back for a while.
        """
        deadline = time.monotonic() + seconds
        while True:
            for pod in self.pods():
                if any(it["restartCount"] for it in pod["status"]["containerStatuses"]):
                    name = pod["metadata"]["name"]
                    self.kubectl("delete", "pod", name, "--grace-period=0", "--force")
            self.kubectl("rollout", "status", "deployment/trainrun", f"--timeout={seconds:.0f}s")
            if self.leader():
                return
            assert time.monotonic() < deadline, "nobody leads"
            time.sleep(0.3)

    def lead_elsewhere(self, node: str) -> None:
        """Let the leader be on another node: if this one is lost, only workers are lost with it."""
        if self.leader_node() != node:
            return
        leader = self.wait_for_leader()
        self.stand_by_elsewhere(node)
        self.kubectl("delete", "pod", leader, "--wait=false")
        self.wait_for_leader(other_than=leader, seconds=90)

    def stand_by_elsewhere(self, node: str) -> None:
        """Let one replica be on another node, where all of them are on this one."""
        leader = self.wait_for_leader()
        replicas = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self.pods()}
        if set(replicas.values()) != {node}:
            return
        nodes.cordon(self.cluster, node)
        standby = next(name for name in replicas if name != leader)
        self.kubectl("delete", "pod", standby, "--wait", "--timeout=60s")
        self.kubectl("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s")
        nodes.uncordon(self.cluster, node)

    def leader_node(self) -> str:
        """The node from which it is led now."""
        leader = self.wait_for_leader()
        found = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{leader}")
        return str(found["spec"]["nodeName"])

    def _lease(self) -> dict[str, Any]:
        where = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE_NAME}"
        return self.cluster.api.get(where)

    def wait_until_each_replica_knows_both(self) -> None:
        """Return once the leader has renewed a Lease that says where both replicas are: it tells
        the agents, and one that is cut off hears of no other any more."""
        places = {str(pod["status"].get("podIP")) for pod in self.pods()}

        def is_told() -> bool:
            told = {place.rpartition(":")[0] for place in addresses_in(self._lease())}
            return len(places) == 2 and places <= told

        eventually(is_told, timeout=90, what="both replicas stand in the Lease")
        before = self._lease()["spec"]["renewTime"]
        eventually(
            lambda: self._lease()["spec"]["renewTime"] != before,
            timeout=30,
            what="the leader renews its Lease",
        )

    def log(self) -> str:
        """What all replicas said."""
        return self.kubectl("logs", "--selector", SELECTOR, "--prefix", "--tail=-1")
