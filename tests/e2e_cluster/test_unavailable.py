"""Where there can be no cluster, nobody shall believe that one was tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import docker

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (
            "",
            "and we are not root on Linux. "
            "Start Docker to get the cluster from kind, or use a Debian machine as root",
        ),
        ("kind", "kind needs Docker or, as root on Debian, podman; here"),
    ],
)
def test_without_docker_and_root_the_session_ends_with_what_was_not_tested(
    tmp_path: Path, choice: str, reason: str
) -> None:
    if docker.is_running():
        pytest.skip("Docker runs here, so there is a cluster for everybody")
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # In a user namespace without users nobody is root.
    nobody = ["unshare", "--user"]
    done = subprocess.run(
        [*nobody, *pytest_, "tests/e2e_cluster/test_cluster.py"],
        cwd=ROOT,
        env={
            **os.environ,
            "CLUSTER": choice,
            "XDG_STATE_HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    words = done.stdout
    assert done.returncode == 0, words
    assert "7 skipped" in words
    _, _, end = words.partition("NOT TESTED ON A REAL CLUSTER")
    assert "7 tests in tests/e2e_cluster/test_cluster.py did not run" in end
    assert f"{docker.why_not()}, and we are not root on" in end
    assert reason in end
