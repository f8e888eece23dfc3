"""An operator that serves two namespaces, one of which is gone: its own process, and a real API
server that knows rights."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.cluster.test_installations import SOON, TEMPLATE
from tests.kube.api_server import POWERLESS_TOKEN
from tests.support.eventually import eventually
from tests.support.s3_server import free_port
from tests.support.trainruns import TrainRuns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Served:
    """Two namespaces, and the operator that serves them with Roles in each."""

    here: TrainRuns
    gone: TrainRuns
    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> tuple[int, str]:
        """Of the operator's port for probes; 0: nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def is_led(self, runs: TrainRuns) -> bool:
        pods = json.loads(runs.kubectl("get", "pods", "--output=json"))["items"]
        return len(pods) == 2 and bool(runs.get().get("status", {}).get("phase"))


def allow(runs: TrainRuns) -> None:
    """All rights in this namespace for the operator's user, as the chart's Roles give them."""
    runs.kubectl(
        "create", "rolebinding", "operator", "--clusterrole=cluster-admin", "--user=nobody"
    )


@pytest.fixture
def served(trainruns: TrainRuns, tmp_path: Path) -> Iterator[Served]:
    gone = TrainRuns(trainruns.server, f"gone-{secrets.token_hex(4)}")
    allow(trainruns)
    archive, log, port = tmp_path / "agent.zip", tmp_path / "operator.log", free_port()
    archive.write_bytes(b"no worker ever fetches it")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainrun_operator.cluster.app"],
            env={
                **os.environ,
                "KUBECONFIG": str(
                    trainruns.server.kubeconfig(tmp_path / "config", token=POWERLESS_TOKEN)
                ),
                "POD_NAMESPACE": trainruns.namespace,
                "POD_IP": "10.1.2.3",
                "TRAINRUN_WATCH_NAMESPACES": f"{trainruns.namespace},{gone.namespace}",
                "TRAINRUN_AGENT_ARCHIVE": str(archive),
                "TRAINRUN_AGENT_PORT": str(free_port()),
                "TRAINRUN_HEALTH_PORT": str(port),
            },
            stdout=out,
            stderr=out,
        )
    try:
        yield Served(here=trainruns, gone=gone, process=process, port=port)
        process.terminate()
        assert process.wait(timeout=30) == 0, log.read_text()
        print(log.read_text())
    finally:
        process.kill()


@pytest.mark.case("operator", "A watched namespace, a right or a CRD is missing")
def test_a_namespace_that_is_gone_is_told_and_the_runs_of_the_other_are_led(served: Served) -> None:
    """No operator got ready, and none led in any namespace. The right to nodes is missing, too."""
    gone = served.gone.namespace
    served.here.create(workers={"replicas": 2, "template": TEMPLATE})
    eventually(lambda: served.is_led(served.here), timeout=SOON)

    code, text = served.get("/readyz")
    assert (code, text.partition("\n")[0]) == (200, "ok")
    words = 'User "nobody" cannot list resource'
    assert f'{words} "trainruns" in API group "trainrun.dev" in the namespace "{gone}"' in text
    assert f'{words} "pods" in API group "" in the namespace "{gone}"' in text
    assert f'{words} "nodes" in API group "" at the cluster scope' in text
    assert f'in the namespace "{served.here.namespace}"' not in text
    metrics = served.get("/metrics")[1]
    path = f"/apis/trainrun.dev/v1alpha1/namespaces/{gone}/trainruns"
    assert f'trainrun_unreadable_lists{{list="{path}"}} 1.0' in metrics
    assert 'trainrun_unreadable_lists{list="/api/v1/nodes"} 1.0' in metrics

    served.here.server.kubectl("create", "namespace", gone)
    allow(served.gone)
    served.gone.create(workers={"replicas": 2, "template": TEMPLATE})
    eventually(lambda: served.is_led(served.gone), timeout=SOON)
    eventually(lambda: f'in the namespace "{gone}"' not in served.get("/readyz")[1], timeout=SOON)
    served.here.kubectl(
        *("patch", "trainrun", "digits", "--type=merge", '--patch={"spec":{"suspend":true}}')
    )
    eventually(lambda: not served.is_led(served.here), timeout=SOON, what="its pods are gone")
