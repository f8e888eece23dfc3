"""One worker of a local run: what is known of it, its agent as a child process, and their end.

Layer: worlds/local. Invariants: an ended worker never runs again; a new one gets a new name. Agents
are spawned by the event loop's thread, which is the main one: an agent dies with the thread that
started it (parent-death signal). Agents and all that they start carry the worker's folder in their
environment, so that nothing has to be recorded: processes of a dead leader, of a killed agent and
grandchildren in sessions of their own are found alike, and no pid that was used again is ever hit.
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
"""In the worker's folder: everything that it printed."""


def kill_all(folder: Path) -> int:
    """SIGKILL all processes of the worker folder, or of the folders below; wait until they ended.

    Returns how many there were. A process may fork while we look, hence the rounds (one second in
    all): each kills what is there, the last finds nothing.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_kill_once(folder))
        if not found:
            break
        killed |= found
        time.sleep(_PAUSE)
    return len(killed)


def has_any(folder: Path) -> bool:
    """Whether a process of the worker folder, or of the folders below, runs."""
    return any(True for _ in _processes(folder))


def signal_child(
    number: signal.Signals, parent: int, folder: Path, *, rank: int, if_: Callable[[], bool]
) -> None:
    """Signal the training process of `rank` that the agent `parent` of this folder has started.

    Nothing where none runs; `if_` is asked just before. A standby of the rank is left alone.
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
    """(pid, pidfd) of the processes of a folder, or of those below, with this in their environment.

    The pidfd is open until the next one is asked for.
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
            # Read after the handle was taken: the environment is that of the process we signal.
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
    """By its name, since its environment stays what it was started with."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
        return name == variables.STANDBY_NAME
    except OSError:
        return False


def stat_of(pid: int) -> list[str]:
    """The fields of its /proc/PID/stat from its state on; none where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # "pid (name) state ppid ...": the name may hold anything, spaces and brackets too.
    return stat.rpartition(")")[2].split()


class AgentProcess(asyncio.SubprocessProtocol):
    """A running or ended agent and its output."""

    def __init__(
        self, folder: Path, *, on_line: Callable[[str], None], on_exit: Callable[[int], None]
    ) -> None:
        """`on_exit` gets the exit code, 128 + number where a signal ended it."""
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
            # -P: modules in the current folder must not stand in for those of the library.
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
            # Ctrl-C in the terminal is for `trainrun run` alone.
            start_new_session=True,
        )
        return process

    @property
    def pid(self) -> int:
        """Its process id, also of its process group."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._transport is not None and self._transport.get_returncode() is None

    def notify(self) -> None:
        """SIGTERM: it will be taken away after its grace period."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL it and everything that runs in its folder."""
        if self.alive:
            # Its group first: an agent that sees its processes die would start to report it.
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        kill_all(self._folder)

    def close(self) -> None:
        """Nobody listens any more: take what it has printed, let go of its pipe, and of it."""
        if self._transport is not None:
            self._drain(self._transport)
            self._transport.close()

    # --------------------------------------------------------- asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002
        """It printed something."""
        # The user still sees the lines where the disk has no room for a copy of them.
        with contextlib.suppress(OSError):
            self._log.write(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._on_line(line.decode(errors="replace").rstrip("\r"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """Nobody can print there any more."""
        if self._partial:
            self._on_line(self._partial.decode(errors="replace"))
            self._partial = b""
        self._log.close()

    def _drain(self, transport: asyncio.SubprocessTransport) -> None:
        """Take what is in the pipe, and no more: somebody else may hold its other end."""
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
        """It ended, however that came about."""
        assert self._transport is not None
        # The end of the process may be seen before its last words are read.
        self._drain(self._transport)
        code = self._transport.get_returncode() or 0
        self._on_exit(code if code >= 0 else 128 - code)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It has ended, and its output too."""
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
    """Why it does not reach the store, by its last heartbeat."""
    trains: bool = False
    """Its processes run, by its last heartbeat."""
    _loss: tuple[WorkerLoss, float] | None = None
    _notice: tuple[Notice, float] | None = None

    def lose(self, cause: Cause, message: str) -> None:
        """Remember why it is gone; the first reason stands."""
        if self._loss is None:
            self._loss = (WorkerLoss(cause=cause, message=message), time.monotonic())

    @property
    def stays(self) -> bool:
        """It is there to stay, as far as is known."""
        return not self.ended and self._loss is None and self._notice is None

    def announce(self, notice: Notice) -> None:
        """Remember that it was told to leave."""
        self._notice = (notice, time.monotonic())

    def fact(self, contact: AgentContact) -> WorkerFact:
        """What the core may know of it."""
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
