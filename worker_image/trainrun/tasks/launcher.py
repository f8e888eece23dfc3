"""The launcher: a process without threads that imports the program and forks each try of a task.

Layer: tasks. It is bound to its rank's life, tries are bound to its own. Where the program's import
leaves threads or a GPU context behind, a fork may hang: then each try is a fresh interpreter that
imports the program itself. Memory that several processes share, as forked ones do, is shared out
among them: counted for each, it would make a healthy task look too large.
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
"""Seconds between two looks at what tasks use."""
IMPORTING = 600.0
"""Seconds that a fresh interpreter may take to import the program, before its timeout begins."""
ENDING = 2.0
"""Seconds in which killed processes should be gone; one that waits for a disk may not be."""
MAIN = "main"
"""File of a try's folder: what a fresh interpreter imports."""
DEVICES = "CUDA_VISIBLE_DEVICES"
MIB = 1 << 20
PROC = Path("/proc")


@dataclass
class Forked:
    """A try that runs."""

    order: StartTry
    begun: float
    killed: Crashed | None = None
    """We have killed it: this is its end."""

    @property
    def begun_at(self) -> float:
        """When its function was called, or will have been at the latest."""
        try:
            return float((self.order.folder / running.BEGUN).read_text())
        except (OSError, ValueError):
            return self.begun + IMPORTING


@dataclass
class Forker:
    """Its loop: orders from the rank, ends of children, limits."""

    rank: Connection
    main: MainModule
    why_exec: str
    """Why tries are not forked; empty: they are."""
    orders: deque[StartTry | StopTask | None] = field(default_factory=deque)
    """Those that wait; None: end."""
    tasks: dict[int, Forked] = field(default_factory=dict)
    """By the process id."""
    handlers: dict[int, Any] = field(default_factory=dict)
    """Of signals, as the program's import has left them."""
    looked: float = 0.0
    """When limits were looked at."""
    kernel: OomCounter = field(default_factory=lambda: OomCounter(find_counter()))

    def serve(self, wake: int) -> None:
        """Return once the rank says so or is gone. Raises EOFError and OSError likewise."""
        while os.getppid() == self.main.pid:
            patience = 0 if self.orders else LOOK if self.tasks else None
            if wake in wait([self.rank, wake], patience):
                os.read(wake, 1 << 12)
                self._reap()
            while self.rank.poll():  # all: the rank must not wait for us, who may wait for it
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
        running.flush()  # else the child would print it once more
        try:
            pid = self._spawned(order) if self.why_exec else self._forked(order)
        except OSError as error:  # too many processes, say
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
                os.setpgid(pid, pid)  # whoever of the two comes first
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
            # The process id stays taken until the group has been killed.
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                task = self.tasks.pop(found.si_pid, None)
                if task is not None:
                    kill_group(found.si_pid)
                _, status = os.waitpid(found.si_pid, 0)
                if task is not None:  # else an orphan of one
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
        """Kill all tasks, and what they have left behind in sessions of its own: that is ours."""
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
    """Say how a process has ended that has left no other word, by its wait status."""
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        return Crashed(reason="Exited", message=f"exited with code {code} before it returned")
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL and kernel.rose():
        message = "the kernel killed it because the container had no memory left"
        return Crashed(reason="OutOfMemory", message=message)
    known = number in set(signal.Signals)
    name = signal.Signals(number).name if known else f"signal {number}"  # real-time ones have none
    return Crashed(reason="Signalled", message=f"killed by {name}")


def _lead_group(launcher: int) -> None:
    """Lead a group of our own, bound to the launcher's life."""
    with suppress(OSError):  # we lead one already
        os.setpgid(0, 0)
    signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != launcher:  # it died before we asked
        os._exit(1)


def _run(folder: Path) -> None:
    running.run(pickle.loads((folder / running.CALL).read_bytes()))


def run_alone() -> None:
    """Be a try that could not be forked: `FOLDER LAUNCHER`, its pid. Does not return."""
    _, folder, launcher = sys.argv[-3:]
    _lead_group(int(launcher))
    running.become("launcher")
    main_module.load(pickle.loads((Path(folder) / MAIN).read_bytes()))
    _line_by_line()
    _run(Path(folder))


def main() -> None:
    """Be a launcher, whose rank holds the other end of the socket with the descriptor `FD`."""
    rank = Connection(int(sys.argv[-1]))
    os.set_inheritable(rank.fileno(), False)  # noqa: FBT003
    signal_on_parent_death(signal.SIGTERM)
    become_subreaper()
    running.become("launcher")
    with suppress(EOFError, OSError):  # the rank is gone
        _launch(rank, rank.recv())
    running.flush()
    os._exit(0)  # what the program has registered for its exit is not ours


def _launch(rank: Connection, main: MainModule) -> None:
    try:
        with Watch() as watch:
            main_module.load(main)
    except BaseException as error:  # noqa: BLE001 - SystemExit, too: of one that is not guarded
        rank.send(Imported(f"{describe(type(error), error)}\n{traceback.format_exc()}"))
        return
    _line_by_line()
    gc.collect()
    gc.freeze()  # a collection in a task would copy the pages that it shares with us
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
    """What a task has printed is there although it is killed."""
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
    """Return the bytes that these use: roughly while they are below the limit for sure."""
    roughly = sum(map(_resident, pids))
    # Where it has just ended, and before Linux 4.14, nobody knows the share of one.
    return roughly if roughly <= limit else sum(memory_of(it) or _resident(it) for it in pids)


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
