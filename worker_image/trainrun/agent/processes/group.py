"""The training processes of one attempt: started together, watched, stopped together.

Layer: agent. Knows nothing about checkpoints or orders. A process that dies does not end its
siblings: the operator decides what happens to the gang.
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
"""In the message of torch's DataLoader when the kernel killed one of its workers."""


@dataclass(slots=True, kw_only=True)
class TrainingProcess:
    """One training process, alive or ended."""

    launch: Launch
    pid: int = 0
    pump: OutputPump | None = None
    tail: Tail = field(default_factory=Tail)
    """Its last output."""
    exit: ProcessExit | None = None
    ended: float = 0.0
    """When it ended, on the monotonic clock."""
    hello: Hello | None = None
    """The hello of the process that reports for the rank."""
    raised: Raised | None = None
    """The exception that the process itself reported."""

    @property
    def rank(self) -> int:
        """Its global rank."""
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
    """Called before an exit is recorded, to read the last messages."""
    on_exit: Callable[[ProcessExit], None] = lambda _end: None
    """Called with each exit, at once."""
    standby: Callable[[Launch], Spawned | None] = lambda _launch: None
    """Returns a standby as the process of this launch; None: there is none."""
    standby_ended: Callable[[int], bool] = lambda _pid: False
    """Called with the pid of any other child that has ended; returns whether it was a standby."""
    standby_failed: Callable[[int, str], bool] = lambda _pid, _why: False
    """Called with the pid of one of our processes that has ended, and why ("": it was stopped);
    returns whether it was a standby that had not become the rank's process."""
    tap: Callable[[int], Callable[[bytes], None] | None] = lambda _rank: None
    """Returns what to call with each piece of a rank's output; None: nothing."""
    all: dict[int, TrainingProcess] = field(default_factory=dict)
    """By rank, ascending."""
    terminated: bool = False
    """Its processes were sent SIGTERM."""
    stopped: bool = False
    imported: float = 0.0
    """When the last process finished importing trainrun, on the monotonic clock; 0: unknown."""
    import_bytes: int = 0
    """The largest memory of a process at that moment; 0: unknown."""
    warm: int = 0
    """How many processes were standbys."""
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
    def introduced(self) -> bool:
        """One of them has introduced itself."""
        return any(process.hello is not None for process in self.all.values())

    @property
    def living_pids(self) -> dict[int, int]:
        """By rank, the pids of those that live."""
        return {process.rank: pid for pid, process in self._living.items()}

    @property
    def ended_well(self) -> bool:
        """Every process has exited by itself with code 0."""
        ends = [process.exit for process in self.all.values()]
        return bool(ends) and all(end is not None and end.well for end in ends)

    @property
    def ended_by_themselves(self) -> bool:
        """Successfully, or on SIGTERM."""
        ends = [process.exit for process in self.all.values()]
        return all(e is not None and (e.well or (e.ordered and e.code is not None)) for e in ends)

    def start(self, launches: list[Launch]) -> None:
        """Start one process per launch; a failed start is recorded as an exit."""
        for launch in launches:
            process = TrainingProcess(launch=launch)
            self.all[launch.rank] = process
            standby = self.standby(launch)
            self.warm += standby is not None
            self._start(process, standby)

    def refuse(self, launches: list[Launch], why: str) -> None:
        """Start none of them: record `why` as their ends."""
        for launch in launches:
            process = self.all[launch.rank] = TrainingProcess(launch=launch)
            self._ended(process, ProcessExit(rank=launch.rank, exception=f"StartFailed: {why}"))

    def reaped(self, pid: int, status: int) -> None:
        """Record a child's end; pids that are not ours are passed to `standby_ended`."""
        process = self._living.pop(pid, None)
        if process is None:
            if self.standby_ended(pid):
                self.oom.rose()  # use up its out-of-memory kill, which explains no rank's end
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
        """The living processes, by rank."""
        return tuple(sorted(self._living.values(), key=lambda process: process.rank))

    def introduce(self, hello: Hello) -> None:
        """Record the hello of a rank's process, and when it finished its imports."""
        if hello.imported is not None:
            self.imported = max(self.imported, time.monotonic() - hello.imported)
            self.import_bytes = max(self.import_bytes, hello.memory)
        process = self.all[hello.rank]
        # A second connection of the same process brings only its pid and rank.
        same_process = process.hello is not None and process.hello.pid == hello.pid
        if hello.stacks or not same_process:
            process.hello = hello

    def exception(self, rank: int, raised: Raised) -> None:
        """Record the exception that the process of `rank` reported."""
        self.all[rank].raised = raised

    def kill(self, rank: int) -> None:
        """Kill one process as a fault would, not as an ordered end."""
        for process in self._living.values():
            if process.rank == rank:
                os.kill(process.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Send each process SIGTERM, once: from now on its exit is an ordered one."""
        if self.terminated:
            return
        self._reap()
        self.terminated = True
        for process in self._living.values():
            LOG.info("rank %d: SIGTERM", process.rank)
            send_sigterm(process.pid)

    def stop(self) -> None:
        """Kill every process and its group; a process that died before keeps its own exit."""
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
        """Add to a recorded exit whether it `yielded`, which only the attempt knows."""
        process = self.all[rank]
        if process.exit is not None:
            process.exit = replace(process.exit, yielded=yielded)

    def _never_began(self, process: TrainingProcess, pid: int) -> bool:
        """Whether it was a standby that failed before it became the rank's process."""
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
        prefix, tap = f"[rank {launch.rank}] ", self.tap(launch.rank)
        process.pump = OutputPump(spawned.output, prefix, self.sink, tap)
        process.tail = process.pump.tail
        self._living[spawned.pid] = process

    def _reap(self) -> None:
        """Record the processes that have ended by themselves until now."""
        for pid, status in reap():
            self.reaped(pid, status)

    def _ended(self, process: TrainingProcess, end: ProcessExit) -> None:
        process.exit = end
        process.ended = time.monotonic()
        LOG.info("rank %d %s", end.rank, describe(end))
        self.on_exit(end)

    def _describe(self, process: TrainingProcess, status: int) -> ProcessExit:
        code = os.waitstatus_to_exitcode(status)
        # Any status other than SIGKILL means that it ended by itself before our signal.
        ordered = self.terminated or (self.stopped and code == -signal.SIGKILL)
        raised = Raised(error="")
        if code != 0 and not ordered:
            from_outside = -code in (signal.SIGKILL, signal.SIGTERM)
            raised = process.raised or Raised(error="" if from_outside else process.tail.exception)
        exception = masked(raised.error)
        memory_suspect = code == -signal.SIGKILL or KILLED_HELPER in exception
        return ProcessExit(
            rank=process.rank,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            oom=memory_suspect and not ordered and self.oom.rose(),
            exception=exception,
            kinds=raised.kinds,
            raised_at=raised.at,
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
