"""kind, from scratch to nothing, by the commands that the documentation prints."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import docker
from testbed.cluster import NAME_VARIABLE
from testbed.errors import UNAVAILABLE
from testbed.places import clusters, locked
from tests.docs.documents import ROOT, commands_below
from tests.support.cluster_session import NO_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENVIRONMENT = {**os.environ, "CLUSTER": "kind", NAME_VARIABLE: "kind-trial"}
OURS = "trainrun/podman"
"""In the path of each mount of our podman."""
TELL_THE_TIME = "PS4='+ after $SECONDS s: '"


def on_kind(*words: str, seconds: float = 1200.0) -> subprocess.CompletedProcess[str]:
    """`python -m testbed` for kind, whatever the other tests run on."""
    return subprocess.run(
        [sys.executable, "-m", "testbed", *words],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


@pytest.fixture
def environment() -> Iterator[Mapping[str, str]]:
    """A machine that kind can run on, and no cluster of ours on it, before and after."""
    ready = on_kind("tools", seconds=3600)
    if ready.returncode == UNAVAILABLE:
        pytest.skip(f"{NO_CLUSTER}{ready.stderr.splitlines()[-1].removeprefix('error: ')}")
    assert ready.returncode == 0, ready.stderr
    with locked(clusters() / ".kind-trial.session", waiting_for="another trial of kind"):
        on_kind("down")
        yield ENVIRONMENT
        on_kind("down")


@pytest.fixture
def before(environment: Mapping[str, str]) -> list[str]:
    """What `remains` finds without our cluster: others may have one of kind, too."""
    assert environment
    return remains()


@pytest.mark.timeout(3600)
def test_a_run_on_kind_outlives_a_process_and_a_node_and_the_cluster_leaves_nothing(
    environment: Mapping[str, str], before: list[str]
) -> None:
    lines = commands_below(ROOT / "docs" / "clusters.md", "## On kind")
    assert lines[:2] == ["export CLUSTER=kind", "make cluster-up"]
    assert lines[-1] == "make cluster-down"

    ended = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join([TELL_THE_TIME, *lines])],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2400,
    )

    words = ended.stdout
    print(ended.stderr)
    assert ended.returncode == 0, f"{words}\n{ended.stderr}"
    assert re.search(r"Message: +rank 2 was killed by SIGKILL", words), words
    assert re.search(r"Cause: +NodeLost", words), words
    assert "all 4 processes ended with exit code 0" in words
    assert remains() == before


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seconds", [4.0, 15.0, 30.0])
def test_down_leaves_nothing_of_an_up_of_kind_that_was_killed_halfway(
    environment: Mapping[str, str], before: list[str], seconds: float
) -> None:
    starting = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up"],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    # There is no condition to wait for: it shall end in the middle of whatever it does then.
    time.sleep(seconds)
    starting.kill()
    starting.wait()

    ended = on_kind("down")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert remains() == before


def remains() -> list[str]:
    """What is left of the trial's cluster, found by other means than the tool's own as well."""
    found = on_kind("left-over").stdout.splitlines()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = command.read_text(errors="replace").replace("\0", " ")
            found += [words] if "trainrun-kind-trial" in words else []
    found += [each for each in Path("/proc/self/mounts").read_text().splitlines() if OURS in each]
    if not docker.is_running():
        rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
        found += [rule for rule in rules.splitlines() if "NETAVARK" in rule]
    return sorted(found)
