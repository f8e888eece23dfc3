"""Reads /proc: processes and TCP connections of this machine or pod.

Layer: agent, leaf; only reads. For a process: its state, what it waits for, which signals it
handles, its children, its resource use. Unless a function says otherwise, reading never blocks on
the process, even if it is stopped or in the kernel. Unreadable or missing entries are left out. A
closed connection is listed for another minute, without a process.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainrun._common import writer_processes

PROC = Path("/proc")

MOST_TEXT = 4096
"""Characters kept of a file of /proc."""
TICKS = os.sysconf("SC_CLK_TCK")
"""Ticks of the kernel's clock per second."""
MOST = 256
"""Maximum processes of a tree, and threads of a process, whose resource use is read."""

SYSCALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll",
        17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 34: "pause",
        35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
        47: "recvmsg", 61: "wait4", 73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex",
        217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 257: "openat",
        262: "newfstatat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 332: "statx",
    },
    "aarch64": {
        22: "epoll_pwait", 32: "flock", 56: "openat", 61: "getdents64", 63: "read", 64: "write",
        65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll",
        79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
        211: "sendmsg", 212: "recvmsg", 260: "wait4", 291: "statx",
    },
}  # fmt: skip
"""Names of system calls in which trainings hang, by machine."""

OF_FILES = frozenset(
    {"read", "write", "pread64", "pwrite64", "readv", "writev", "fsync", "fdatasync", "flock"}
    | {"fstat", "getdents64", "recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept"}
)
"""Calls whose first argument is a file descriptor."""

GPU = re.compile(r"/dev/(nvidia\d+|kfd)$")
"""Device files that a process with a context on an NVIDIA or AMD GPU has open."""

OUTPUTS = (1, 2)
"""Descriptors of a process's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A process at one moment."""

    state: str
    ticks: int
    """CPU time that its threads have used so far."""


def look(pid: int) -> ProcessStatus | None:
    """Its state and CPU time; None: there is no such process."""
    fields = _stat(pid)
    if not fields:
        return None
    return ProcessStatus(state=fields[0], ticks=int(fields[11]) + int(fields[12]))


def cores(before: ProcessStatus, after: ProcessStatus, seconds: float) -> float:
    """How many cores it used between two moments."""
    return round(max(after.ticks - before.ticks, 0) / TICKS / max(seconds, 0.01), 2)


def waits_for(pid: int) -> str:
    """What its first thread waits for in the kernel: `read of /data/shard-7; fuse_wait`; "": it
    runs, or this is not readable."""
    parts = [_call(pid), _symbol(pid)]
    return "; ".join(part for part in parts if part)


def kernel_stack(pid: int) -> str:
    """The kernel stack of its first thread; "": not readable."""
    return _read(f"{pid}/stack")[:MOST_TEXT]


def takes(pid: int, signal: int) -> bool:
    """Whether the process has a handler for this signal, which would end it otherwise."""
    return bool(int(_status(pid).get("SigCgt", "0"), 16) >> (signal - 1) & 1)


def name_of(pid: int) -> str:
    """Its name, cut to 15 bytes by the kernel; "": it has ended."""
    return _status(pid).get("Name", "")


def uses_gpu(pid: int) -> bool:
    """Whether it has opened a GPU."""
    return any(map(GPU.match, _opened(pid)))


def environment(pid: int) -> dict[str, str]:
    """The environment that it was started with. May block on a process that is in the kernel."""
    try:
        pairs = (PROC / f"{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def parent(pid: int) -> int:
    """Its parent's pid; 0: it has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def command(pid: int) -> list[str]:
    """The words of its command line. May block on a process that is in the kernel."""
    return [word for word in _read(f"{pid}/cmdline").split("\0") if word]


def mapped(pid: int) -> str:
    """Its memory map. May block on a process that is in the kernel."""
    try:
        return (PROC / f"{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


def children_of(pid: int) -> list[int]:
    """Return the pids of all children of a process, zombies included."""
    found: list[int] = []
    try:
        # Per thread, since the kernel lists a child under the thread that forked it.
        for thread in (PROC / f"{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):  # no CONFIG_PROC_CHILDREN, or it has just ended
        return _children_by_scan(pid)
    return found


def descendants(pid: int) -> list[int]:
    """Return the pids of a process's children, of theirs, and so on."""
    found = children_of(pid)
    for child in found:  # the list grows meanwhile
        found += children_of(child)
    return found


def _children_by_scan(pid: int) -> list[int]:
    found = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [child for child in found if parent(child) == pid]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources that processes have used until a moment."""

    cpu: float = 0.0
    """Seconds of CPU time."""
    delayed: float = 0.0
    """Seconds for which threads were ready to run but had no CPU; 0: the kernel does not count
    that."""
    io: int = 0
    """Bytes read and written, from and to anything; 0: not readable."""

    def __add__(self, other: Usage) -> Usage:
        """The sum for two processes."""
        return Usage(
            cpu=self.cpu + other.cpu,
            delayed=self.delayed + other.delayed,
            io=self.io + other.io,
        )


def usage_of(pid: int) -> Usage | None:
    """Resource use of a process and its descendants; None: it has ended, or is not readable.

    Descendants that have ended and were waited for count for their parent; those that outlive their
    parent are no longer counted.
    """
    root = _of_one(pid)
    if root is None:
        return None
    total, tree = root, children_of(pid)
    for number, child in enumerate(tree):  # the list grows meanwhile
        found = _of_one(child)
        if found is None or number >= MOST:
            continue
        total += found
        tree += children_of(child)
    return total


def _of_one(pid: int) -> Usage | None:
    fields = _stat(pid)
    if not fields:
        return None
    ticks = sum(map(int, fields[11:15]))  # utime, stime, and those of children waited for
    return Usage(cpu=ticks / TICKS, delayed=_delayed(pid), io=_io(pid))


def _delayed(pid: int) -> float:
    """The `delayed` seconds of its living threads."""
    nanoseconds = 0
    try:
        for thread in islice((PROC / f"{pid}/task").iterdir(), MOST):
            nanoseconds += int((thread / "schedstat").read_text().split()[1])
    except (OSError, LookupError, ValueError):  # it ends, or the kernel does not count
        return nanoseconds / 1e9
    return nanoseconds / 1e9


def _io(pid: int) -> int:
    lines = _read(f"{pid}/io").splitlines()
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    return int(found.get("rchar", "0")) + int(found.get("wchar", "0"))


def _call(pid: int) -> str:
    """`read of /data/shard-7`."""
    fields = _read(f"{pid}/syscall").split()
    names = SYSCALLS.get(platform.machine(), {})
    if len(fields) < 2 or not fields[0].isdigit() or int(fields[0]) not in names:
        return ""
    name = names[int(fields[0])]
    if name not in OF_FILES:
        return name
    descriptor = int(fields[1], 16)
    if descriptor in OUTPUTS and name.startswith("write"):
        return f"{name} of its output"
    try:
        return f"{name} of {(PROC / f'{pid}/fd/{descriptor}').readlink()}"
    except OSError:
        return name


def _opened(pid: int) -> list[str]:
    """The paths behind its file descriptors."""
    return [path for _, path in writer_processes.opened(pid)]


def _symbol(pid: int) -> str:
    """The kernel function in which it waits."""
    name = _read(f"{pid}/wchan").strip()
    if name not in ("", "0"):
        return name
    first = kernel_stack(pid).partition("\n")[0]  # "[<0>] request_wait_answer+0x74/0xf0"
    return first.rpartition(" ")[2].partition("+")[0]


def _stat(pid: int) -> list[str]:
    """The fields from its state on; empty: it has ended."""
    # "pid (name) state ppid ...": the name may contain anything, even spaces and brackets.
    return _read(f"{pid}/stat").rpartition(")")[2].split()


def _status(pid: int) -> dict[str, str]:
    lines = _read(f"{pid}/status").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _read(name: str) -> str:
    try:
        # The kernel cuts a name at 15 bytes, possibly within a character.
        with (PROC / name).open(errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


ESTABLISHED, LISTEN = "01", "0A"
IPV4_IN_IPV6 = "0000000000000000FFFF0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One end of a connection, or a listening socket."""

    local: str
    """Address and port in hexadecimal digits: `0100007F:1F90`."""
    peer: str
    state: str
    inode: str

    @property
    def port(self) -> str:
        """The local port, in hexadecimal digits."""
        return self.local.rpartition(":")[2]


def sockets() -> tuple[Socket, ...]:
    """All TCP sockets of this machine or pod."""
    found: list[Socket] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:  # no IPv6, for instance
            continue
        for line in lines:
            fields = line.replace(IPV4_IN_IPV6, "").split()
            if len(fields) > 9:
                local, peer, state, inode = fields[1], fields[2], fields[3], fields[9]
                found.append(Socket(local=local, peer=peer, state=state, inode=inode))
    return tuple(found)


def opened_sockets(port: int, table: Sequence[Socket]) -> bool:
    """Whether a socket listens on this port, or is or was connected to it or from it."""
    end = f":{port:04X}"
    return any(entry.local.endswith(end) or entry.peer.endswith(end) for entry in table)


def reaches_others(pids: Iterable[int], table: Sequence[Socket]) -> bool:
    """Whether another process is connected to a port on which one of these listens."""
    inodes = {inode for pid in pids for inode in _inodes(pid)}
    own = [entry for entry in table if entry.inode in inodes]
    ports = {entry.port for entry in own if entry.state == LISTEN}
    ends = {(entry.local, entry.peer) for entry in own}
    return any(
        entry.state == ESTABLISHED and entry.port in ports and (entry.peer, entry.local) not in ends
        for entry in own
    )


def _inodes(pid: int) -> list[str]:
    return [path[8:-1] for path in _opened(pid) if path.startswith("socket:[")]
