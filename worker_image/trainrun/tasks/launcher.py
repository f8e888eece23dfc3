"""The launcher: a process without threads that imports the program and forks each try of a task.

Layer: tasks. It dies with its rank, and tries die with it. If importing the program leaves threads
or a GPU context, a fork may hang, so each try becomes a new interpreter that imports the program
itself. Memory shared by forked processes is divided among them: counted in full for each, it would
make a healthy task look too large.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from trainrun._common.kernel import (
    OomCounter,
    become_subreaper,
    find_counter,
    memory_of,
    signal_on_parent_death,
)
from trainrun._process.excepthook import describe
from trainrun.tasks import main_module, running
from trainrun.tasks.launching import command, kill_group
from trainrun.tasks.main_module import MainModule, Watch
from trainrun.tasks.messages import Imported, StartTry, StopTask, TryEnded, TryStarted
from trainrun.tasks.records import Crashed

LOOK = 0.2
"""Seconds between two checks of what tasks use."""
IMPORTING = 600.0
"""Seconds in which a new interpreter may import the program before its timeout starts."""
ENDING = 2.0
"""Seconds to wait for killed processes; one that waits for a disk may take longer."""
MAIN = "main"
"""File of a try's folder: what a new interpreter imports."""
DEVICES = "CUDA_VISIBLE_DEVICES"
MIB = 1 << 20
PROC = Path("/proc")


@dataclass
class Forked:
    """A running try."""

    order: StartTry
    begun: float
    killed: Crashed | None = None
    """Its end, if the launcher killed it."""

    @property
    def begun_at(self) -> float:
        """When its function was called, or the latest time at which it may be."""
        try:
            return float((self.order.folder / running.BEGUN).read_text())
        except (OSError, ValueError):
            return self.begun + IMPORTING


@dataclass
class Forker:
    """The launcher's loop: orders from the rank, ends of children, limits."""

    rank: Connection
    main: MainModule
    why_exec: str
    """Why tries are not forked; empty if they are."""
    orders: deque[StartTry | StopTask | None] = field(default_factory=deque)
    """Pending orders; None: stop."""
    tasks: dict[int, Forked] = field(default_factory=dict)
    """By process id."""
    handlers: dict[int, Any] = field(default_factory=dict)
    """Signal handlers as the import of the program left them."""
    looked: float = 0.0
    """When limits were last checked."""
    kernel: OomCounter = field(default_factory=lambda: OomCounter(find_counter()))

    def serve(self, wake: int) -> None:
        """Run until the rank stops it or is gone. Raises EOFError and OSError if it is gone."""
        while os.getppid() == self.main.pid:
            patience = 0 if self.orders else LOOK if self.tasks else None
            if wake in wait([self.rank, wake], patience):
                os.read(wake, 1 << 12)
                self._reap()
            while self.rank.poll():  # all of them: else both sides could wait for each other
                self.orders.append(self.rank.recv())
            if self.orders:
                match self.orders.popleft():
                    case None:
                        return
                    case StartTry() as order:
                        self._start(order)
                    case StopTask(run=run):
                        for pid, task in self.tasks.items():
                            if task.order.run == run:
                                kill_group(pid)
            if time.monotonic() >= self.looked + LOOK:
                self.looked = time.monotonic()
                self._enforce()

    def _start(self, order: StartTry) -> None:
        running.flush()  # else the child would print it again
        try:
            pid = self._spawned(order) if self.why_exec else self._forked(order)
        except OSError as error:  # e.g. too many processes
            crash = Crashed(reason="Exited", message=f"its process could not be started: {error}")
            self.rank.send(TryEnded(order.run, crash))
            return
        self.tasks[pid] = Forked(order, time.monotonic())
        self.rank.send(TryStarted(order.run, pid))

    def _forked(self, order: StartTry) -> int:
        launcher = os.getpid()
        pid = os.fork()
        if pid:
            with suppress(OSError):
                os.setpgid(pid, pid)  # parent and child both try; the first one wins
            return pid
        try:
            _lead_group(launcher)
            signal.set_wakeup_fd(-1)
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
            self.rank.close()
            os.environ[DEVICES] = ",".join(order.devices)
            _run(order.folder)
        except BaseException:  # noqa: BLE001 - never return into the launcher's loop
            traceback.print_exc()
        finally:
            os._exit(1)

    def _spawned(self, order: StartTry) -> int:
        (order.folder / MAIN).write_bytes(pickle.dumps(self.main))
        return os.posix_spawn(
            sys.executable,
            command("launcher.run_alone()", str(order.folder), str(os.getpid())),
            {**os.environ, DEVICES: ",".join(order.devices)},
            setpgroup=0,
        )

    def _reap(self) -> None:
        with suppress(ChildProcessError):  # there are none
            # The process id stays reserved until the group has been killed.
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                task = self.tasks.pop(found.si_pid, None)
                if task is not None:
                    kill_group(found.si_pid)
                _, status = os.waitpid(found.si_pid, 0)
                if task is not None:  # else an orphan of a try
                    self._ended(task, status)

    def _ended(self, task: Forked, status: int) -> None:
        crash = None
        if not (task.order.folder / running.END).exists():
            crash = task.killed or crash_of(status, self.kernel)
        self.rank.send(TryEnded(task.order.run, crash))

    def _enforce(self) -> None:
        members: dict[int, list[int]] = {}
        for pid, task in self.tasks.items():
            limits, end = task.order.options, None
            if limits.timeout is not None and task.begun_at + limits.timeout <= self.looked:
                message = f"killed after {limits.timeout:g} s, its timeout"
                end = Crashed(reason="TimedOut", message=message)
            elif limits.memory is not None:
                members = members or groups()
                used = used_by(members.get(pid, []), limits.memory)
                if used > limits.memory:
                    message = (
                        f"killed because it used {used / MIB:,.0f} MiB of memory, and its limit is "
                        f"{limits.memory / MIB:,.0f} MiB"
                    )
                    end = Crashed(reason="OutOfMemory", message=message)
            if end is not None:
                task.killed = task.killed or end
                kill_group(pid)

    def end(self) -> None:
        """Kill all tasks and the processes that they left in other sessions, which we inherit."""
        for pid in self.tasks:
            kill_group(pid)
        deadline = time.monotonic() + ENDING
        with suppress(ChildProcessError):  # there are none
            while time.monotonic() < deadline:
                for entry in Path("/proc/self/task").glob("*/children"):
                    for child in entry.read_text().split():
                        os.kill(int(child), signal.SIGKILL)
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.002)


def crash_of(status: int, kernel: OomCounter) -> Crashed:
    """Describe by its wait status how a process ended that reported no end."""
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        return Crashed(reason="Exited", message=f"exited with code {code} before it returned")
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL and kernel.rose():
        message = "the kernel killed it because the container had no memory left"
        return Crashed(reason="OutOfMemory", message=message)
    known = number in set(signal.Signals)
    name = (
        signal.Signals(number).name if known else f"signal {number}"
    )  # real-time signals have no name
    return Crashed(reason="Signalled", message=f"killed by {name}")


def _lead_group(launcher: int) -> None:
    """Lead our own process group, which dies with the launcher."""
    with suppress(OSError):  # we already lead one
        os.setpgid(0, 0)
    signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != launcher:  # it died before we asked
        os._exit(1)


def _run(folder: Path) -> None:
    running.run(pickle.loads((folder / running.CALL).read_bytes()))


def run_alone() -> None:
    """Run a try that could not be forked; arguments: `FOLDER LAUNCHER_PID`. Does not return."""
    _, folder, launcher = sys.argv[-3:]
    _lead_group(int(launcher))
    running.become("launcher")
    main_module.load(pickle.loads((Path(folder) / MAIN).read_bytes()))
    _line_by_line()
    _run(Path(folder))


def main() -> None:
    """Run a launcher; argument: `FD`, our end of the socket to the rank."""
    rank = Connection(int(sys.argv[-1]))
    os.set_inheritable(rank.fileno(), False)  # noqa: FBT003
    signal_on_parent_death(signal.SIGTERM)
    become_subreaper()
    running.become("launcher")
    with suppress(EOFError, OSError):  # the rank is gone
        _launch(rank, rank.recv())
    running.flush()
    os._exit(0)  # skip the exit handlers that the program registered


def _launch(rank: Connection, main: MainModule) -> None:
    try:
        with Watch() as watch:
            main_module.load(main)
    except BaseException as error:  # noqa: BLE001 - also SystemExit, of a program without a guard
        rank.send(Imported(f"{describe(type(error), error)}\n{traceback.format_exc()}"))
        return
    _line_by_line()
    gc.collect()
    gc.freeze()  # else a collection in a task would copy the pages that it shares with us
    launcher = Forker(rank, main, watch.why_not_fork())
    if launcher.why_exec:
        sys.stderr.write(f"trainrun: {launcher.why_exec}\n")
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        launcher.handlers[number] = signal.signal(number, lambda *_: None) or signal.SIG_DFL
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        rank.send(Imported())
        launcher.serve(wake)
    finally:
        launcher.end()


def _line_by_line() -> None:
    """Flush each line, so that a killed task's output is not lost."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def groups() -> dict[int, list[int]]:
    """Return the processes of each process group."""
    found: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # "pid (name) state ppid pgrp ...": the name may hold anything.
                stat = (entry / "stat").read_bytes()
                found.setdefault(int(stat.rpartition(b")")[2].split()[2]), []).append(
                    int(entry.name)
                )
    return found


def used_by(pids: list[int], limit: int) -> int:
    """Return the bytes that these processes use; a cheap upper bound if that is below the limit."""
    roughly = sum(map(_resident, pids))
    # The share is unknown for a process that has just ended, and before Linux 4.14.
    return roughly if roughly <= limit else sum(memory_of(pid) or _resident(pid) for pid in pids)


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
