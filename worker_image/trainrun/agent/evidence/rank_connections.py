"""Whether the ranks of a worker are connected to those of others: their processes' sockets, and the
ranks that a launcher among them has assigned.

Layer: agent. The kernel may block readers of /proc, so scans run in daemon threads. What a scan
found stays for the attempt: a group that was formed is a group.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from trainrun.agent.processes import procfs
from trainrun.agent.processes.procfs import (
    Socket,
    descendants,
    opened_sockets,
    reaches_others,
    sockets,
)
from trainrun.contract import variables
from trainrun.contract.evidence import RankConnections

EARLY = 60.0
"""Seconds after the start in which each call of `look` scans."""
INTERVAL = 10.0
"""Seconds between two scans after that."""
MOST = 64
"""Processes of a rank that are scanned."""
JAX = 1
"""Offset of the JAX coordinator's port from the master port."""

PLACES = (
    (variables.RANK, variables.WORLD_SIZE, variables.MASTER_ADDR, variables.MASTER_PORT,
     variables.TORCH_RUN_ID),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)  # fmt: skip
"""Variables of each kind of launcher: rank, size, and what else distinguishes groups."""

_MPI = re.compile(r"/libmpi(ch|_\w+)?\.so")


@dataclass(slots=True, kw_only=True)
class RankConnectionMonitor:
    """Watches the connections of one attempt."""

    found: RankConnections = field(default_factory=RankConnections)
    _port: int = 0
    _given: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By rank, the environment that its process was started with."""
    _since: float = 0.0
    _looked: float = 0.0
    _results: list[RankConnections] = field(default_factory=list)
    """Results of scan threads."""
    _thread: threading.Thread | None = None

    def start(self, port: int, given: Mapping[int, Mapping[str, str]], now: float) -> None:
        """The processes were started; `port` is the master port."""
        self._port, self._given, self._since = port, given, now

    def look(self, pids: Mapping[int, int], now: float) -> bool:
        """Merge finished scans and start a new one if due; returns whether `found` changed."""
        before = self.found
        self._take()
        due = now - self._since < EARLY or now - self._looked >= INTERVAL
        busy = self._thread is not None and self._thread.is_alive()
        if due and not busy and pids and not self.found.known:
            self._looked = now
            self._thread = threading.Thread(
                target=lambda: self._results.append(scan(pids, self._given, self._port)),
                name="meeting",
                daemon=True,
            )
            self._thread.start()
        return self.found != before

    def ended(self) -> None:
        """A process has ended: the kernel lists its connections for another minute."""
        if not self.found.known:
            connected = _opened(self._port, sockets())
            self._results.append(RankConnections(known=connected))
            self._take()

    def _take(self) -> None:
        while self._results:
            new, old = self._results.pop(), self.found
            self.found = RankConnections(
                known=old.known or new.known,
                elsewhere=old.elsewhere or new.elsewhere,
                leaders=tuple(sorted({*old.leaders, *new.leaders})),
                launcher=new.launcher or old.launcher,
                mpi=old.mpi or new.mpi,
            )


def scan(
    pids: Mapping[int, int], given: Mapping[int, Mapping[str, str]], port: int
) -> RankConnections:
    """Scan the ranks with these processes."""
    table = sockets()
    found = RankConnections(known=_opened(port, table), mpi=True)
    for rank, pid in pids.items():
        tree = [pid, *descendants(pid)[:MOST]]
        places = {member: procfs.environment(member) for member in tree}
        leader = next((member for member in tree if _leads(places[member], given[rank])), None)
        found = replace(
            found,
            elsewhere=found.elsewhere or reaches_others(tree, table),
            leaders=found.leaders if leader is None else (*found.leaders, rank),
            launcher=found.launcher if leader is None else _program(procfs.parent(leader)),
            mpi=found.mpi and any(_is_alone_in_mpi(member, places[member]) for member in tree),
        )
    return found


def _opened(port: int, table: Sequence[Socket]) -> bool:
    return opened_sockets(port, table) or opened_sockets(port + JAX, table)


def _leads(place: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether it was started as rank 0 of a group other than ours."""
    return any(
        place.get(names[0]) == "0"
        and any(name in place and place[name] != given.get(name) for name in names)
        for names in PLACES
    )


def _is_alone_in_mpi(pid: int, place: Mapping[str, str]) -> bool:
    """Whether it has loaded MPI without a rank from a launcher."""
    started = any(names[0] in place for names in PLACES[1:])
    return not started and _MPI.search(procfs.mapped(pid)) is not None


def _program(pid: int) -> str:
    """The program's name as a user knows it: `torchrun`, not the Python that runs it."""
    words = procfs.command(pid)
    if len(words) > 1 and PurePosixPath(words[0]).name.startswith("python"):
        words = [word for word in words[1:] if not word.startswith("-")]
    return PurePosixPath(words[0]).name[:64] if words else ""
