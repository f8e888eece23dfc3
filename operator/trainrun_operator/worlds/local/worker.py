"""One worker of a local run: its state, its agent as a child process, and killing its processes.

Layer: worlds/local. Invariants: an ended worker never runs again; a new one gets a new name. The
event loop's thread, which is the main one, spawns agents: an agent dies with the thread that
started it (parent-death signal). Agents and their descendants carry the worker's folder in their
environment. So processes of a dead leader, of a killed agent, and grandchildren in their own
sessions are found without recording pids, and a reused pid is never hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import IO

from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import Notice
from trainrun.contract.ages import aged
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerFact, WorkerLoss
from trainrun_operator.worlds.base import AgentContact

_ROUNDS = 50
_PAUSE = 0.02
LONGEST_LINE = 64 * 1024
"""Bytes; a longer line is passed on in pieces."""
OUTPUT_FILE = "output.log"
"""In the worker's folder: its whole output."""


def kill_all(folder: Path) -> int:
    """SIGKILL all processes of the worker folder, or of the folders below; wait until they ended.

    Returns how many there were. A process may fork meanwhile, so this kills in rounds until one
    finds nothing, for one second at most.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_kill_once(folder))
        if not found:
            break
        killed |= found
        time.sleep(_PAUSE)
    return len(killed)


def has_processes(folder: Path) -> bool:
    """Whether a process of the worker folder, or of the folders below, is running."""
    return any(True for _ in _processes(folder))


def signal_child(
    number: signal.Signals, parent: int, folder: Path, *, rank: int, if_: Callable[[], bool]
) -> None:
    """Signal the training process of `rank` that the agent `parent` of this folder has started.

    Does nothing if none is running or `if_`, called just before, is false. Skips a standby.
    """
    for pid, handle in _processes(folder, f"{variables.RANK}={rank}".encode()):
        if stat_of(pid)[1:2] == [str(parent)] and not _stands_by(pid) and if_():
            signal.pidfd_send_signal(handle, number)


def _kill_once(folder: Path) -> Iterator[int]:
    for pid, handle in _processes(folder):
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            continue
        yield pid


def _processes(folder: Path, *marks: bytes) -> Iterator[tuple[int, int]]:
    """(pid, pidfd) of processes of a folder, or of those below, with `marks` in their environment.

    Each pidfd is open until the next iteration.
    """
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue  # ended, or a thread
        try:
            # Read after opening the pidfd, so it is the environment of the process we signal.
            if _belongs(pid, folder, marks):
                yield pid, handle
        finally:
            os.close(handle)


def _belongs(pid: int, folder: Path, marks: tuple[bytes, ...]) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # ended, or another user's
    mark = f"{variables.NODE_FOLDER}={folder}".encode()
    here = any(entry == mark or entry.startswith(mark + b"/") for entry in environ)
    return here and all(other in environ for other in marks)


def _stands_by(pid: int) -> bool:
    """Whether it is a standby, by its name: its environment stays that of its start."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
        return name == variables.STANDBY_NAME
    except OSError:
        return False


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # "pid (name) state ppid ...": the name may contain spaces and brackets.
    return stat.rpartition(")")[2].split()


class AgentProcess(asyncio.SubprocessProtocol):
    """A running or ended agent and its output."""

    def __init__(
        self, folder: Path, *, on_line: Callable[[str], None], on_exit: Callable[[int], None]
    ) -> None:
        """`on_exit` gets the exit code, 128 + number if a signal ended it."""
        self._folder = folder
        self._on_line = on_line
        self._on_exit = on_exit
        self._log: IO[bytes] = (folder / OUTPUT_FILE).open("ab", buffering=0)
        self._partial = b""
        self._transport: asyncio.SubprocessTransport | None = None

    @staticmethod
    async def spawn(
        config: AgentConfig,
        *,
        environ: Mapping[str, str],
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> AgentProcess:
        """Start an agent in its folder, which must exist. Raises OSError."""
        folder = Path(config.directory)
        loop = asyncio.get_running_loop()
        _, process = await loop.subprocess_exec(
            lambda: AgentProcess(folder, on_line=on_line, on_exit=on_exit),
            sys.executable,
            # -P: modules in the current folder must not shadow those of the library.
            *("-P", "-u", "-m", "trainrun.agent"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env={
                **environ,
                variables.AGENT_CONFIG: config.to_json(),
                variables.NODE_FOLDER: str(folder),
            },
            # Ctrl-C in the terminal must reach only `trainrun run`.
            start_new_session=True,
        )
        return process

    @property
    def pid(self) -> int:
        """Its process id, which is also its process group's."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._transport is not None and self._transport.get_returncode() is None

    def notify(self) -> None:
        """Send SIGTERM: the notice that it ends after its grace period."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL it and everything that runs in its folder."""
        if self.alive:
            # Its group first: an agent that saw its processes die would report it.
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        kill_all(self._folder)

    def close(self) -> None:
        """Read its remaining output, then close its pipe and its transport."""
        if self._transport is not None:
            self._drain(self._transport)
            self._transport.close()

    # --------------------------------------------------------- asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process has started."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002
        """It printed something."""
        # If the disk is full, the user still sees the lines.
        with contextlib.suppress(OSError):
            self._log.write(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._on_line(line.decode(errors="replace").rstrip("\r"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """The output has ended."""
        if self._partial:
            self._on_line(self._partial.decode(errors="replace"))
            self._partial = b""
        self._log.close()

    def _drain(self, transport: asyncio.SubprocessTransport) -> None:
        """Read what is in the pipe now, no longer: another process may hold the other end."""
        pipe = transport.get_pipe_transport(1)
        file = pipe.get_extra_info("pipe") if pipe is not None else None
        if file is None or file.closed or self._log.closed:
            return  # read to its end
        descriptor = file.fileno()
        left = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
        with contextlib.suppress(BlockingIOError):
            while left > 0 and (data := os.read(descriptor, left)):
                left -= len(data)
                self.pipe_data_received(1, data)

    def process_exited(self) -> None:
        """The process has ended."""
        assert self._transport is not None
        # Its end may be noticed before its last output is read.
        self._drain(self._transport)
        code = self._transport.get_returncode() or 0
        self._on_exit(code if code >= 0 else 128 - code)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The process and its output have ended."""
        self.close()


@dataclass(slots=True, kw_only=True)
class LocalWorker:
    """A process group in a folder of its own."""

    name: str
    slot: int
    created_for: int
    template_hash: str
    folder: Path
    agent: AgentProcess | None = None
    created: float = field(default_factory=time.monotonic)
    ended: bool = False
    exit_code: int | None = None
    away: str = ""
    """Why it cannot reach the store, by its last heartbeat; empty: it can."""
    trains: bool = False
    """Whether its processes run, by its last heartbeat."""
    _loss: tuple[WorkerLoss, float] | None = None
    _notice: tuple[Notice, float] | None = None

    def lose(self, cause: Cause, message: str) -> None:
        """Record why it was lost; the first reason counts."""
        if self._loss is None:
            self._loss = (WorkerLoss(cause=cause, message=message), time.monotonic())

    @property
    def stays(self) -> bool:
        """Whether it has not ended, was not lost, and got no notice."""
        return not self.ended and self._loss is None and self._notice is None

    def announce(self, notice: Notice) -> None:
        """Record that it got a notice."""
        self._notice = (notice, time.monotonic())

    def fact(self, contact: AgentContact) -> WorkerFact:
        """The worker's facts for the core."""
        now = time.monotonic()
        return WorkerFact(
            name=self.name,
            slot=self.slot,
            created_for=self.created_for,
            template_hash=self.template_hash,
            phase="Ended" if self.ended else "Running",
            node=self.folder.name,
            age=timedelta(seconds=now - self.created),
            exit_code=self.exit_code,
            loss=self._loss and replace(self._loss[0], age=timedelta(seconds=now - self._loss[1])),
            notice=self._notice and aged(self._notice[0], by=now - self._notice[1]),
            agent=contact.state,
            silent_for=contact.silent_for,
            unreadable=contact.unreadable,
        )
