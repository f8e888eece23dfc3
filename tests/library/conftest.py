"""The library of this process, with and without an agent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agent_stand_in import AgentStandIn
from trainrun._process import session

Run = Callable[..., "subprocess.CompletedProcess[str]"]

WORKER_IMAGE = Path(__file__).parents[2] / "worker_image"


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins and ends without a session, and without any variable of a launcher."""
    session.close()
    for name in (*AGENT_VARIABLES, *LAUNCHER_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    yield
    session.close()


AGENT_VARIABLES = (
    "TRAINRUN_RUN",
    "TRAINRUN_ATTEMPT",
    "TRAINRUN_SOCKET",
    "TRAINRUN_STAGING",
    "TRAINRUN_CONTROL",
    "TRAINRUN_CHECKPOINT",
    "TRAINRUN_INITIAL",
    "TRAINRUN_PROCESS",
)
LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
)


@pytest.fixture
def agent(
    fresh_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentStandIn]:
    """An agent whose training process is this one."""
    (tmp_path / "worker").mkdir()
    with AgentStandIn(tmp_path / "worker", rank=2) as stand_in:
        for name, value in stand_in.environment(TRAINRUN_PROCESS=str(os.getpid())).items():
            monkeypatch.setenv(name, value)
        yield stand_in
        session.close()


@pytest.fixture
def run_script(tmp_path: Path) -> Run:
    """Run a script in a process of its own, with these variables."""

    def run(source: str, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "train.py"
        script.write_text(source)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in AGENT_VARIABLES + LAUNCHER_VARIABLES
        }
        return subprocess.run(
            [sys.executable, *command, str(script)],
            env={**inherited, "PYTHONPATH": str(WORKER_IMAGE), **env},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
