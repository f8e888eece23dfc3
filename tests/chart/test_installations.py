"""Several installations on one API server, and the move of one: by Helm, as the docs say."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.chart.rendering import CHART, helm, render

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chart.rendering import Manifest
    from tests.kube.api_server import ApiServer

CRDS = ("trainruns.trainrun.dev", "trainsweeps.trainrun.dev")
TAKING = "--take-ownership"


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Called `trainrun`, all of them."""

    server: ApiServer
    folder: Path

    def install(self, namespace: str, *options: str) -> None:
        """CalledProcessError where Helm refuses it."""
        self._helm("install", "trainrun", str(CHART), "--create-namespace", *options, at=namespace)

    def uninstall(self, namespace: str) -> None:
        self._helm("uninstall", "trainrun", at=namespace)

    def owners(self) -> set[str]:
        """Namespaces of the releases that the CRDs belong to."""
        found = json.loads(self.server.kubectl("get", "crd", *CRDS, "--output=json"))
        key = "meta.helm.sh/release-namespace"
        return {it["metadata"]["annotations"][key] for it in found["items"]}

    def _helm(self, *arguments: str, at: str) -> None:
        config = self.server.kubeconfig(self.folder / "kubeconfig")
        subprocess.run(
            [helm(), *arguments, "--namespace", at, "--kubeconfig", str(config)],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )


@pytest.fixture
def releases(apiserver: ApiServer, tmp_path: Path) -> Releases:
    return Releases(server=apiserver, folder=tmp_path)


def test_an_installation_moves_into_another_namespace_as_the_docs_say(releases: Releases) -> None:
    # Tests that had this server before may have applied the CRDs.
    releases.install("old", TAKING)
    try:
        releases.uninstall("old")
        with pytest.raises(subprocess.CalledProcessError) as refused:
            releases.install("new", "--set", "adopt={old}")
        assert "invalid ownership metadata" in refused.value.stderr
        releases.install("new", "--set", "adopt={old}", TAKING)
        assert releases.owners() == {"new"}
    finally:
        releases.uninstall("new")


def test_a_second_installation_of_the_same_name_stands_beside_the_first(
    releases: Releases,
) -> None:
    for namespace in ("team-a", "team-b"):
        releases.server.kubectl("create", "namespace", namespace)
    everything = ("nodes.enabled=true", "rbac.aggregateToUserRoles=true")
    options = (
        *(word for value in everything for word in ("--set", value)),
        *("--set", "admissionPolicy.enabled=true"),
    )
    releases.install("first", "--set", "watchNamespaces={team-a}", *options, TAKING)
    try:
        # The same namespace as well: the status of a run tells that two watch it.
        watched = ("--set", "watchNamespaces={team-a,team-b}")
        releases.install("second", *watched, *options, "--set", "crds.install=false")
        assert releases.owners() == {"first"}
        releases.uninstall("second")
    finally:
        releases.uninstall("first")


def test_no_object_outside_of_its_namespace_has_the_name_of_another_installations() -> None:
    values = {
        "watchNamespaces": ["team-a"],
        "nodes": {"enabled": True},
        "rbac": {"aggregateToUserRoles": True},
        "admissionPolicy": {"enabled": True},
        "crds": {"install": False},
    }
    manifests = [*render(values), *render({**values, "watchNamespaces": []})]
    outside = [it for it in manifests if it["metadata"].get("namespace", "") != "trainrun"]
    assert {_start(it) for it in outside} == {"trainrun.trainrun"}


def _start(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name.partition("-")[0]
