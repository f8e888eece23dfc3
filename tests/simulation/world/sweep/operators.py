"""Operators of a simulated sweep: production's loop over a world whose watch lags.

Layer: simulation. Each effect of a pass is one turn, and any turn may be the last.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tests.simulation.world.sweep.cluster import SweepCluster
from tests.simulation.world.sweep.storage import SWEEP
from tests.simulation.world.sweep.sweep_object import SweepObject
from trainrun.sweep.view import SweepView
from trainrun_operator.api.sweep.status import TrainSweepStatus, json_object, status_from
from trainrun_operator.core.sweep.boundary import (
    DeleteTrial,
    SweepObservation,
    SweepPlan,
    TrialAction,
    TrialRun,
)
from trainrun_operator.core.sweep.clerking import ClerkOrders
from trainrun_operator.core.sweep.display import is_settled
from trainrun_operator.runtime.clerk_exchange import ClerkExchange
from trainrun_operator.runtime.reconciler import Wakeup
from trainrun_operator.runtime.sweep_leader import SweepLeader, SweepSeen

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ClerkKeeper(Protocol):
    """Sees to it that a clerk is there, or none."""

    def look_after(self, exchange: ClerkExchange, *, wanted: bool) -> None:
        """For the sweep of this desk."""
        ...


class Deposed(Exception):
    """Another operator leads."""


class Deleted(Exception):
    """The sweep is gone, or another object has its name."""


class Overtaken(Exception):
    """Somebody has written the object since it was looked at."""


@types.coroutine
def others() -> Generator[None, None, None]:
    """Let others have their turns."""
    yield


class TurnWakeup(Wakeup):
    """By virtual time, which others let pass."""

    def __init__(self, clock: Callable[[], float], idle: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._clock = clock
        self._idle = idle

    def time(self) -> float:
        """Virtual seconds."""
        return self._clock()

    async def _rest(self, _pause: float) -> None:
        await self._idle()


@dataclass(frozen=True, kw_only=True)
class SimulatedSeen(SweepSeen):
    """A look at a simulated sweep."""

    sweep: SweepObject


class SimulatedOperator:
    """One replica of a cluster's operator; a SweepWorld of the sweep that it leads."""

    def __init__(self, number: int, cluster: SweepCluster, clerks: ClerkKeeper) -> None:
        self.number = number
        self.doing = ""
        """What its next turn is."""
        self.reliable = False
        """Its watch is up to date, and it knows whether it leads."""
        self.exchange: ClerkExchange | None = None
        """Of the sweep that it leads."""
        self.serves = False
        """It is there for clerks, since it believes that it leads."""
        self._cluster = cluster
        self._clerks = clerks
        self._sweep = cluster.sweep
        self._runs: dict[str, TrialRun] = {}
        """As its watch has shown them, by name."""
        self._wakeup = TurnWakeup(cluster.clock, self._idle)
        self._term = 0

    def turns(self) -> Iterator[None]:
        """For ever."""
        yield from self._live().__await__()

    async def _live(self) -> None:
        while True:
            self.serves, self.exchange = False, None
            await self._turn("wait for the Lease")
            self._term = self._cluster.term
            if not self._leads:
                continue
            self.serves, self._sweep = True, self._cluster.sweep
            self._runs = {it.name: it.seen() for it in self._cluster.runs.values()}
            with suppress(Deposed):
                while True:
                    await self._lead()

    async def _lead(self) -> None:
        """As `cluster/sweeping/manager.py` does: a leader for each sweep that is not over."""
        self.exchange = None
        await self._idle()
        if is_settled(self._sweep.raw):
            return
        self._wakeup = TurnWakeup(self._cluster.clock, self._idle)
        self.exchange = ClerkExchange(
            sweep_uid=self._sweep.uid, on_news=self._wakeup.now, clock=self._cluster.clock
        )
        with suppress(Deleted):
            await SweepLeader(self, self._wakeup).lead()

    @property
    def _leads(self) -> bool:
        return (self._cluster.leader, self._cluster.term) == (self.number, self._term)

    async def _turn(self, doing: str) -> None:
        self.doing = doing
        await others()

    async def _guarded(self, doing: str) -> None:
        """The Lease is looked at before every write; what is on its way is done all the same."""
        if not self._leads:
            raise Deposed
        await self._turn(doing)

    # -------------------------------------------------------------------------- its watch

    async def _idle(self) -> None:
        """See what has changed meanwhile, some of it, and whether we lead."""
        await self._turn("look")
        if not self._leads and (self.reliable or self._cluster.random.random() < 0.3):
            raise Deposed
        self._watch()
        if self.exchange is not None and self.exchange.sweep_uid != self._sweep.uid:
            raise Deleted

    def _watch(self) -> None:
        random, cluster = self._cluster.random, self._cluster
        if self.reliable or random.random() < 0.7:
            if cluster.sweep.uid != self._sweep.uid:
                self._runs = {}
            if cluster.sweep is not self._sweep:
                self._wakeup.now()
            self._sweep = cluster.sweep
        if self._sweep.uid != cluster.sweep.uid:
            return  # what belongs to another object is none of its runs
        for name in {*self._runs, *cluster.runs}:
            if self.reliable or random.random() < 0.7:
                self._see(name)

    def _see(self, name: str) -> None:
        run, before = self._cluster.runs.get(name), self._runs.pop(name, None)
        if run is not None:
            self._runs[name] = run.seen()
        if self._runs.get(name) != before:
            self._wakeup.now()

    # -------------------------------------------------------------------------- the world

    @asynccontextmanager
    async def look(self) -> AsyncIterator[SimulatedSeen]:
        """By the watch."""
        exchange, sweep = self._own_desk, self._sweep
        before = status_from(sweep.status)
        yield SimulatedSeen(
            name=SWEEP,
            config=sweep.config,
            observation=SweepObservation(
                log=exchange.log(),
                acted_on=before.position,
                runs=tuple(self._runs.values()),
                carried_out=exchange.carried_out,
            ),
            before=before,
            generation=sweep.generation,
            now=EPOCH + timedelta(seconds=int(self._cluster.clock.now)),
            sweep=sweep,
        )

    @property
    def _own_desk(self) -> ClerkExchange:
        assert self.exchange is not None, "it leads a sweep"
        return self.exchange

    async def write(self, seen: SimulatedSeen, status: TrainSweepStatus) -> None:
        """Raises Overtaken, Deposed."""
        await self._guarded("write the status")
        if not self._cluster.write_status(seen.sweep, json_object(status)):
            raise Overtaken
        self._sweep = self._cluster.sweep

    def tell(self, _seen: SimulatedSeen, _status: TrainSweepStatus) -> None:
        """Nobody listens."""

    async def order(self, seen: SimulatedSeen, plan: SweepPlan) -> None:
        """By the desk."""
        self._clerks.look_after(self._own_desk, wanted=not plan.over)
        await self._turn("order")
        log, runs = seen.observation.log, seen.observation.runs
        if plan.targets is not None and isinstance(log, SweepView):
            self._cluster.judge.orders(plan.targets, seen.config, log.position)
        working = any(run.phase == "Running" for run in runs)
        orders = ClerkOrders(spec=dict(seen.sweep.spec), targets=plan.targets, working=working)
        self._own_desk.order(orders)

    async def apply(self, seen: SimulatedSeen, action: TrialAction) -> str:
        """Nothing is refused. Raises Deposed."""
        log = seen.observation.log
        assert isinstance(log, SweepView), "it follows from the log"
        await self._guarded(f"{type(action).__name__} {action.name}")
        self._cluster.act(action, seen.sweep, position=log.position, leads=self._leads)
        if isinstance(action, DeleteTrial):
            self._runs.pop(action.name, None)
            self._wakeup.now()
        else:
            self._see(action.name)
        return ""

    def rest(self, plan: SweepPlan) -> bool:
        """As in a cluster."""
        self.doing = "look"
        return plan.over

    def failed(self, error: Exception) -> None:
        """Only writes that came too late are tried again."""
        if not isinstance(error, Overtaken):
            raise error
        self.doing = "look"
