"""TCP connections of this machine, or this pod, as the kernel lists them.

Layer: agent, leaf. What has been closed is listed for a minute more, without a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainrun.agent.processes.children import PROC

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


def opened(port: int, table: Sequence[Socket]) -> bool:
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
    try:
        opened_files = [str(path.readlink()) for path in (PROC / f"{pid}/fd").iterdir()]
    except OSError:  # it ends, closes one, or is not ours to read
        return []
    return [it[8:-1] for it in opened_files if it.startswith("socket:[")]
