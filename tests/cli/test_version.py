"""`trainrun version`, on a real API server."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import trainrun as library
from tests.docs.documents import ROOT
from tests.kube.api_server import POWERLESS_TOKEN
from trainrun_operator.cli.commands import trainrun

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.api_server import ApiServer
    from tests.support.trainruns import TrainRuns

OPERATOR = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: trainrun
  labels:
    app.kubernetes.io/part-of: trainrun
    app.kubernetes.io/component: operator
    app.kubernetes.io/version: 0.0.9
spec:
  selector: {matchLabels: {app: trainrun}}
  template:
    metadata: {labels: {app: trainrun}}
    spec: {containers: [{name: operator, image: operator}]}
"""


def told(*words: str) -> str:
    result = CliRunner().invoke(trainrun, ["version", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_package_the_project_and_the_command_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert library.__version__ == project["version"]
    shown = CliRunner().invoke(trainrun, ["--version"]).output
    assert shown == f"trainrun, version {project['version']}\n"


def test_without_a_cluster_it_says_why_and_shows_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))

    assert told() == (
        f"command     {library.__version__}\n"
        f"cluster     not asked: no cluster: {tmp_path}/nowhere does not exist; run inside a "
        "cluster, or set KUBECONFIG to a file that names one\n"
    )
    assert json.loads(told("--json"))["cluster"] is None


def test_in_a_cluster_it_shows_the_operator_the_resources_and_kubernetes(
    trainruns: TrainRuns, tmp_path: Path
) -> None:
    (tmp_path / "operator.yaml").write_text(OPERATOR)
    trainruns.server.kubectl(
        "apply", "-n", trainruns.namespace, "-f", str(tmp_path / "operator.yaml")
    )

    lines = dict(line.split(maxsplit=1) for line in told().splitlines())

    assert lines["operator"] == f"0.0.9 ({trainruns.namespace}/trainrun)"
    assert lines["resources"] == "v1alpha1"
    assert lines["Kubernetes"].startswith("1.")
    assert json.loads(told("--json"))["cluster"]["served"] == ["v1alpha1"]
    trainruns.server.kubectl("delete", "deployment", "trainrun", "-n", trainruns.namespace)


def test_a_user_who_may_list_nothing_still_sees_what_is_served(
    apiserver: ApiServer, trainruns: TrainRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apiserver.kubeconfig(tmp_path / "powerless", token=POWERLESS_TOKEN)
    monkeypatch.setenv("KUBECONFIG", str(config))

    lines = dict(line.split(maxsplit=1) for line in told().splitlines())

    assert lines["operator"] == "unknown: you may not list Deployments"
    assert lines["resources"] == "v1alpha1"
