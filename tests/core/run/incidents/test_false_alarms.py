"""24 hours of different trainings under learned timeouts: no alarm too many, and no hang missed.

The agent's own measures and the core's rule, on virtual time; everything as it is by default.
"""

from __future__ import annotations

import copy
import functools
import random
import zlib
from dataclasses import dataclass, field

import pytest

from tests.core.run.incidents.step_traces import HOUR, MINUTE, TRACES, Step
from tests.support.builders import WorkerObservation, a_run
from tests.support.levels import some
from trainrun.agent.processes.procfs import Usage
from trainrun.agent.training.activity import Activity
from trainrun.agent.training.step_clock import StepClock
from trainrun_operator.api.run.status_parts import Learned
from trainrun_operator.core.run.incidents.hangs import suspected_hang, with_learned

DAY = 24.0 * HOUR
TICK = 2.0
LOOK = 15.0
"""Seconds between two looks of the operator at a gang that trains."""
LATE = 30.0
"""Seconds by which a hang may be told later than its timeout: a look, and a heartbeat."""
PLANTED = (0.1, 0.7, 2.0, 5.0, 11.0, 16.5, 23.5)
"""Hours after which every process stops in a step."""

RUN = a_run(replicas=1).running()


@dataclass
class Life:
    """One worker, as its agent sees it."""

    now: float = 0.0
    cpu: float = 0.0
    """Seconds that the processes have used."""
    spawned: float = 0.0
    first: float | None = None
    last: float = 0.0
    slowest: float = 0.0
    """Seconds of the slowest step that was not the first of an attempt, as it really was."""
    compiled: float = 0.0
    """Seconds until the first step of the newest attempt."""
    learned: Learned | None = None
    alarms: list[str] = field(default_factory=list)
    clock: StepClock = field(default_factory=StepClock)
    meter: Activity = field(init=False)
    _ticked: float = 0.0

    def __post_init__(self) -> None:
        self.starts()

    def starts(self) -> None:
        """The processes of an attempt."""
        self.learned = with_learned(self.scene.view, self.scene.status).learned
        self.spawned, self.first = self.now, None
        self.clock, self.meter = StepClock(), Activity(usage=self.used)
        self.clock.start(self.now)
        self.meter.start(self.now)

    def used(self, _pid: int) -> Usage:
        return Usage(cpu=self.cpu)

    def does(self, step: Step) -> None:
        if step.restarts and self.now:
            self.starts()
        before = self.now
        self.passes(step.seconds, idle=step.idle)
        self.clock.stepped(self.now)
        if self.first is None:
            self.first, self.compiled = self.now, self.now - self.spawned
        else:
            self.slowest = max(self.slowest, self.now - before)
        self.last = self.now

    def passes(self, seconds: float, *, idle: bool) -> None:
        """Without a step; the operator looks at it as often as it does, and just before the end."""
        end, looked = self.now + seconds, self.now
        while self.now < end:
            before, self.now = self.now, min(self.now + TICK, end)
            self.cpu += 0.0 if idle else self.now - before
            if self.now - self._ticked >= TICK / 2:
                self._ticked = self.now
                self.clock.tick(self.now)
                self.meter.look({0: 1}, self.now)
            if self.now - looked >= LOOK or (self.now == end and seconds > LOOK):
                looked = self.now
                self.alarms += [self.alarm] if self.alarm else []

    @property
    def alarm(self) -> str:
        loss = suspected_hang(self.scene.view)
        return "" if loss is None else f"after {self.now / HOUR:.2f} h: {loss.message}"

    @property
    def scene(self) -> WorkerObservation:
        stepped = self.first is not None
        return RUN.with_agent(
            0,
            steps=(int(self.last) if stepped else None,),
            owes=self.clock.owes(self.now),
            slowest=self.clock.slowest,
            quiet=self.meter.quiet(self.now) if self.now else None,
            spawned=self.now - self.spawned,
            first_step=self.now - self.first if self.first is not None else None,
            stepped=self.now - self.last if stepped else None,
        ).with_status(learned=self.learned)

    def hangs(self, *, idle: bool) -> float:
        """Seconds until it would be told, were this the moment at which it hangs."""
        life = copy.deepcopy(self)
        while not life.alarms:
            life.passes(LOOK, idle=idle)
            assert life.now - self.now < DAY, "never told"
        return life.now - self.now


@functools.cache
def lived(name: str, seed: int = 0) -> tuple[list[str], list[tuple[float, bool, float, float]]]:
    """All alarms of a day; of each planted hang the hour, whether the processes do nothing, after
    how many seconds it is told, and after how many it should be."""
    life, found, planted = Life(), [], list(PLANTED)
    for step in TRACES[name](random.Random(zlib.crc32(name.encode()) + seed)):
        if planted and life.now >= planted[0] * HOUR and life.slowest:
            for idle in (True, False):
                usual = max(5 * MINUTE, 3.0 * life.slowest)
                limit = usual if idle else max(usual, 15 * MINUTE, 1.5 * life.compiled)
                found.append((planted[0], idle, life.hangs(idle=idle), limit))
            planted.pop(0)
        if life.now >= DAY:
            return life.alarms, found
        life.does(step)
    raise AssertionError("a trace is endless")


@pytest.mark.slow
@pytest.mark.parametrize("name", some(sorted(TRACES), quick=1))
def test_a_day_of_training_raises_no_alarm(name: str) -> None:
    alarms, _ = lived(name)
    assert alarms == []


@pytest.mark.slow
@pytest.mark.parametrize("name", some(sorted(TRACES), quick=3))
def test_a_hang_at_any_time_of_the_day_is_told_in_time(name: str) -> None:
    _, found = lived(name)
    assert len(found) == 2 * len(PLANTED)
    for hour, idle, seconds, limit in found:
        assert 5 * MINUTE < seconds <= limit + LATE, f"after {hour} h, idle: {idle}"


@pytest.mark.slow
def test_in_the_first_minutes_of_a_steady_run_it_is_told_after_five() -> None:
    hour, idle, seconds, _ = lived("steady")[1][0]
    assert (hour, idle) == (0.1, True)
    assert seconds <= 5 * MINUTE + LATE


@pytest.mark.parametrize("idle", [True, False])
def test_an_evaluation_of_100_s_in_the_first_minute_of_training_is_no_hang(*, idle: bool) -> None:
    life = Life()
    for step in (Step(20.0), *(Step(0.7) for _ in range(60)), Step(100.0, idle=idle), Step(0.7)):
        life.does(step)
    assert life.alarms == []
