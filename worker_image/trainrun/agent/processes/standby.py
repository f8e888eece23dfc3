"""One standby interpreter: started, loaded, handed over once, if need be while it still loads.

Layer: agent. It is the process of a rank that has not begun: the rank's own command, working
directory and pipes, in a session of its own, bound to the agent's life (see `standby_start`). First
a probe shows that this interpreter, with these options, comes to stand by at all; otherwise it
would run the script.
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
"""Seconds that a standby may take to be the rank's process; a few milliseconds are usual."""
NOT_READY = "its standby had only just been started"
FIRST_TO_GO = "1000"
"""oom_score_adj: where memory is short the kernel ends a standby first."""


@dataclass(slots=True, kw_only=True)
class Standby:
    """It loads, then is ready, until it is taken or has gone."""

    beginning: Launch
    """What it is started with, and must be taken for: without launcher, and of the environment
    the part that is the same for every attempt."""
    python: PythonCommand
    preload: str
    """What it imports, as `standby_start` reads it."""
    folder: Path
    """Holds `sitecustomize.py`."""
    changed: Callable[[], None]
    """It is ready, or has gone."""
    began: float = field(default_factory=time.monotonic)
    ready: bool = False
    gone: str = ""
    """Why it is of no use any more."""
    taken: float = 0.0
    """When it was handed over while it was loading, on the monotonic clock; 0: it was not. Its
    output is another's then."""
    seconds: float = 0.0
    """From its start until it was ready."""
    memory: int = 0
    """Bytes that it took when it was ready; 0: nobody knows."""
    pids: set[int] = field(default_factory=set)
    """Of what runs for it."""
    _said: bytes = b""
    _spawned: Spawned | None = None
    _channel: socket.socket | None = None
    _probe: Spawned | None = None

    def start(self) -> None:
        """Begin with the probe."""
        environment = self._environment("probe")
        command = (self.python.interpreter, *self.python.options, "-c", "raise SystemExit(1)")
        try:
            self._probe = spawn(command, self.beginning.working_dir, environment)
        except StartFailed as error:
            self._fail(str(error))
            return
        self.pids.add(self._probe.pid)
        os.set_blocking(self._probe.output, False)
        asyncio.get_running_loop().add_reader(self._probe.output, self._probed)

    def take(self, environment: Mapping[str, str]) -> Spawned | None:
        """Make it the process with this environment; None: it cannot be, and is gone.

        One that still loads ends the import under way and is the process then: it has begun before
        a cold start would. `taken` says when it was told; whether it came that far, `changed`.
        """
        spawned, channel = self._spawned, self._channel
        if spawned is None or channel is None:
            self.stop(NOT_READY)
            return None
        entries = (f"{name}={value}" for name, value in environment.items())
        told = b"\0".join(map(os.fsencode, entries)) + b"\0\0"
        try:
            # What it cannot have back it must not keep for the training.
            _set_oom_score(spawned.pid, _own_oom_score())
            if self.ready:
                _hand_over(channel, told)
            elif channel.send(told) < len(told):  # nobody reads it yet
                raise OSError("its environment is too long")
            else:
                channel.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.stop(f"it did not answer: {error}" if self.ready else NOT_READY)
            return None
        if self.ready:
            self._is_rank()
        else:
            self.taken = time.monotonic()
        return spawned

    def reaped(self, pid: int) -> None:
        """A process of it has ended."""
        self.pids.discard(pid)
        if self._spawned is not None and pid == self._spawned.pid:
            self._spawned_ended(self._spawned)

    def lost(self, why: str) -> None:
        """What was handed over while it was loading has ended before it was the rank's process."""
        self._close()
        self._fail(why)

    def stop(self, why: str) -> None:
        """End it."""
        self._kill()
        self._close()
        self._fail(why)

    def _probed(self) -> None:
        probe = self._probe
        assert probe is not None
        try:
            said = os.read(probe.output, 256)
        except BlockingIOError:
            return
        self._close_probe()
        if said != variables.STANDBY_NAME.encode():
            self._kill()
            self._fail("its interpreter runs no sitecustomize from PYTHONPATH")
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
            self._spawned = spawn(
                beginning.command, beginning.working_dir, environment, keep=(theirs.fileno(),)
            )
        except StartFailed:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pids.add(self._spawned.pid)
        with contextlib.suppress(OSError):
            _set_oom_score(self._spawned.pid, FIRST_TO_GO)
        self._channel = ours
        ours.setblocking(False)  # noqa: FBT003
        asyncio.get_running_loop().add_reader(ours, self._heard)

    def _heard(self) -> None:
        assert self._channel is not None
        try:
            said = self._channel.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._said += said
        if self._said == b"readytaken":
            self._is_rank()
            self.changed()
        elif said and self._spawned is not None:
            if not self.taken:
                self.ready = True
                self.seconds = time.monotonic() - self.began
                self.memory = memory_of(self._spawned.pid)
                self.changed()
        else:
            # It ends, and why it does is read then.
            asyncio.get_running_loop().remove_reader(self._channel)
            self.ready = False

    def _is_rank(self) -> None:
        """Nothing of it is left here."""
        assert self._spawned is not None
        self.pids.discard(self._spawned.pid)
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

    def _environment(self, told: str) -> dict[str, str]:
        environment = dict(self.beginning.environment)
        before = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self.folder), before)))
        environment[variables.STANDBY] = told
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


def _hand_over(channel: socket.socket, told: bytes) -> None:
    """Raises OSError."""
    asyncio.get_running_loop().remove_reader(channel)
    channel.settimeout(HAND_OVER)
    channel.sendall(told)
    channel.shutdown(socket.SHUT_WR)
    if channel.recv(16) != b"taken":
        raise OSError("it ended")


def write_start(folder: Path) -> None:
    """Write what makes an interpreter a standby. Raises OSError."""
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
