"""The handlers under `kopf run` and in production's process, before a real API server."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kube.api_server import ApiServer
from tests.support.eventually import eventually
from tests.support.s3_server import free_port

CRD = Path(__file__).parents[2] / "crds" / "trainrun.dev_trainruns.yaml"
NOTICED = 100
"""Seconds: a list of all TrainRuns, about once a minute, finds what a watch has lost."""
COMMANDS = {
    "kopf run": (
        *("-m", "kopf", "run", "--standalone", "--all-namespaces"),
        *("-m", "trainrun_operator.cluster.handlers"),
    ),
    "production": ("-m", "trainrun_operator.cluster.app"),
}


@dataclass(frozen=True, kw_only=True)
class Operator:
    server: ApiServer
    process: subprocess.Popen[bytes]
    log: Path

    def create(self, name: str) -> None:
        # There is no controller that would fill in the account.
        pod = {
            "serviceAccountName": "default",
            "containers": [{"name": "main", "image": "python", "command": ["true"]}],
        }
        path = self.server.directory / f"{name}-{secrets.token_hex(4)}.json"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "trainrun.dev/v1alpha1",
                    "kind": "TrainRun",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {
                        "storage": {"uri": "s3://bucket/runs"},
                        "workers": {
                            "replicas": 2,
                            "template": {"spec": pod},
                        },
                    },
                }
            )
        )
        self.server.kubectl("create", "-f", str(path))

    def leads(self, name: str, timeout: float = NOTICED) -> None:
        """Wait until the run has a status and its pods."""
        eventually(lambda: self._phase(name) and len(self._pods(name)) == 2, timeout=timeout)
        assert self.process.poll() is None, self.log.read_text()

    def _phase(self, name: str) -> str:
        path = "-o=jsonpath={.status.phase}"
        return self.server.kubectl("get", "trainruns", "-n", "default", name, path)

    def _pods(self, name: str) -> list[str]:
        names = self.server.kubectl("get", "pods", "-n", "default", "-o", "name").split()
        return [each for each in names if each.startswith(f"pod/{name}-")]


@pytest.fixture(params=COMMANDS)
def operator(
    request: pytest.FixtureRequest, own_apiserver: ApiServer, tmp_path: Path
) -> Iterator[Operator]:
    """One that leads."""
    own_apiserver.kubectl("apply", "--server-side", "-f", str(CRD))
    own_apiserver.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    (tmp_path / "agent.zip").write_bytes(b"no worker ever fetches it")
    log = tmp_path / "operator.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *COMMANDS[request.param]],
            env={
                **os.environ,
                "KUBECONFIG": str(own_apiserver.kubeconfig(tmp_path / "config")),
                "POD_NAMESPACE": "default",
                "POD_IP": "10.1.2.3",
                "TRAINRUN_AGENT_ARCHIVE": str(tmp_path / "agent.zip"),
                "TRAINRUN_AGENT_PORT": str(free_port()),
                "TRAINRUN_HEALTH_PORT": str(free_port()),
            },
            stdout=out,
            stderr=out,
        )
    yield Operator(server=own_apiserver, process=process, log=log)
    process.terminate()
    try:
        assert process.wait(timeout=20) == 0, log.read_text()
    finally:
        process.kill()


@pytest.mark.slow
def test_no_error_of_the_watch_ends_the_loop_of_the_runs(operator: Operator) -> None:
    operator.create("first")
    operator.leads("first")

    operator.server.kubectl("delete", "-f", str(CRD), "--timeout=60s")
    operator.server.kubectl("apply", "--server-side", "-f", str(CRD))
    operator.server.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    operator.create("second")
    operator.leads("second")
