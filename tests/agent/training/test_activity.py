"""Whether the processes of an attempt do anything, by what they have used."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from trainrun.agent.processes.procfs import Usage
from trainrun.agent.training.activity import Activity


@dataclass
class Machine:
    """What two ranks have used."""

    used: dict[int, Usage | None] = field(default_factory=lambda: {1: Usage(), 2: Usage()})
    meter: Activity = field(init=False)

    def __post_init__(self) -> None:
        self.meter = Activity(usage=self.used.get)
        self.meter.start(0.0)

    def passes(self, begin: float, end: float) -> Machine:
        while begin <= end:
            self.meter.look({0: 1, 1: 2}, begin)
            begin += 1.0
        return self


def test_before_the_first_look_nobody_knows() -> None:
    assert Machine().passes(0.0, 9.0).meter.quiet(9.0) is None


@pytest.mark.case("processes", "A gang that never reports stands still")
def test_processes_that_use_nothing_are_quiet_since_they_were_started() -> None:
    machine = Machine().passes(0.0, 600.0)
    assert machine.meter.quiet(603.0) == 603.0


def test_one_that_computes_or_reads_ends_it() -> None:
    machine = Machine().passes(0.0, 100.0)
    machine.used[2] = Usage(cpu=0.6)
    assert machine.passes(101.0, 110.0).meter.quiet(110.0) == 0.0
    machine.used[1] = Usage(io=700_000)
    assert machine.passes(111.0, 125.0).meter.quiet(125.0) == 5.0


def test_a_timer_now_and_then_is_nothing() -> None:
    machine = Machine().passes(0.0, 100.0)
    machine.used[2] = Usage(cpu=0.4, io=100_000)
    assert machine.passes(101.0, 110.0).meter.quiet(110.0) == 110.0


def test_after_a_pause_of_the_whole_machine_it_begins_anew() -> None:
    machine = Machine().passes(0.0, 100.0)
    assert machine.meter.quiet(131.0) is None
    machine.passes(200.0, 205.0)
    assert machine.meter.quiet(205.0) == 5.0


def test_every_ten_seconds_it_says_how_long_each_rank_was_busy() -> None:
    machine = Machine()
    machine.used[2] = Usage(cpu=0.6, delayed=0.4)
    assert [machine.meter.look({0: 1, 1: 2}, now) for now in (9.0, 10.0, 11.0)] == [
        False,
        True,
        False,
    ]
    assert machine.meter.busy == {0: 0.0, 1: 1.0}


def test_what_cannot_be_read_says_nothing() -> None:
    machine = Machine()
    machine.used.update({1: None, 2: None})
    assert machine.passes(0.0, 100.0).meter.quiet(100.0) is None
