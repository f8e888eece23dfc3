"""`kubectl trainrun`: the executable is found by the kubectl of the test cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kube.api_server import kube_binary

COMMANDS = Path(sys.executable).parent


def kubectl(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"}
    command = [kube_binary("kubectl"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_kubectl_lists_the_plugin_without_a_warning(tmp_path: Path) -> None:
    listed = kubectl("plugin", "list", home=tmp_path)

    assert str(COMMANDS / "kubectl-trainrun") in listed.stdout.splitlines(), listed
    assert "kubectl-trainrun" not in listed.stderr


@pytest.mark.slow
def test_kubectl_hands_words_and_exit_code_over(tmp_path: Path) -> None:
    version = kubectl("trainrun", "--version", home=tmp_path)
    refused = kubectl("trainrun", "explain", str(tmp_path / "none.yaml"), home=tmp_path)

    assert version.stdout.startswith("trainrun, version ")
    assert refused.returncode == 2
    assert "none.yaml: cannot be read: No such file or directory" in refused.stderr
