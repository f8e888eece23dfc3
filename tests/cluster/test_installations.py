"""Two installations of the operator, each its own process, before one real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.api.spec_table import BASE
from tests.kube.patching import merged
from tests.support.eventually import eventually
from tests.support.s3_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.trainruns import TrainRuns

SOON = 120.0
"""Seconds: a process of Python that starts on a busy machine."""
TEMPLATE = {
    "spec": {
        "serviceAccountName": "default",  # there is no controller that would fill it in
        "containers": [{"name": "worker", "image": "train:1", "command": ["python3", "train.py"]}],
    }
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where operators are started, and the runs that all of them watch."""

    folder: Path
    runs: TrainRuns

    @contextmanager
    def operator(self, namespace: str, *, adopt: str = "") -> Iterator[None]:
        """The operator of the installation in this namespace."""
        archive = self.folder / "agent.zip"
        archive.write_bytes(b"no worker ever fetches it")
        log = self.folder / f"{namespace}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainrun_operator.cluster.app"],
                env={
                    **os.environ,
                    "KUBECONFIG": str(self.runs.server.kubeconfig(self.folder / "config")),
                    "POD_NAMESPACE": namespace,
                    "POD_IP": "10.1.2.3",
                    "TRAINRUN_WATCH_NAMESPACES": self.runs.namespace,
                    "TRAINRUN_ADOPT": adopt,
                    "TRAINRUN_NODES": "false",
                    "TRAINRUN_AGENT_ARCHIVE": str(archive),
                    "TRAINRUN_AGENT_PORT": str(free_port()),
                    "TRAINRUN_HEALTH_PORT": str(free_port()),
                },
                stdout=out,
                stderr=out,
            )
        try:
            yield
            process.terminate()
            assert process.wait(timeout=30) == 0, log.read_text()
        finally:
            process.kill()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.runs.get().get("status", {})
        return found

    def holder(self) -> str:
        """The namespace of the installation that leads the run; empty while none does."""
        return str(self.status().get("internal", {}).get("holder", "")).partition("/")[0]

    def contested(self) -> str:
        """What the condition says; empty where there is none."""
        conditions = self.status().get("conditions", [])
        return next((str(c["message"]) for c in conditions if c["type"] == "Contested"), "")

    def pods(self) -> dict[str, str]:
        """Name and uid."""
        pods = json.loads(self.runs.kubectl("get", "pods", "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}

    def events(self) -> set[str]:
        return set(self.runs.kubectl("get", "events", "-o=jsonpath={.items[*].reason}").split())


@pytest.fixture
def place(trainruns: TrainRuns, tmp_path: Path) -> Place:
    return Place(folder=tmp_path, runs=trainruns)


@pytest.mark.case("operator", "Two installations of the operator watch one namespace")
@pytest.mark.slow
def test_one_of_two_installations_leads_a_run_and_the_other_takes_it_over_when_it_is_told(
    place: Place, namespace: str
) -> None:
    both = {f"{namespace}-one", f"{namespace}-two"}
    for name in both:
        place.runs.server.kubectl("create", "namespace", name)
    with ExitStack() as operators:
        for name in sorted(both):
            operators.enter_context(place.operator(name))
        place.runs.create(workers={"replicas": 2, "template": TEMPLATE})
        eventually(lambda: len(place.pods()) == 2 and place.contested(), timeout=SOON)

        holder = place.holder()
        (other,) = both - {holder}
        made = place.pods()
        assert place.contested() == (
            f"the operator in namespace {holder} leads this run; the operator in namespace {other} "
            "also watches it, but does not act. Set watchNamespaces so that each namespace has "
            f"one operator; or, if the operator in namespace {holder} is gone for good, upgrade "
            f"the other one with --set adopt={{{holder}}}"
        )
        eventually(lambda: "Contested" in place.events(), timeout=SOON)
        assert "PodIgnored" not in place.events()

    with place.operator(other):  # alone now, but nobody has told it that it may
        forget = '--patch={"status":{"conditions":[]}}'
        place.runs.kubectl(
            *("patch", "trainrun", "digits", "--subresource=status", "--type=merge", forget)
        )
        eventually(place.contested, timeout=SOON)
    assert (place.holder(), place.pods()) == (holder, made)

    with place.operator(other, adopt=holder):
        eventually(lambda: place.holder() == other, timeout=SOON)
        eventually(
            lambda: len(place.pods()) == 2 and not set(made.values()) & set(place.pods().values()),
            timeout=SOON,
            what="pods of its own in the place of those of the other one",
        )
        eventually(lambda: not place.contested(), timeout=SOON)
        eventually(lambda: "TakenOver" in place.events(), timeout=SOON)
    assert "PodIgnored" not in place.events()
    assert place.status()["failures"]["counted"] == 0


@pytest.mark.case("operator", "The operator moves to another namespace, or its CA Secret is lost")
@pytest.mark.slow
def test_who_has_lost_its_secret_makes_its_gangs_anew_and_leaves_no_pod_behind(
    place: Place, namespace: str
) -> None:
    home = f"{namespace}-home"
    place.runs.server.kubectl("create", "namespace", home)
    place.runs.create(workers={"replicas": 2, "template": TEMPLATE})
    with place.operator(home):
        eventually(lambda: len(place.pods()) == 2, timeout=SOON)
    made = place.pods()
    place.runs.server.kubectl("delete", "secret", "trainrun-ca", "--namespace", home)

    with place.operator(home):
        eventually(
            lambda: len(place.pods()) == 2 and not set(made.values()) & set(place.pods().values()),
            timeout=SOON,
            what="pods of its own in the place of those that it does not know",
        )


@pytest.mark.slow
def test_a_run_that_another_controller_manages_is_not_touched(place: Place, namespace: str) -> None:
    home = f"{namespace}-home"
    place.runs.server.kubectl("create", "namespace", home)
    place.runs.create(managedBy="example.com/other", workers={"template": TEMPLATE})
    with place.operator(home):
        ours = merged(
            BASE, {"metadata": {"name": "ours"}, "spec": {"workers": {"template": TEMPLATE}}}
        )
        place.runs.apply(ours, manager="test")
        eventually(place.pods, timeout=SOON)
    assert list(place.pods()) == ["ours-0-1"]
    assert place.runs.get()["status"] == {"observedGeneration": -1}, "as the CRD's default has it"
