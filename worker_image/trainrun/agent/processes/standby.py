"""One standby interpreter: started, loaded, handed over once, if necessary while still loading.

Layer: agent. A standby is a rank's process before its start: with the rank's command, working
directory and pipes, in its own session, bound to the agent's life (see `standby_start`). First a
probe checks that this interpreter, with these options, stops at our hook; otherwise it would run
the script.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pkgutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainrun._common.kernel import memory_of
from trainrun.agent.processes.group import Launch
from trainrun.agent.processes.launches import PythonCommand
from trainrun.agent.processes.procfs import PROC
from trainrun.agent.processes.spawn import Spawned, StartFailed, kill_group, spawn
from trainrun.contract import variables

HAND_OVER = 1.0
"""Seconds that a standby may take to become the rank's process; usually a few milliseconds."""
NOT_READY = "its standby had only just been started"
FIRST_TO_GO = "1000"
"""oom_score_adj: the kernel kills standbys first when memory is short."""


@dataclass(slots=True, kw_only=True)
class Standby:
    """It loads, then is ready, until it is taken or has ended."""

    beginning: Launch
    """Its launch, which the rank's launch must match: without launcher, and with only the part of
    the environment that is the same for every attempt."""
    python: PythonCommand
    preload: str
    """The modules to import, in the format of `standby_start`."""
    folder: Path
    """Holds `sitecustomize.py`."""
    changed: Callable[[], None]
    """Called when it is ready or has ended."""
    began: float = field(default_factory=time.monotonic)
    ready: bool = False
    gone: str = ""
    """Why it cannot be used; empty: it can."""
    taken: float = 0.0
    """When it was handed over while loading, on the monotonic clock; 0: it was not. The rank's
    process owns its output then."""
    seconds: float = 0.0
    """From its start until it was ready."""
    memory: int = 0
    """Bytes that it used when it was ready; 0: unknown."""
    pids: set[int] = field(default_factory=set)
    """Of its processes."""
    _replies: bytes = b""
    _spawned: Spawned | None = None
    _channel: socket.socket | None = None
    _probe: Spawned | None = None

    def start(self) -> None:
        """Start the probe, which starts the standby."""
        environment = self._environment("probe")
        command = (self.python.interpreter, *self.python.options, "-c", "raise SystemExit(1)")
        try:
            self._probe = probe = spawn(command, self.beginning.working_dir, environment)
        except StartFailed as error:
            self._fail(str(error))
            return
        self.pids.add(probe.pid)
        os.set_blocking(probe.output, False)
        asyncio.get_running_loop().add_reader(probe.output, self._probed, probe)

    def take(self, environment: Mapping[str, str]) -> Spawned | None:
        """Make it the process with this environment; None: that failed, and it is ended.

        If it still loads, it becomes the process after the current import, which is still earlier
        than a cold start. `taken` is the time of the request; `changed` reports the result.
        """
        spawned, channel = self._spawned, self._channel
        if spawned is None or channel is None:
            self.stop(NOT_READY)
            return None
        entries = (f"{name}={value}" for name, value in environment.items())
        message = b"\0".join(map(os.fsencode, entries)) + b"\0\0"
        try:
            # Reset its score first: if that fails, the training would keep it.
            _set_oom_score(spawned.pid, _own_oom_score())
            if self.ready:
                _hand_over(channel, message)
            elif channel.send(message) < len(message):  # the standby does not read yet
                raise OSError("its environment is too long")
            else:
                channel.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.stop(f"it did not answer: {error}" if self.ready else NOT_READY)
            return None
        if self.ready:
            self._is_rank(spawned)
        else:
            self.taken = time.monotonic()
        return spawned

    def reaped(self, pid: int) -> None:
        """One of its processes has ended."""
        self.pids.discard(pid)
        if self._spawned is not None and pid == self._spawned.pid:
            self._spawned_ended(self._spawned)

    def lost(self, why: str) -> None:
        """It was handed over while loading and ended before it became the rank's process."""
        self._close()
        self._fail(why)

    def stop(self, why: str) -> None:
        """End it."""
        self._kill()
        self._close()
        self._fail(why)

    def _probed(self, probe: Spawned) -> None:
        try:
            reply = os.read(probe.output, 256)
        except BlockingIOError:
            return
        self._close_probe()
        if reply != variables.STANDBY_NAME.encode():
            self._kill()
            self._fail("its interpreter does not run sitecustomize from PYTHONPATH")
            return
        try:
            self._load()
        except (StartFailed, OSError) as error:
            self._fail(str(error))

    def _load(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            environment = self._environment(f"{theirs.fileno()} {self.preload}")
            beginning = self.beginning
            self._spawned = spawned = spawn(
                beginning.command, beginning.working_dir, environment, keep=(theirs.fileno(),)
            )
        except StartFailed:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pids.add(spawned.pid)
        with contextlib.suppress(OSError):
            _set_oom_score(spawned.pid, FIRST_TO_GO)
        self._channel = ours
        ours.setblocking(False)  # noqa: FBT003
        asyncio.get_running_loop().add_reader(ours, self._read_reply, ours, spawned)

    def _read_reply(self, channel: socket.socket, spawned: Spawned) -> None:
        try:
            reply = channel.recv(16)
        except BlockingIOError:
            return
        except OSError:
            reply = b""
        self._replies += reply
        if self._replies == b"readytaken":
            self._is_rank(spawned)
            self.changed()
        elif reply:
            if not self.taken:
                self.ready = True
                self.seconds = time.monotonic() - self.began
                self.memory = memory_of(spawned.pid)
                self.changed()
        else:
            # It is ending; `reaped` reads the reason.
            asyncio.get_running_loop().remove_reader(channel)
            self.ready = False

    def _is_rank(self, spawned: Spawned) -> None:
        """It has become the rank's process: forget it here."""
        self.pids.discard(spawned.pid)
        self._spawned, self.ready, self.taken = None, False, 0.0
        self._close()

    def _spawned_ended(self, spawned: Spawned) -> None:
        why = "it ended"
        os.set_blocking(spawned.output, False)
        with contextlib.suppress(OSError):
            last = os.read(spawned.output, 65536).decode(errors="replace").splitlines()
            why = f"it ended: {last[-1][:300]}" if last else why
        self._close()
        self._fail(why)

    def _kill(self) -> None:
        for pid in self.pids:
            kill_group(pid)

    def _environment(self, value: str) -> dict[str, str]:
        environment = dict(self.beginning.environment)
        before = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self.folder), before)))
        environment[variables.STANDBY] = value
        return environment

    def _close_probe(self) -> None:
        if self._probe is not None:
            asyncio.get_running_loop().remove_reader(self._probe.output)
            os.close(self._probe.output)
            self._probe = None

    def _close(self) -> None:
        self._close_probe()
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._channel = None
        if self._spawned is not None:
            if not self.taken:
                os.close(self._spawned.output)
            self._spawned = None

    def _fail(self, why: str) -> None:
        self.ready = False
        if not self.gone:
            self.gone = why
            self.changed()


def _hand_over(channel: socket.socket, message: bytes) -> None:
    """Raises OSError."""
    asyncio.get_running_loop().remove_reader(channel)
    channel.settimeout(HAND_OVER)
    channel.sendall(message)
    channel.shutdown(socket.SHUT_WR)
    if channel.recv(16) != b"taken":
        raise OSError("it ended")


def write_start(folder: Path) -> None:
    """Write the `sitecustomize.py` that makes an interpreter a standby. Raises OSError."""
    source = pkgutil.get_data(__package__ or "", "standby_start.py")
    assert source is not None
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "sitecustomize.new"
    new.write_bytes(source)
    new.replace(folder / "sitecustomize.py")


def _own_oom_score() -> str:
    try:
        return (PROC / "self" / "oom_score_adj").read_text().strip()
    except OSError:
        return "0"


def _set_oom_score(pid: int, score: str) -> None:
    file = PROC / str(pid) / "oom_score_adj"
    if file.exists() and file.read_text().strip() != score:
        file.write_text(score)
