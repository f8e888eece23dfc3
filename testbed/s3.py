"""The S3 server of a cluster: versitygw over a folder, for pods and for this machine."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from testbed.binaries import binary
from testbed.errors import ClusterBroken
from testbed.versitygw import answers, arguments, client_environment, root_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from testbed.processes import Processes

_NAME = "s3"


class Server(Protocol):
    """How the server runs: as a process, or as a container."""

    def start(self, *, access_key: str, secret_key: str) -> None: ...
    def stop(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def is_running(self) -> bool: ...
    def log(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """versitygw as a process of the cluster."""

    processes: Processes
    address: str
    folder: Path

    def start(self, *, access_key: str, secret_key: str) -> None:
        command = [binary("versitygw"), *arguments(self.address, self.folder)]
        self.processes.start(_NAME, command, environment=root_keys(access_key, secret_key))

    def stop(self) -> None:
        self.processes.kill(_NAME)

    def freeze(self) -> None:
        self.processes.signal(_NAME, signal.SIGSTOP)

    def thaw(self) -> None:
        self.processes.signal(_NAME, signal.SIGCONT)

    def is_running(self) -> bool:
        return self.processes.pid(_NAME) is not None

    def log(self) -> str:
        return self.processes.log_of(_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """One server; its data stay when it is stopped and started."""

    locate: Callable[[], str]
    """Where it is once it runs; may raise while it does not."""
    access_key: str
    secret_key: str
    folder: Path
    server: Server

    @property
    def endpoint(self) -> str:
        """Its URL, for pods and for this machine."""
        return self.locate()

    @property
    def data(self) -> Path:
        """Buckets are the folders in here, objects their files."""
        return self.folder / "data"

    def start(self) -> None:
        """Start it unless it runs; return once it answers."""
        if not self.is_running():
            for name in ("data", "iam"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self.server.start(access_key=self.access_key, secret_key=self.secret_key)
        deadline = time.monotonic() + 20
        while not answers(self.endpoint):
            if not self.is_running() or time.monotonic() > deadline:
                raise ClusterBroken(f"versitygw did not start: {self.server.log()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill it: connections are refused until it is started again."""
        self.server.stop()

    def freeze(self) -> None:
        """Stop it in its tracks: connections are taken, and nothing is answered."""
        self.server.freeze()

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self.server.thaw()

    def change_secret(self, secret_key: str) -> None:
        """Restart it with another secret: whoever uses `secret_key` of this object is refused.

        `change_secret(s3.secret_key)` makes it good again.
        """
        self.stop()
        replace(self, secret_key=secret_key).start()

    def is_running(self) -> bool:
        """Whether its process is there."""
        return self.server.is_running()

    def make_bucket(self, name: str) -> str:
        """Make a bucket if it is not there yet; return its name."""
        (self.data / name).mkdir(exist_ok=True)
        return name

    def environment(self) -> dict[str, str]:
        """What a client process needs to know."""
        return client_environment(self.endpoint, self.access_key, self.secret_key)
