"""Every child of the agent: reaping them all, killing them all, and SIGTERM for one.

Layer: agent, leaf. As process 1 (or as a subreaper) the agent inherits each orphaned descendant,
so "kill every child until there is none" also reaches grandchildren that made a session of their
own: killing their parent makes them ours.

SIGTERM goes to a process alone, as a kubelet's does, and not to its group: the helpers of a
DataLoader would die of it, and the training of that. But a shell dies of it at once and hands
nothing on, so the command that it waits for gets the signal in its place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")


def reap() -> Iterator[tuple[int, int]]:
    """Yield (pid, wait status) of each child that has ended, adopted orphans included.

    Nothing else in the agent may wait for children: their status can be read once.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def children() -> list[int]:
    """Return the pids of all children, zombies included."""
    return children_of(os.getpid())


def children_of(parent: int) -> list[int]:
    """Return the pids of all children of a process, zombies included."""
    found: list[int] = []
    try:
        # Per thread, since the kernel books a child with the thread that forked it.
        for thread in (PROC / str(parent) / "task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):  # no CONFIG_PROC_CHILDREN, or it has just ended
        return _children_by_scan(parent)
    return found


def descendants(parent: int) -> list[int]:
    """Return the pids of a process's children, of theirs, and so on."""
    found = children_of(parent)
    for child in found:  # it grows meanwhile
        found += children_of(child)
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Send SIGKILL to these children and their process groups; ours is spared."""
    own_group = os.getpgrp()
    for pid in pids:
        kill_group(pid, own_group)


def kill_group(pid: int, own_group: int) -> None:
    """Send SIGKILL to a child's whole process group, or to it alone where it shares ours."""
    try:
        group = os.getpgid(pid)
        if group == own_group:
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # gone in the meantime, which is what we want


def _children_by_scan(parent: int) -> list[int]:
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The kernel cuts a name at 15 bytes, within a character too.
            stat = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue
        # "pid (name) state ppid ...": the name may hold anything, spaces and brackets too.
        if int(stat.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.name))
    return found


SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh", "busybox"})


def send_sigterm(pid: int) -> None:
    """Send SIGTERM to whom a process stands for; one that has just ended needs none."""
    for receiver in sigterm_receivers(pid):
        try:
            os.kill(receiver, signal.SIGTERM)
        except ProcessLookupError:
            pass


def sigterm_receivers(pid: int) -> list[int]:
    """The process, or instead of a shell without a trap the commands that it waits for.

    Of several, those that have a handler: of `python train.py | tee log` the training, which could
    not write its last words to a `tee` that is dead.
    """
    name, catches = _name_and_handler(pid)
    commands = children_of(pid) if name in SHELLS and not catches else []
    found = [receiver for command in commands for receiver in sigterm_receivers(command)]
    return [receiver for receiver in found if _name_and_handler(receiver)[1]] or found or [pid]


def _name_and_handler(pid: int) -> tuple[str, bool]:
    """The name of a process, and whether it has a handler for SIGTERM."""
    try:
        # The kernel cuts a name at 15 bytes, within a character too.
        status = (PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return "", False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    catches = int(fields.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1
    return fields.get("Name", ""), bool(catches)
