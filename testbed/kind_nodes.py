"""A node of kind: a container whose first process is systemd."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken

if TYPE_CHECKING:
    import signal
    from pathlib import Path

    from testbed.engine import Engine

_UNPLUGGED = "inet trainrun_unplugged"
_DROP_ALL = f"""
table {_UNPLUGGED} {{
  chain received {{
    type filter hook prerouting priority raw;
    iifname "eth0" drop
  }}
  chain sent {{
    type filter hook postrouting priority srcnat + 1;
    oifname "eth0" drop
  }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindNode:
    """A worker of kind; `name` is its name in Kubernetes and that of its container."""

    name: str
    engine: Engine

    @property
    def ip(self) -> str:
        return self.engine.address(self.name)

    def is_on(self) -> bool:
        state = self.engine.run("inspect", "--format", "{{.State.Running}}", self.name)
        return state.strip() == "true"

    def power_on(self) -> None:
        # A container that starts has a fresh network: nothing is unplugged any more.
        if not self.is_on():
            self.engine.run("start", self.name, timeout=120)

    def power_off(self) -> None:
        if self.is_on():
            self.unplug()
            self.crash()

    def crash(self) -> None:
        if self.is_on():
            self.engine.run("kill", self.name)

    def plug(self) -> None:
        if self.is_on():
            self.run("nft", "-f", "-", text=f"table {_UNPLUGGED}\ndelete table {_UNPLUGGED}\n")

    def unplug(self) -> None:
        # Docker would give another address to a container that is connected anew, and a link that
        # was down has lost its routes.
        self.plug()
        self.run("nft", "-f", "-", text=_DROP_ALL)

    def run(self, *command: str | Path, text: str = "", timeout: float = 60.0) -> str:
        try:
            return self.engine.run(*self._inside, *command, text=text, timeout=timeout)
        except ClusterBroken:
            if not self.is_on():
                raise ClusterBroken(f"node {self.name} has no power") from None
            raise

    def start_in_background(self, *command: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.engine.program, *self._inside, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.engine.environment},
        )

    @property
    def _inside(self) -> tuple[str, ...]:
        return ("exec", "--interactive", "--privileged", self.name)

    def start_kubelet(self) -> None:
        self.run("systemctl", "start", "kubelet")

    def signal_kubelet(self, which: signal.Signals) -> None:
        # systemd would start a killed kubelet again.
        kill = ("systemctl", "kill", "--kill-whom=main", f"--signal={which.name}", "kubelet")
        if which.name == "SIGKILL":
            self.run("bash", "-c", f"{' '.join(kill)}; systemctl stop kubelet")
        else:
            self.run(*kill)
