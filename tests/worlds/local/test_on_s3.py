"""A local run with its checkpoints on a real S3 server."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.support.s3_server import S3Server
from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.cli.commands import trainrun

URI = "s3://bucket/runs"


@pytest.fixture
def environ(runs: LocalRuns, own_s3: S3Server) -> dict[str, str]:
    runs.spec = {
        "storage": {"uri": URI, "endpointURL": own_s3.endpoint},
        "failurePolicy": {"maxFailures": 1},
    }
    credentials = own_s3.environment()
    del credentials["AWS_ENDPOINT_URL"]
    return {**credentials, "XDG_STATE_HOME": str(runs.folder / "state")}


def test_a_run_resumes_from_a_bucket_and_is_found_there(
    runs: LocalRuns, own_s3: S3Server, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = runs.commit_before(8, of=5, within=own_s3.data / "bucket" / "runs")
    runs.env = {**committed, "STAY_AT": "8"}
    ended = runs.run("--fault", "kill rank=1 step=8", env=environ)
    assert ended.code == 0, ended.out[-3000:]
    assert runs.begins() == [0, 5]
    assert ended.status["checkpoint"]["uri"].startswith(f"{URI}/tiny/checkpoints/step-000000020")

    for name, value in {**environ, **own_s3.environment()}.items():
        monkeypatch.setenv(name, value)
    listed = CliRunner().invoke(trainrun, ["checkpoints", f"{URI}/tiny", "--verify"])
    assert listed.exit_code == 0, listed.output
    assert listed.output.startswith(f"{URI}/tiny\n")
    shown = CliRunner().invoke(trainrun, ["status", URI])
    assert shown.output.startswith("Run tiny succeeded after ")


def test_a_bucket_that_is_not_there_is_named(runs: LocalRuns, environ: dict[str, str]) -> None:
    driver = runs.start("--storage", "s3://missing/runs", env=environ)
    told = driver.wait_for_event("StorageMisconfigured")
    assert "missing" in told["message"]
    driver.interrupt()
    assert driver.end().code == 130
