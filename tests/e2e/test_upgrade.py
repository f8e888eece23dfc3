"""`helm upgrade` from version 0.1.0 under a gang that trains, the change of the CRD included."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from testbed.api import ApiError
from tests.e2e.support.incidents import training
from tests.e2e.support.installation import CHART
from tests.e2e.support.lasting import a_lasting_run
from tests.e2e.support.workers import delete_pod, kill_training
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.support.cluster_run import Json
    from tests.e2e.support.installation import Installation
    from tests.e2e.support.lasting import LastingRun

pytestmark = pytest.mark.cluster

OLD_CRD = CHART.parents[1] / "tests" / "api" / "recorded" / "crd-0.1.0.yaml"


@pytest.fixture
def run(installation: Installation) -> Iterator[LastingRun]:
    with a_lasting_run(
        installation.cluster,
        "upgrade",
        args=["--together"],
        failurePolicy={"maxFailures": 5, "maxPreemptions": 5, "backoff": {"initial": "0s"}},
        health={"heartbeatTimeout": "10s"},
    ) as lasting:
        yield lasting


@pytest.fixture
def old_chart(installation: Installation, tmp_path: Path) -> Iterator[Path]:
    """The chart with the CRD of version 0.1.0; the session goes on with the new one."""
    chart = tmp_path / "trainrun"
    shutil.copytree(CHART, chart)
    shutil.copy(OLD_CRD, chart / "files" / "crds" / "trainrun.dev_trainruns.yaml")
    yield chart
    installation.install()
    installation.make_whole()


def write_as_0_1_0(run: LastingRun, status: Json) -> Json:
    """Bring the object into the form in which version 0.1.0 keeps it, once its CRD is served.

    Returns what the operator remembers.
    """
    storage = {
        "endpointURL": None,
        "endpointUrl": run.bed.cluster.s3.endpoint,
        "credentialsSecretRef": None,
        "credentialsSecret": "storage",
    }

    def taken() -> bool:
        try:
            kept = run.bed.api.patch(run.path, {"spec": {"storage": storage}})
        except ApiError:
            return False  # the newer CRD, which refuses the old names, is still served
        return bool(kept["spec"]["storage"].keys() >= {"endpointUrl", "credentialsSecret"})

    eventually(taken, timeout=30, what="the CRD of 0.1.0 is served")
    remembered: Json = status.pop("internal")
    for knows_the_id in (status, remembered["startRecord"]):
        knows_the_id.pop("runId")  # 0.1.0 has none
    run.bed.api.patch(f"{run.path}/status", {"status": {**status, **remembered, "internal": None}})
    assert "internal" not in run.status
    assert run.status["startRecord"] == remembered["startRecord"]
    return remembered


def test_an_upgrade_from_the_version_before_takes_a_gang_over_as_it_trains(
    run: LastingRun, installation: Installation, old_chart: Path
) -> None:
    before = training(run)
    installation.scale(0)
    status = run.status
    installation.install(chart=old_chart, wait=False)
    remembered = write_as_0_1_0(run, status)
    # The new operator is there before the new CRD: it must not lead, or it would forget.
    # No log can be read while one of its containers is being created.
    eventually(lambda: len(installation.pods()) == 2, timeout=60, what="new operators run")
    eventually(
        lambda: "is older than this operator" in installation.log(),
        timeout=90,
        what="the operator sees the old CRD",
    )
    assert run.status["startRecord"] == remembered["startRecord"]

    installation.install("--set", "podAnnotations.upgraded=from-0-1-0")
    installation.make_whole()
    eventually(lambda: "internal" in run.status, timeout=60, what="the new operator writes")
    assert "startRecord" not in run.status
    training(run)
    before.nothing_happened()

    kill_training(run, 1)
    before.one_incident("AppError")
    assert before.replaced() == set()
    # A new pod finds the storage by the names of the version before.
    after = training(run)
    delete_pod(run, 2)
    after.saved_on_notice(2)
    assert after.replaced() == {2}
