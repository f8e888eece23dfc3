"""What people read where kind cannot be used: one line with the remedy, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from testbed import docker
from testbed.engine import check_room
from testbed.errors import UNAVAILABLE, ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REFUSES = "echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1"
# As Docker's client did for years: it prints its own version, complains, and ends with 0.
CLIENT_ALONE = "echo; echo 'Cannot connect to the Docker daemon' >&2"
ANSWERS = "echo 29.0"
NOBODY = ("unshare", "--user")
IN_GROUP = "(`sudo usermod -aG docker $USER`, then log in again)"


def program(folder: Path, name: str, body: str) -> None:
    """Put a program of that name there."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def words_of_up(folder: Path, *, chosen: str, as_: Sequence[str] = NOBODY) -> list[str]:
    """Start a cluster as nobody, with only the programs of `folder` and of the system."""
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "HOME": str(folder),
        "CLUSTER": chosen,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [*as_, sys.executable, "-m", "testbed", "up", "--name", "refused"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == UNAVAILABLE
    return done.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "why"),
    [(REFUSES, f"you may not use Docker {IN_GROUP}"), (CLIENT_ALONE, "Docker does not run")],
)
def test_a_docker_that_cannot_be_used_is_named_with_the_remedy(
    tmp_path: Path, body: str, why: str
) -> None:
    program(tmp_path, "docker", body)

    assert words_of_up(tmp_path, chosen="") == [
        f"error: {why}, and we are not root on Linux. "
        "Start Docker to get the cluster from kind, or use a Debian machine as root."
    ]
    assert words_of_up(tmp_path, chosen="kind") == [
        f"error: kind needs Docker or, as root on Debian, podman; here {why}, "
        "and we are not root on Debian."
    ]


def test_with_docker_and_neither_kind_nor_go_both_remedies_are_said(tmp_path: Path) -> None:
    program(tmp_path, "docker", ANSWERS)
    # Where Go is found without PATH, it is not there either.
    hidden = 'mkdir -p /usr/local/go && mount -t tmpfs none /usr/local/go && exec "$@"'
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", hidden, "sh"]

    (line,) = words_of_up(tmp_path, chosen="kind", as_=own_mounts)

    assert line.endswith("Install Go 1.26 or newer, or kind 0.33 (https://kind.sigs.k8s.io).")


def test_a_docker_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "docker", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(docker, "_ANSWER_SECONDS", 0.2)

    assert docker.why_not.__wrapped__() == "Docker did not answer within 0.2 s (restart it)"


@pytest.mark.slow
def test_a_choice_that_there_is_not_is_refused(tmp_path: Path) -> None:
    assert words_of_up(tmp_path, chosen="minikube") == [
        "error: CLUSTER=minikube: there are `kind` and `embedded`."
    ]


def test_too_little_memory_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match=r"docker has 2.0 GiB of memory, .* needs 4\."):
        check_room(2 << 30, str(tmp_path), "docker")


def test_a_disk_that_cannot_be_seen_from_here_is_left_to_docker() -> None:
    check_room(8 << 30, "/on/another/machine", "docker")
