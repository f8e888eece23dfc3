"""The processes of a cluster: started detached, found again by a file, ended as a whole.

All of them live in one PID namespace whose first process, the holder, does nothing. When the
holder is killed the kernel kills the rest, nodes and containers included: there is nothing to
search for, whatever became of the program that started them. The holder itself is known by the
state folder in its command line, so that it is found even if that program died at once.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken
from testbed.packages import SUPERUSER_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PROC = Path("/proc")
# Ignoring SIGCHLD lets the kernel reap what is orphaned in the namespace.
_HOLD = "trap '' CHLD; exec -a \"$0 $1\" sleep infinity"
_HOLDER = "trainrun-cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The processes of the cluster whose state lies in `state`."""

    state: Path

    def holder(self) -> int | None:
        """The pid of the first process of the cluster's PID namespace, None without one."""
        mark = f"{_HOLDER} {self.state}".encode()
        for pid in _pids():
            if _bytes_of(pid, "cmdline").split(b"\0", 1)[0] == mark:
                return pid
        return None

    def start_holder(self) -> int:
        """Begin the PID namespace that everything else of the cluster lives in."""
        namespace = ["unshare", "--pid", "--fork", "--kill-child"]
        self._detach([*namespace, "bash", "-c", _HOLD, _HOLDER, str(self.state)], "holder", {})
        deadline = time.monotonic() + 10
        while (pid := self.holder()) is None:
            if time.monotonic() > deadline:
                raise ClusterBroken(f"no PID namespace: {self.log_of('holder')}")
            time.sleep(0.005)
        return pid

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        namespaces: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Start a process inside; return its pid as this machine sees it.

        `namespaces` are further options of nsenter, for example the network namespace of a node.
        """
        holder = self.holder()
        if holder is None:
            raise ClusterBroken(f"the cluster in {self.state} is not running")
        enter = ["nsenter", f"--pid=/proc/{holder}/ns/pid", *namespaces, "--"]
        inside = self._detach(command, name, environment or {}, enter)
        pid = _child_called(holder, inside)
        if pid is None:
            raise ClusterBroken(f"{name} ended at once: {self.log_of(name)}")
        self._file(name).write_text(f"{pid} {_birth(pid)}")
        return pid

    def pid(self, name: str) -> int | None:
        """The pid of a process that runs, else None."""
        try:
            pid, birth = self._file(name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if _birth(int(pid)) == birth else None

    def signal(self, name: str, which: signal.Signals) -> None:
        """Send a signal to a process; ClusterBroken when it does not run."""
        pid = self.pid(name)
        if pid is None:
            raise ClusterBroken(f"{name} does not run")
        os.kill(pid, which)

    def kill(self, name: str) -> None:
        """SIGKILL and wait until it is gone; nothing when it does not run.

        Never SIGTERM: kube-apiserver then drains, keeps its port for long, and the next one fails.
        """
        pid = self.pid(name)
        if pid is not None:
            kill_and_wait(pid)

    def kill_all(self) -> None:
        """End every process of the cluster."""
        holder = self.holder()
        if holder is not None:
            # The kernel lets the holder end only after all others of its namespace.
            kill_and_wait(holder)

    def log_of(self, name: str, lines: int = 15) -> str:
        """The end of what a process has written."""
        try:
            text = (self.state / "logs" / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _file(self, name: str) -> Path:
        return self.state / "pids" / name

    def _detach(
        self,
        command: Sequence[str | Path],
        name: str,
        environment: Mapping[str, str],
        enter: Sequence[str] = (),
    ) -> int:
        """Start a command that outlives this program; return its pid in the namespace it is in.

        The shell that starts it enters the namespace first and ends at once, so that the holder
        becomes the parent. An nsenter that stayed as the parent would stop for ever when its child
        is stopped, and a parent outside that is slow to wait would delay the end of the namespace.
        """
        for folder in ("pids", "logs"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        read, write = os.pipe()
        script = f'setsid "$@" {write}>&- & echo $! >&{write}'
        with os.fdopen(read) as answer, (self.state / "logs" / f"{name}.log").open("ab") as log:
            try:
                subprocess.run(
                    [*enter, "bash", "-c", script, "detach", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[write],
                    env={"PATH": SUPERUSER_PATH, "HOME": str(self.state), **environment},
                    timeout=20,
                )
            finally:
                os.close(write)
            pid = answer.readline()
        if not pid:
            raise ClusterBroken(f"{name} did not start: {self.log_of(name)}")
        return int(pid)


def kill_and_wait(pid: int, timeout: float = 30.0) -> None:
    """SIGKILL a process and return once it is gone."""
    birth = _birth(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + timeout
    while _birth(pid) == birth and birth:
        if time.monotonic() > deadline:
            raise ClusterBroken(f"process {pid} did not end within {timeout:.0f} s of SIGKILL")
        time.sleep(0.005)


def _pids() -> Iterator[int]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _child_called(parent: int, inside: int) -> int | None:
    """The child of `parent` that its PID namespace knows as `inside`."""
    children = _bytes_of(parent, f"task/{parent}/children").split()
    for pid in map(int, children):
        numbers = re.search(rb"^NSpid:.*\s(\d+)$", _bytes_of(pid, "status"), re.MULTILINE)
        if numbers and int(numbers[1]) == inside:
            return pid
    return None


def _birth(pid: int) -> str:
    """When a process was started, in ticks since the boot; empty when it is gone or a zombie."""
    fields = _bytes_of(pid, "stat").rpartition(b")")[2].split()
    return "" if not fields or fields[0] in {b"Z", b"X"} else fields[19].decode()


def _bytes_of(pid: int, file: str) -> bytes:
    try:
        return (_PROC / str(pid) / file).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
