"""What the kernel tells of a process and of the connections of this machine, or this pod.

Layer: agent, leaf; only reads. Of a process its state, what it waits for, which signals it takes:
none of the files read here waits for the process itself, stopped or in the kernel though it may be.
What may not be read, or has gone, is left out. A connection that has been closed is listed for a
minute more, without a process.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

MOST_TEXT = 4096
"""Characters of a file of /proc that are kept."""

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
"""Names of the calls in which trainings stand, by machine."""

OF_FILES = frozenset(
    {"read", "write", "pread64", "pwrite64", "readv", "writev", "fsync", "fdatasync", "flock"}
    | {"fstat", "getdents64", "recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept"}
)
"""Calls whose first argument is a file descriptor."""

GPU = re.compile(r"/dev/(nvidia\d+|kfd)$")
"""What a process has open that has a context on a GPU of NVIDIA or AMD."""

OUTPUTS = (1, 2)
"""Descriptors of a process's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A process at one moment."""

    state: str
    ticks: int
    """Of CPU that its threads have used so far."""


def look(pid: int) -> ProcessStatus | None:
    """State and CPU; None: there is no such process."""
    text = _read(f"{pid}/stat")
    # "pid (name) state ...": the name may hold anything, spaces and brackets too.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 13:
        return None
    return ProcessStatus(state=fields[0], ticks=int(fields[11]) + int(fields[12]))


def cores(before: ProcessStatus, after: ProcessStatus, seconds: float) -> float:
    """How many cores it used in between."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    return round(max(after.ticks - before.ticks, 0) / ticks_per_second / max(seconds, 0.01), 2)


def waits_for(pid: int) -> str:
    """What its first thread waits for in the kernel: `read of /data/shard-7; fuse_wait`; "" where
    it runs, or nobody may know."""
    parts = [_call(pid), _symbol(pid)]
    return "; ".join(part for part in parts if part)


def kernel_stack(pid: int) -> str:
    """The stack of its first thread in the kernel; "" where that may not be read."""
    return _read(f"{pid}/stack")[:MOST_TEXT]


def takes(pid: int, signal: int) -> bool:
    """A handler of the process takes this signal, which would end it otherwise."""
    for line in _read(f"{pid}/status").splitlines():
        name, _, mask = line.partition(":")
        if name == "SigCgt":
            return bool(int(mask.strip(), 16) >> (signal - 1) & 1)
    return False


def uses_gpu(pid: int) -> bool:
    """It has opened a GPU."""
    return any(map(GPU.match, _opened(pid)))


def environment(pid: int) -> dict[str, str]:
    """What it was started with. May wait for a process that is in the kernel."""
    try:
        pairs = (PROC / f"{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def parent(pid: int) -> int:
    """Its parent's pid; 0: it has gone."""
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def command(pid: int) -> list[str]:
    """The words of its command line. May wait for a process that is in the kernel."""
    return [word for word in _read(f"{pid}/cmdline").split("\0") if word]


def mapped(pid: int) -> str:
    """What it has mapped into its memory. May wait for a process that is in the kernel."""
    try:
        return (PROC / f"{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


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
    """What its file descriptors lead to."""
    try:
        return [str(path.readlink()) for path in (PROC / f"{pid}/fd").iterdir()]
    except OSError:  # it ends, closes one, or is not ours to read
        return []


def _symbol(pid: int) -> str:
    """The function of the kernel in which it waits."""
    name = _read(f"{pid}/wchan").strip()
    if name not in ("", "0"):
        return name
    first = kernel_stack(pid).partition("\n")[0]  # "[<0>] request_wait_answer+0x74/0xf0"
    return first.rpartition(" ")[2].partition("+")[0]


def _read(name: str) -> str:
    try:
        with (PROC / name).open(errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


ESTABLISHED, LISTEN = "01", "0A"
IPV4_IN_IPV6 = "0000000000000000FFFF0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One end of a connection, or what waits for one."""

    local: str
    """Address and port in hexadecimal digits: `0100007F:1F90`."""
    peer: str
    state: str
    inode: str

    @property
    def port(self) -> str:
        """The local one."""
        return self.local.rpartition(":")[2]


def sockets() -> tuple[Socket, ...]:
    """All of them."""
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
    """Somebody listens on this port, or is or was connected to it or from it."""
    end = f":{port:04X}"
    return any(it.local.endswith(end) or it.peer.endswith(end) for it in table)


def reaches_others(pids: Iterable[int], table: Sequence[Socket]) -> bool:
    """A process that is none of these is connected to a port on which one of them listens."""
    inodes = {inode for pid in pids for inode in _inodes(pid)}
    own = [it for it in table if it.inode in inodes]
    ports = {it.port for it in own if it.state == LISTEN}
    ends = {(it.local, it.peer) for it in own}
    return any(
        it.state == ESTABLISHED and it.port in ports and (it.peer, it.local) not in ends
        for it in own
    )


def _inodes(pid: int) -> list[str]:
    return [it[8:-1] for it in _opened(pid) if it.startswith("socket:[")]
