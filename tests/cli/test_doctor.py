"""`trainrun doctor`: real stores with real mistakes, and a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from tests.cli.test_version import OPERATOR
from tests.kube.api_server import POWERLESS_TOKEN
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.doctor import clock
from trainrun_operator.kube.lease import Lease
from trainrun_operator.worlds.kubernetes.installation import LEASE_NAME

if TYPE_CHECKING:
    from tests.kube.api_server import ApiServer
    from tests.support.s3_server import S3Server
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi

SWEEPS = Path(__file__).parents[2] / "crds" / "trainrun.dev_trainsweeps.yaml"


def doctor(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["doctor", *map(str, words)])


def checks(*words: str | Path, code: int) -> dict[str, tuple[str, str]]:
    """Name -> level and what was said, of what is not about this machine."""
    result = doctor(*words, "--json")
    assert result.exit_code == code, result.output
    found = json.loads(result.output)
    assert found["ok"] == (code == 0)
    told = {}
    for it in found["checks"]:
        told[it["name"]] = (it["level"], " | ".join(filter(None, (it["message"], it["remedy"]))))
    return told


def test_a_folder_that_can_hold_runs_is_ok_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    result = doctor(tmp_path)

    assert result.exit_code == 0, result.output
    uri = tmp_path.as_uri()
    able = "can be written, written once, read, listed and deleted"
    assert f"OK    storage     {uri} {able}\n" in result.output
    assert "OK    clock       this machine's and the storage's agree\n" in result.output
    assert "OK    ports       processes of this machine reach each other\n" in result.output
    assert list(tmp_path.rglob("*")) == []


def test_a_mistake_in_the_file_is_told_and_fails(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("kind: TrainRun")

    level, told = checks(tmp_path / "train.yaml", code=1)["file"]

    assert level == "FAIL"
    assert told.startswith(f"{tmp_path}/train.yaml: ")


def test_what_this_machine_ignores_in_a_file_is_a_warning(tmp_path: Path) -> None:
    assert CliRunner().invoke(trainrun, ["init", str(tmp_path)]).exit_code == 0
    file = tmp_path / "train.yaml"
    file.write_text(
        file.read_text().replace(
            "  storage:\n", "  storage:\n    credentialsSecretRef: {name: x}\n"
        )
    )

    level, told = checks(file, code=0)["file"]

    assert level == "WARN"
    assert told == "storage.credentialsSecretRef is ignored: credentials come from the environment"


@pytest.fixture
def s3(own_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", own_s3.endpoint)
    return own_s3


def test_a_bucket_is_ok_and_wrong_keys_another_bucket_or_no_server_name_the_remedy(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks("s3://bucket/runs", code=0)["storage"][0] == "OK"
    assert not [path for path in (s3.data / "bucket").rglob("*") if path.is_file()]

    level, told = checks("s3://elsewhere/runs", code=1)["storage"]
    assert level == "FAIL"
    assert "NoSuchBucket" in told
    assert "Create bucket 'elsewhere' or correct storage.uri" in told

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    level, told = checks("s3://bucket/runs", code=1)["storage"]
    assert level == "FAIL"
    assert told.endswith("check the access key, its secret and the endpoint")


@pytest.mark.parametrize(
    ("ahead", "level", "said"),
    [
        (59.0, "OK", "this machine's and the storage's agree"),
        (-59.0, "OK", "this machine's and the storage's agree"),
        (90.0, "WARN", "this machine's is 90 s behind the storage's"),
        (-3600.0, "WARN", "this machine's is 3600 s ahead of the storage's"),
    ],
)
def test_a_clock_that_is_wrong_by_a_minute_is_a_warning(
    ahead: float, level: str, said: str
) -> None:
    found = clock(ahead)

    assert (found.level, found.message) == (level, said)
    assert ("timedatectl set-ntp true" in found.remedy) == (level == "WARN")


@pytest.fixture
def cluster(trainruns: TrainRuns) -> TrainRuns:
    """With both CRDs."""
    trainruns.install(SWEEPS, name="trainsweeps.trainrun.dev")
    return trainruns


async def asked(*words: str, code: int) -> dict[str, tuple[str, str]]:
    return await asyncio.to_thread(checks, "--cluster", *words, code=code)


async def test_without_an_operator_it_names_the_chart(cluster: TrainRuns) -> None:
    found = await asked(code=1)

    assert found["CRDs"] == ("OK", "trainruns, trainsweeps in v1alpha1")
    level, told = found["operator"]
    assert level == "FAIL"
    assert told.startswith("none is installed | install the chart: helm install trainrun ")
    assert found["policy"][0] == "WARN"
    assert found["rights"] == (
        "OK",
        "you may get, list, create, patch, delete trainsweeps in default",
    )


async def test_an_operator_must_have_a_pod_lead_and_be_of_our_version(
    cluster: TrainRuns, api: KubeApi, tmp_path: Path
) -> None:
    namespace, kubectl = cluster.namespace, cluster.server.kubectl
    (tmp_path / "operator.yaml").write_text(OPERATOR)
    kubectl("apply", "-n", namespace, "-f", str(tmp_path / "operator.yaml"))
    where = f"{namespace}/trainrun 0.0.9"
    logs = f"see why: kubectl logs -n {namespace} deployment/trainrun"
    assert (await asked(code=1))["operator"] == ("FAIL", f"{where}: no pod is ready | {logs}")

    status = json.dumps({"status": {"replicas": 1, "readyReplicas": 1}})
    kubectl(
        "patch", "deployment/trainrun", "-n", namespace, "--subresource=status",
        "--type=merge", "-p", status,
    )  # fmt: skip
    assert (await asked(code=1))["operator"] == (
        "FAIL",
        f"{where}: none of its pods leads | {logs}",
    )

    lease = Lease(api=api, namespace=namespace, name=LEASE_NAME, identity="pod-1")
    await lease.acquire()
    keeping = asyncio.create_task(lease.keep())
    level, told = (await asked(code=0))["operator"]
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    assert level == "WARN"
    assert told == (
        f"{where}: pod-1 leads; this command is 0.1.0 | install 0.0.9 here, or upgrade the chart"
    )
    kubectl("delete", "deployment", "trainrun", "-n", namespace)


async def test_missing_rights_name_the_role(
    cluster: TrainRuns, apiserver: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apiserver.kubeconfig(tmp_path / "powerless", token=POWERLESS_TOKEN)
    monkeypatch.setenv("KUBECONFIG", str(config))

    found = await asked("-n", "team", code=1)

    assert found["rights"] == (
        "FAIL",
        "you may not get, list, create, patch, delete trainsweeps in team | ask the cluster's "
        "administrator for the role edit in namespace team",
    )
    assert found["operator"] == ("SKIP", "not looked at: you may not list Deployments")


def test_a_cluster_that_does_not_answer_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))

    level, told = checks("--cluster", code=1)["cluster"]

    assert level == "FAIL"
    assert told.endswith("| check whether `kubectl cluster-info` works")
