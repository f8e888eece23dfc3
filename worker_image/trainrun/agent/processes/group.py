"""The training processes of one attempt: started together, watched, stopped together.

Layer: agent. Knows nothing of checkpoints or orders. A process that dies does not take its
siblings along: the operator decides what happens to the gang.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainrun._common.kernel import OomCounter
from trainrun.agent.processes.output import OutputPump, Sink, Tail
from trainrun.agent.processes.spawn import (
    Spawned,
    StartFailed,
    kill_group,
    reap,
    send_sigterm,
    spawn,
)
from trainrun.contract.agent_state import ProcessExit
from trainrun.contract.masking import masked
from trainrun.contract.messages import Hello, Raised

LOG = logging.getLogger("trainrun.agent")

KILLED_HELPER = "killed by signal: Killed"
"""What torch's DataLoader says when the kernel killed one of its workers."""


@dataclass(slots=True, kw_only=True)
class TrainingProcess:
    """One training process, alive or ended."""

    launch: Launch
    pid: int = 0
    pump: OutputPump | None = None
    tail: Tail = field(default_factory=Tail)
    """What it has put out last."""
    exit: ProcessExit | None = None
    ended: float = 0.0
    """When it ended, on the monotonic clock."""
    hello: Hello | None = None
    """How the process that speaks for the rank has introduced itself."""
    told: Raised | None = None
    """The exception that the process itself told us of."""

    @property
    def rank(self) -> int:
        """Which it is."""
        return self.launch.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start for one rank."""

    rank: int
    command: tuple[str, ...]
    working_dir: str
    environment: dict[str, str]


@dataclass(slots=True, kw_only=True)
class ProcessGroup:
    """The processes of an attempt, by pid while they live."""

    sink: Sink
    oom: OomCounter
    before_exit: Callable[[], None] = lambda: None
    """Called before an end is recorded: last messages are read then."""
    on_exit: Callable[[ProcessExit], None] = lambda _end: None
    """Called with each exit, at once."""
    standby: Callable[[Launch], Spawned | None] = lambda _launch: None
    """Returns a process that was started before, as that of this launch; None: there is none."""
    standby_ended: Callable[[int], bool] = lambda _pid: False
    """Called with the pid of any other child that has ended; says whether it was such a process."""
    standby_failed: Callable[[int, str], bool] = lambda _pid, _why: False
    """Called with the pid of one of ours that has ended, and how ("": it was stopped); says whether
    it was such a process that has not even begun."""
    all: dict[int, TrainingProcess] = field(default_factory=dict)
    """By rank, ascending."""
    terminated: bool = False
    """Its processes were sent SIGTERM."""
    stopped: bool = False
    imported: float = 0.0
    """When the last of those that have spoken had imported trainrun, on the monotonic clock; 0:
    nobody has said so."""
    import_bytes: int = 0
    """Memory of one of them when it had, at most; 0: nobody has said so."""
    warm: int = 0
    """How many were started before, as standbys."""
    _living: dict[int, TrainingProcess] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """At least one process lives."""
        return bool(self._living)

    @property
    def living_ranks(self) -> tuple[int, ...]:
        """Ranks whose process lives, ascending."""
        return tuple(sorted(process.rank for process in self._living.values()))

    @property
    def spoken(self) -> bool:
        """One of them has introduced itself."""
        return any(process.hello is not None for process in self.all.values())

    @property
    def living_pids(self) -> dict[int, int]:
        """By rank, the pids of those that live."""
        return {process.rank: pid for pid, process in self._living.items()}

    @property
    def ended_well(self) -> bool:
        """Every process has ended by itself, with exit code 0."""
        ends = [process.exit for process in self.all.values()]
        return bool(ends) and all(end is not None and end.well for end in ends)

    def start(self, launches: list[Launch]) -> None:
        """Start one process per launch; one that cannot be started is an exit."""
        for launch in launches:
            process = TrainingProcess(launch=launch)
            self.all[launch.rank] = process
            standby = self.standby(launch)
            self.warm += standby is not None
            self._start(process, standby)

    def reaped(self, pid: int, status: int) -> None:
        """Take note of a child's end; pids that are none of ours are handed on."""
        process = self._living.pop(pid, None)
        if process is None:
            if self.standby_ended(pid):
                self.oom.rose()  # if that was for memory, it explains no end of a rank
            return
        self.before_exit()
        if process.pump is not None:
            process.pump.finish()
        if self._never_began(process, pid):
            self.warm -= 1
            self.oom.rose()
            self._start(process, None)
        else:
            self._ended(process, self._describe(process, status))

    @property
    def living(self) -> tuple[TrainingProcess, ...]:
        """Those that live, by rank."""
        return tuple(sorted(self._living.values(), key=lambda process: process.rank))

    def met(self, hello: Hello) -> None:
        """Keep how the process of a rank has introduced itself, and when it had its imports."""
        if hello.imported is not None:
            self.imported = max(self.imported, time.monotonic() - hello.imported)
            self.import_bytes = max(self.import_bytes, hello.memory)
        process = self.all[hello.rank]
        # A further connection of the same process says no more than who it is.
        known = process.hello is not None and process.hello.pid == hello.pid
        if hello.stacks or not known:
            process.hello = hello

    def exception(self, rank: int, raised: Raised) -> None:
        """Keep what the process of `rank` said about its end."""
        self.all[rank].told = raised

    def kill(self, rank: int) -> None:
        """Kill one process as a fault would: it is not an ordered end."""
        for process in self._living.values():
            if process.rank == rank:
                os.kill(process.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Send each process SIGTERM, once: how it ends from now on says nothing about it."""
        if self.terminated:
            return
        self._reap()
        self.terminated = True
        for process in self._living.values():
            LOG.info("rank %d: SIGTERM", process.rank)
            send_sigterm(process.pid)

    def stop(self) -> None:
        """Kill every process and its group; what died before on its own keeps its own exit."""
        self._reap()
        self.stopped = True
        for pid in self._living:
            kill_group(pid)

    def exits(self, now: float) -> tuple[ProcessExit, ...]:
        """Return all ends so far with their ages, by rank."""
        return tuple(
            replace(process.exit, age=max(0.0, now - process.ended))
            for process in self.all.values()
            if process.exit is not None
        )

    def update_exit(self, rank: int, *, yielded: bool) -> None:
        """Add to a recorded exit what only the attempt knows."""
        process = self.all[rank]
        if process.exit is not None:
            process.exit = replace(process.exit, yielded=yielded)

    def _never_began(self, process: TrainingProcess, pid: int) -> bool:
        """It was a standby that came to nothing, and nobody had told it to end."""
        if self.stopped or self.terminated:
            self.standby_failed(pid, "")
            return False
        return self.standby_failed(pid, ": ".join(("it ended", *process.tail.last_lines[-1:])))

    def _start(self, process: TrainingProcess, standby: Spawned | None) -> None:
        launch = process.launch
        try:
            spawned = standby or spawn(launch.command, launch.working_dir, launch.environment)
        except StartFailed as error:
            self._ended(
                process, ProcessExit(rank=launch.rank, exception=masked(f"StartFailed: {error}"))
            )
            return
        process.pid = spawned.pid
        process.pump = OutputPump(spawned.output, f"[rank {launch.rank}] ", self.sink)
        process.tail = process.pump.tail
        self._living[spawned.pid] = process

    def _reap(self) -> None:
        """Take note of those that have ended by themselves until now."""
        for pid, status in reap():
            self.reaped(pid, status)

    def _ended(self, process: TrainingProcess, end: ProcessExit) -> None:
        process.exit = end
        process.ended = time.monotonic()
        LOG.info("rank %d %s", end.rank, describe(end))
        self.on_exit(end)

    def _describe(self, process: TrainingProcess, status: int) -> ProcessExit:
        code = os.waitstatus_to_exitcode(status)
        # A status other than SIGKILL means that it ended by itself before ours arrived.
        ordered = self.terminated or (self.stopped and code == -signal.SIGKILL)
        told = Raised(error="")
        if code != 0 and not ordered:
            from_outside = -code in (signal.SIGKILL, signal.SIGTERM)
            told = process.told or Raised(error="" if from_outside else process.tail.exception)
        exception = masked(told.error)
        memory_suspect = code == -signal.SIGKILL or KILLED_HELPER in exception
        return ProcessExit(
            rank=process.rank,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            oom=memory_suspect and not ordered and self.oom.rose(),
            exception=exception,
            kinds=told.kinds,
            raised_at=told.at,
            last_lines=tuple(map(masked, process.tail.last_lines)),
            ordered=ordered,
        )


def describe(end: ProcessExit) -> str:
    """Return how a process ended, in a few words for the log."""
    if end.ordered:
        return "was stopped" if end.code is None else f"exited with code {end.code} on SIGTERM"
    if end.signal is not None:
        by = f"was killed by {signal.Signals(end.signal).name}"
        return f"{by} (out of memory)" if end.oom else by
    if end.code is None:
        return f"could not be started: {end.exception}"
    return f"exited with code {end.code}" + (f": {end.exception}" if end.exception else "")
