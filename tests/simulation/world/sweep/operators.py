"""Operators of a simulated sweep: they see, decide, write what they act on, order and act.

Layer: simulation. The order of a pass is that of `cluster/sweeping/leader.py`; decision, status,
messages and desk are those of production. Each effect is one turn, and any turn may be the last.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tests.simulation.world.sweep.cluster import SweepCluster
from tests.simulation.world.sweep.storage import SWEEP
from tests.simulation.world.sweep.sweep_object import SweepObject
from trainrun.sweep.view import SweepView
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.api.sweep.status_json import json_object, status_from
from trainrun_operator.core.sweep.clerking import ClerkOrders
from trainrun_operator.core.sweep.conditions import with_conditions
from trainrun_operator.core.sweep.display import is_settled, notable, sweep_status
from trainrun_operator.core.sweep.observation import ClerkUnknown, SweepObservation, TrialRun
from trainrun_operator.core.sweep.plan import CreateTrial, DeleteTrial, SuspendTrial, SweepPlan
from trainrun_operator.core.sweep.planner import decide_sweep
from trainrun_operator.runtime.clerk_desk import ClerkDesk

DISPLAY_EVERY = 15.0
"""Seconds between two writes of the status that only show progress."""
LOOK_AGAIN = 5.0
"""Seconds after which a clerk that is not heard is looked after."""
RETRY = 2.0
"""Seconds until a pass that failed is tried again."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ClerkKeeper(Protocol):
    """Sees to it that a clerk is there, or none."""

    def look_after(self, desk: ClerkDesk, *, wanted: bool) -> None:
        """For the sweep of this desk."""
        ...


class Deposed(Exception):
    """Another operator leads."""


class SimulatedOperator:
    """One replica of a cluster's operator."""

    def __init__(self, number: int, cluster: SweepCluster, clerks: ClerkKeeper) -> None:
        self.number = number
        self.doing = ""
        """What its next turn is."""
        self.reliable = False
        """Its watch is up to date, and it knows whether it leads."""
        self.desk: ClerkDesk | None = None
        """Of the sweep that it leads."""
        self.serves = False
        """It is there for clerks, since it believes that it leads."""
        self._cluster = cluster
        self._clerks = clerks
        self._sweep = cluster.sweep
        self._runs: dict[str, TrialRun] = {}
        """As its watch has shown them, by name."""
        self._shown_at = 0.0
        self._wake_at = 0.0
        """When it looks again, if nothing is new; 0: at once."""
        self._term = 0

    def turns(self) -> Iterator[None]:
        """For ever."""
        while True:
            self.serves, self.desk = False, None
            yield from self._turn("wait for the Lease")
            self._term = self._cluster.term
            if not self._leads:
                continue
            self.serves, self._sweep = True, self._cluster.sweep
            self._runs = {it.name: it.seen() for it in self._cluster.runs.values()}
            try:
                while True:
                    yield from self._lead()
            except Deposed:
                pass

    @property
    def _leads(self) -> bool:
        return (self._cluster.leader, self._cluster.term) == (self.number, self._term)

    def _turn(self, doing: str) -> Iterator[None]:
        self.doing = doing
        yield

    def _lead(self) -> Iterator[None]:
        """One look at the sweep."""
        yield from self._turn("look")
        if not self._leads and (self.reliable or self._cluster.random.random() < 0.3):
            raise Deposed
        self._watch()
        if self.desk is None or self.desk.sweep_uid != self._sweep.uid:
            self.desk = None
            if is_settled(self._sweep.raw):
                return
            self.desk = ClerkDesk(
                sweep_uid=self._sweep.uid, on_news=self._wake, clock=self._cluster.clock
            )
            self._wake()
        if self._cluster.clock.now < self._wake_at:
            return
        self._wake_at = self._cluster.clock.now + RETRY
        yield from self._pass(self.desk, self._sweep)

    def _wake(self) -> None:
        self._wake_at = 0.0

    def _watch(self) -> None:
        """See some of what has changed."""
        random, cluster = self._cluster.random, self._cluster
        if self.reliable or random.random() < 0.7:
            if cluster.sweep.uid != self._sweep.uid:
                self._runs = {}
            if cluster.sweep is not self._sweep:
                self._wake()
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
            self._wake()

    def _pass(self, desk: ClerkDesk, sweep: SweepObject) -> Iterator[None]:
        """Raises Deposed."""
        before = status_from(sweep.status)
        runs = tuple(self._runs.values())
        observation = SweepObservation(
            log=desk.log(), acted_on=before.position, runs=runs, carried_out=desk.carried_out
        )
        plan = decide_sweep(observation, sweep.config, name=SWEEP)
        status = self._status(sweep, observation, plan, before)
        late = self._cluster.clock.now - self._shown_at > DISPLAY_EVERY
        wanted = notable(status, before) or plan.guarded or (late and status != before)
        if wanted and not (yield from self._write(sweep, status)):
            return
        self._clerks.look_after(desk, wanted=not plan.over)
        yield from self._turn("order")
        self._order(desk, sweep, plan, observation)
        log = observation.log
        for action in plan.actions:
            assert isinstance(log, SweepView), "it follows from the log"
            yield from self._guarded(f"{type(action).__name__} {action.name}")
            self._cluster.act(action, sweep, position=log.position, leads=self._leads)
            match action:
                case CreateTrial() | SuspendTrial():
                    self._see(action.name)
                case DeleteTrial():
                    self._runs.pop(action.name, None)
                    self._wake()
        if plan.over:
            self.desk = None
        self._wake_later(plan, observation)

    def _wake_later(self, plan: SweepPlan, observation: SweepObservation) -> None:
        unknown = isinstance(observation.log, ClerkUnknown)
        limits = [plan.wake_after, LOOK_AGAIN if unknown else DISPLAY_EVERY]
        if self._wake_at:
            self._wake_at = self._cluster.clock.now + min(it for it in limits if it is not None)

    def _status(
        self,
        sweep: SweepObject,
        observation: SweepObservation,
        plan: SweepPlan,
        before: TrainSweepStatus,
    ) -> TrainSweepStatus:
        status = sweep_status(
            observation, sweep.config, plan, before=before, generation=sweep.generation
        )
        unknown = observation.log if isinstance(observation.log, ClerkUnknown) else None
        now = EPOCH + timedelta(seconds=int(self._cluster.clock.now))
        conditions = with_conditions(status, before=before, clerk=unknown, now=now)
        return replace(status, conditions=conditions)

    def _write(self, sweep: SweepObject, status: TrainSweepStatus) -> Generator[None, None, bool]:
        yield from self._guarded("write the status")
        if not self._cluster.write_status(sweep, json_object(status)):
            return False
        self._shown_at = self._cluster.clock.now
        self._sweep = self._cluster.sweep
        return True

    def _guarded(self, doing: str) -> Iterator[None]:
        """The Lease is looked at before every write; what is on its way is done all the same."""
        if not self._leads:
            raise Deposed
        yield from self._turn(doing)

    def _order(
        self, desk: ClerkDesk, sweep: SweepObject, plan: SweepPlan, seen: SweepObservation
    ) -> None:
        if plan.targets is not None and isinstance(seen.log, SweepView):
            self._cluster.judge.orders(plan.targets, sweep.config, seen.log.position)
        working = any(run.phase == "Running" for run in seen.runs)
        desk.order(ClerkOrders(spec=dict(sweep.spec), targets=plan.targets, working=working))
