"""A standby interpreter for each running rank: decides when to start them and hands them over.

Layer: agent. Standbys are best effort: if one fails, the rank starts cold and a log line says so.
They load one at a time during training and all at once before it; each is used once and then
replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainrun.agent.processes.environment import lasting
from trainrun.agent.processes.group import Launch
from trainrun.agent.processes.launches import PythonCommand, preload_text, python_command
from trainrun.agent.processes.spawn import Spawned, instead_of_launcher, kill_group
from trainrun.agent.processes.standby import Standby, write_start
from trainrun.contract.agent_state import Problem
from trainrun.contract.launcher import LauncherRefused

LOG = logging.getLogger("trainrun.agent")

NO_EFFECT = "workers.warmStart has no effect"
MOST_FAILURES = 3
"""Failed standbys in a row after which no more are started."""
FULL, ROOM = 0.9, 0.8
"""Parts of the container's memory in use above which standbys are given up, and up to which new
ones are started."""
PATIENCE = 120.0
"""Seconds from the start order in which a standby may finish its current import: a cold start would
wait for the same one, which takes long on a busy machine. After that it is considered hung."""


@dataclass(slots=True, kw_only=True)
class Standbys:
    """The standbys of one agent."""

    preload: Sequence[str]
    """Names of modules; empty: no standbys."""
    folder: Path
    """In the worker's folder, for their start script."""
    memory_used: Callable[[], float | None]
    """Returns the part of the container's memory in use; None: unknown."""
    news: Callable[[], None] = lambda: None
    """Called when one is ready or has ended."""
    why_cold: dict[int, str] = field(default_factory=dict)
    """By rank, why its last start was cold; ranks with a warm start are left out."""
    largest: int = 0
    """The largest memory in bytes of a standby when it was ready; 0: unknown."""
    _standbys: dict[int, Standby] = field(default_factory=dict)
    _loading: dict[int, tuple[int, Standby]] = field(default_factory=dict)
    """By pid, with their rank, those that were handed over while loading, until they become its
    process."""
    _failures: int = 0
    _refused: str = ""
    """Why no standbys are started although they are configured."""

    @property
    def pids(self) -> frozenset[int]:
        """Of processes that are not a rank's yet."""
        return frozenset(pid for one in self._standbys.values() for pid in one.pids)

    @property
    def cold(self) -> str:
        """Why the lowest cold rank was started cold; empty: none was, or no standbys are
        configured."""
        return next((f"rank {rank}: {why}" for rank, why in sorted(self.why_cold.items())), "")

    @property
    def problem(self) -> Problem | None:
        """Why starts are cold although standbys are configured."""
        if not self._refused:
            return None
        return Problem(
            type="ColdStarts", reason="NoStandby", message=f"{NO_EFFECT}: {self._refused}"
        )

    def keep(self, launches: Iterable[Launch]) -> None:
        """Start one for a rank without a standby, unless one is loading or memory is short."""
        missing = self._missing(launches)
        if missing and all(one.ready for one in self._standbys.values()):
            self._start(missing[0])

    def prepare(self, ranks: Iterable[int], launches: Callable[[], Iterable[Launch]]) -> None:
        """Start one for each of these ranks without a standby, while no training runs."""
        if self.preload and not self._refused and not self._standbys.keys() >= set(ranks):
            for launch in self._missing(launches()):
                self._start(launch)

    def take(self, launch: Launch) -> Spawned | None:
        """Hand over this rank's standby as its process; None: start it cold."""
        if not self.preload:
            return None
        standby = self._standbys.pop(launch.rank, None)
        why = self._refused or "it has no standby yet"
        if standby is not None:
            if standby.beginning != _beginning(launch):
                standby.stop("its standby was started with another command or environment")
            elif self._refused and not standby.ready:
                standby.stop(self._refused)
            elif (spawned := standby.take(launch.environment)) is not None:
                if standby.taken:
                    self._loading[spawned.pid] = (launch.rank, standby)
                self._record_start(launch.rank, "")
                return spawned
            why = standby.gone
        self._record_start(launch.rank, why)
        return None

    def reaped(self, pid: int) -> bool:
        """A child has ended; True: it was a standby."""
        ours = pid in self.pids
        for one in list(self._standbys.values()):
            one.reaped(pid)
        return ours

    def failed(self, pid: int, why: str) -> bool:
        """A rank's process has ended; True: it was a standby that had not become the rank's process
        yet. An empty `why`: it was stopped, which is not a failure."""
        if pid not in self._loading:
            return False
        rank, standby = self._loading.pop(pid)
        standby.lost(why or "it was stopped")
        if why:
            self._record_start(rank, standby.gone)
            self._count_failure(standby)
        return True

    def tick(self, now: float) -> None:
        """End standbys that keep a rank waiting for too long: it starts cold."""
        for pid, (_, one) in self._loading.items():
            if not one.gone and now - one.taken >= PATIENCE:
                one.gone = f"it was still loading {PATIENCE:g} s after the start order"
                kill_group(pid)

    def stop(self) -> None:
        """End them all."""
        for one in list(self._standbys.values()):
            one.stop("the worker ends")

    def _record_start(self, rank: int, why: str) -> None:
        self.why_cold.pop(rank, None)
        if why:
            self.why_cold[rank] = why
        LOG.info("rank %d: %s", rank, f"cold start: {why}" if why else "warm start")

    def _start(self, launch: Launch) -> None:
        python = self._python(launch)
        if isinstance(python, str):
            self._refused = python
            LOG.warning("%s: %s", NO_EFFECT, python)
            return
        standby = Standby(
            beginning=_beginning(launch),
            python=python,
            preload=preload_text(self.preload),
            folder=self.folder,
            changed=lambda: self._changed(launch.rank, standby),
        )
        self._standbys[launch.rank] = standby
        standby.start()

    def _python(self, launch: Launch) -> PythonCommand | str:
        try:
            python = python_command(_resolved(launch))
            write_start(self.folder)
        except (LauncherRefused, OSError) as error:
            return str(error)
        return python

    def _missing(self, launches: Iterable[Launch]) -> list[Launch]:
        """Launches of ranks that may get a standby and have none."""
        if not self.preload or self._spare_memory() or self._refused:
            return []
        return [launch for launch in launches if launch.rank not in self._standbys]

    def _changed(self, rank: int, standby: Standby) -> None:
        if self._standbys.get(rank) is not standby:  # it is a rank's process
            if not standby.gone:
                self._failures = 0
                self._loading = {
                    pid: entry for pid, entry in self._loading.items() if entry[1].taken
                }
            return
        if standby.ready:
            self._failures = 0
            self.largest = max(self.largest, standby.memory)
            size = f", {standby.memory / 1e6:.0f} MB" if standby.memory else ""
            LOG.info("rank %d: standby ready after %.1f s%s", rank, standby.seconds, size)
        elif standby.gone:
            del self._standbys[rank]
            LOG.info("rank %d: standby given up: %s", rank, standby.gone)
            self._count_failure(standby)
        self.news()

    def _count_failure(self, standby: Standby) -> None:
        self._failures += 1
        if self._failures >= MOST_FAILURES and not self._refused:
            self._refused = f"{self._failures} standbys in a row failed: {standby.gone}"
            LOG.warning("%s from now on: %s", NO_EFFECT, self._refused)

    def _spare_memory(self) -> bool:
        """Give up all standbys if memory is short; True: start no new one now."""
        used = self.memory_used()
        if used is None:
            return False
        if used > FULL:
            for rank, one in list(self._standbys.items()):
                del self._standbys[rank]  # before it stops: this is not a failure
                one.stop("memory is short")
                LOG.info("rank %d: standby given up: %.0f %% of memory in use", rank, 100 * used)
        return used > ROOM


def _resolved(launch: Launch) -> tuple[str, ...]:
    return instead_of_launcher(launch.command, launch.environment, launch.working_dir)


def _beginning(launch: Launch) -> Launch:
    return replace(launch, command=_resolved(launch), environment=lasting(launch.environment))
