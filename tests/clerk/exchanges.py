"""A clerk as a process, and the desk that it reports to: a real server, a real log in a folder."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.variables import CLERK_CONFIG
from trainrun.sweep.records import SweepSession, Targets
from trainrun.sweep.view import SweepView
from trainrun_operator.api.sweep.spec import TrainSweepSpec
from trainrun_operator.core.sweep.clerking import ClerkConfig, ClerkOrders
from trainrun_operator.core.sweep.config import immutable_part
from trainrun_operator.runtime.agent_server import AgentServer, shared_token
from trainrun_operator.runtime.clerk_exchange import ClerkExchange

UID = "sweep-uid-1"
SECONDS = 30.0


def spec(**changes: Any) -> dict[str, Any]:
    """Of a TrainSweep, as it stands in the object."""
    container = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
    return {
        "storage": {"uri": "s3://bucket/sweeps"},
        "objective": {"metric": "loss", "goal": "minimize"},
        "space": [{"name": "lr", "float": {"low": 0.001, "high": 0.1, "log": True}}],
        "budget": {"trials": 100},
        "run": {"workers": {"template": {"spec": {"containers": [container]}}}},
        **changes,
    }


def session(**changes: Any) -> SweepSession:
    """That of the sweep of `spec`."""
    return SweepSession(uid=UID, spec=immutable_part(TrainSweepSpec(**spec())), **changes)


@dataclass
class Bureau:
    """One sweep's desk, and its clerks."""

    folder: Path
    exchange: ClerkExchange
    server: AgentServer
    port: int
    uri: str
    """Of the storage."""
    clerks: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    async def open(cls, folder: Path, *, port: int = 0, uri: str = "") -> Bureau:
        """An operator that knows nothing yet; `uri`: of the storage, a folder of its own by
        default."""
        (folder / "storage").mkdir(exist_ok=True)
        exchange = ClerkExchange(sweep_uid=UID, on_news=lambda: None)
        server = AgentServer(authenticate=shared_token("secret"))
        server.clerks.add(exchange)
        uri = uri or (folder / "storage").as_uri()
        return cls(folder, exchange, server, await server.start("127.0.0.1", port=port), uri)

    async def close(self) -> None:
        for clerk in self.clerks:
            clerk.kill()
            clerk.wait()
            if clerk.stderr is not None:
                clerk.stderr.close()
        await self.server.stop()

    def start_clerk(self, *, pythonpath: str = "") -> subprocess.Popen[str]:
        """`pythonpath` comes before all else."""
        token = self.folder / "token"
        token.write_text("secret")
        config = ClerkConfig(
            sweep="team/search",
            sweep_uid=UID,
            storage=StorageConfig(uri=self.store.uri, run_name="search"),
            operator_url=f"http://127.0.0.1:{self.port}",
            token_file=str(token),
        )
        path = os.pathsep.join(filter(None, [pythonpath, os.environ.get("PYTHONPATH", "")]))
        clerk = subprocess.Popen(
            [sys.executable, "-m", "trainrun_operator.clerk"],
            env={**os.environ, "PYTHONPATH": path, CLERK_CONFIG: config.to_json()},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.clerks.append(clerk)
        return clerk

    @property
    def store(self) -> Any:
        return open_store(self.uri)

    def order(self, *, working: bool = False, spec_changes: Any = None, **targets: Any) -> None:
        """What the log is to hold, from now on."""
        wanted = Targets(**{"session": session(), **targets})
        changed = spec(**(spec_changes or {}))
        self.exchange.order(ClerkOrders(spec=changed, targets=wanted, working=working))

    def report(self, trial: int, *values: float, attempt: int = 1, metric: str = "loss") -> None:
        """What a trial stores of its metrics, one value a step."""
        run = RunStore(self.store, f"search/trials/{trial:05}")
        MetricsLog(attempt).write(
            run,
            [
                {"step": step, "rank": 0, "metrics": {metric: value}}
                for step, value in enumerate(values, start=1)
            ],
        )

    async def view(self, holds: Callable[[SweepView], object], what: str) -> SweepView:
        """The log, once it is known as a whole and this holds."""
        deadline = asyncio.get_running_loop().time() + SECONDS
        while not (isinstance(log := self.exchange.log(), SweepView) and holds(log)):
            assert asyncio.get_running_loop().time() < deadline, f"{what}: {log}"
            await asyncio.sleep(0.01)
        return log
