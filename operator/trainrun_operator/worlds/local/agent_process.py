"""One agent as a child process: spawned, listened to, killed.

Layer: worlds/local. Spawned by the event loop's thread, which is the main one: an agent dies with
the thread that started it (parent-death signal).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig
from trainrun_operator.worlds.local.leftovers import kill_all

LONGEST_LINE = 64 * 1024
"""Bytes; a longer line is passed on in pieces."""

OUTPUT_FILE = "output.log"
"""In the worker's folder: everything that it printed."""


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
