"""Real agents in real processes, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.agent.on_disk import a_config
from tests.support.eventually import eventually
from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.answer import Start
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.operator_stand_in import OperatorStandIn


AGENT = (sys.executable, "-m", "trainrun.agent")


class Worker:
    """One agent; its output is kept in a file."""

    def __init__(
        self,
        config: AgentConfig,
        folder: Path,
        *,
        read: bool = True,
        agent: Sequence[str] = AGENT,
        env: Mapping[str, str | None] | None = None,
    ) -> None:
        """`read`: somebody reads its output; `env`: other variables, None removes one."""
        self.config = config
        environ = {**os.environ, variables.AGENT_CONFIG: config.to_json(), **(env or {})}
        self._log = folder / f"agent-{config.slot}-{os.urandom(4).hex()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                agent,
                env={name: value for name, value in environ.items() if value is not None},
                stdout=log if read else subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def shows(self, text: str, *, timeout: float = 60.0) -> None:
        eventually(lambda: text in self.output, timeout=timeout, what=f"{text!r} in output")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def code(self, *, timeout: float = 60.0) -> int:
        """Wait for the agent's end and return its exit code."""
        return self.process.wait(timeout)


class Workers:
    """Starts agents in `folder` and kills them at the end of the test."""

    def __init__(self, folder: Path, operator: OperatorStandIn) -> None:
        self.folder = folder
        self.operator = operator
        self.storage = folder / "storage"
        self._started: list[Worker] = []

    def config(self, script: str, *, slot: int = 0, **more: object) -> AgentConfig:
        """A worker whose processes run `script`, python code."""
        config = a_config(
            self.folder,
            slot=slot,
            worker=f"run-{slot}-1",
            operator_url=self.operator.url,
            directory=str(self.folder / f"node-{slot}"),
            command=(sys.executable, "-c", script),
            working_dir=str(self.folder),
        )
        return replace(config, **more)  # type: ignore[arg-type]

    def start(
        self,
        script: str,
        *,
        slot: int = 0,
        read: bool = True,
        agent: Sequence[str] = AGENT,
        env: Mapping[str, str | None] | None = None,
        **more: object,
    ) -> Worker:
        """Start an agent."""
        config = self.config(script, slot=slot, **more)
        worker = Worker(config, self.folder, read=read, agent=agent, env=env)
        self._started.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._started:
            if worker.process.poll() is None:
                worker.kill()
            if worker.process.stdout is not None:
                worker.process.stdout.close()


def start(
    attempt: int = 1, *, workers: int = 1, per_worker: int = 1, resume: CheckpointId | None = None
) -> Start:
    """A start order."""
    return Start(
        attempt=attempt,
        workers=workers,
        world_size=workers * per_worker,
        master_addr="127.0.0.1",
        master_port=29999,
        resume=resume,
    )


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
