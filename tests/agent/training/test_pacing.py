"""How long the steps of each rank take, and how much CPU they need, as an agent measures it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from trainrun.agent.training.activity import Pacing
from trainrun.contract.agent_state import Pace


@dataclass
class Gang:
    """Two ranks that an agent looks at every ten seconds."""

    now: float = 0.0
    cpu: dict[int, float] = field(default_factory=lambda: {0: 5.0, 1: 5.0})
    steps: dict[int, float] = field(default_factory=lambda: {0: 0.0, 1: 0.0})
    pacing: Pacing = field(default_factory=Pacing)

    def trains(
        self,
        seconds: int,
        *,
        each: tuple[float, float],
        cores: tuple[float, float] = (1.0, 1.0),
        excused: bool = False,
    ) -> Gang:
        """`each`: seconds of a step, by rank; 0: none ends."""
        for _ in range(seconds * 10):
            self.now = round(self.now + 0.1, 1)
            for rank in (0, 1):
                self.cpu[rank] += 0.1 * cores[rank]
                before = int(self.steps[rank] + 1e-6)
                self.steps[rank] += 0.1 / each[rank] if each[rank] else 0.0
                if int(self.steps[rank] + 1e-6) > before:
                    self.pacing.stepped(rank, before + 1, self.now)
            if self.now % 10 == 0:
                self.pacing.look(dict(self.cpu), self.now, excused=excused)
        return self

    @property
    def paces(self) -> tuple[Pace | None, ...]:
        return self.pacing.paces((0, 1))


def test_after_a_minute_it_is_known_how_long_steps_take_and_how_much_cpu_is_used() -> None:
    gang = Gang().trains(60, each=(0.5, 1.0), cores=(0.2, 0.9))
    assert gang.paces == ()
    assert gang.trains(20, each=(0.5, 1.0), cores=(0.2, 0.9)).paces == (
        Pace(step=0.5, busy=0.2),
        Pace(step=1.0, busy=0.9),
    )


def test_steps_that_take_longer_than_a_look_are_measured_as_well() -> None:
    first, second = Gang().trains(400, each=(25.0, 30.0), cores=(0.2, 0.9)).paces
    assert (first, second) == (Pace(step=25.0, busy=0.2), Pace(step=30.0, busy=0.9))


def test_a_rank_that_never_reports_has_no_pace() -> None:
    gang = Gang().trains(100, each=(1.0, 0.0))
    assert gang.paces == (Pace(step=1.0, busy=1.0), None)


def test_an_evaluation_of_one_rank_alone_changes_nothing() -> None:
    gang = Gang().trains(200, each=(1.0, 1.0), cores=(0.5, 0.5))
    gang.trains(300, each=(0.0, 0.0), cores=(4.0, 0.0))
    gang.trains(30, each=(1.0, 1.0), cores=(0.5, 0.5))
    assert gang.paces == (Pace(step=1.0, busy=0.5), Pace(step=1.0, busy=0.5))


def test_what_is_excused_is_no_lap() -> None:
    gang = Gang().trains(100, each=(1.0, 1.0), cores=(0.5, 0.5))
    gang.trains(1000, each=(9.0, 9.0), cores=(4.0, 0.0), excused=True)
    for _ in range(20):  # most of the laps have a section, in which no step ends
        gang.trains(20, each=(0.0, 0.0), cores=(4.0, 0.0), excused=True)
        gang.trains(30, each=(1.0, 1.0), cores=(0.5, 0.5))
    assert gang.paces == (Pace(step=1.0, busy=0.5), Pace(step=1.0, busy=0.5))


@pytest.mark.case("processes", "A rank is slower than its peers for some minutes")
def test_a_rank_that_gets_slow_is_slow_after_some_minutes_and_well_again_later() -> None:
    gang = Gang().trains(200, each=(1.0, 1.0))
    gang.trains(60, each=(1.0, 2.0))
    assert gang.paces[1] == Pace(step=1.0, busy=1.0)
    gang.trains(60, each=(1.0, 2.0))
    assert gang.paces[1] == Pace(step=2.0, busy=1.0)
    assert gang.trains(120, each=(1.0, 1.0)).paces[1] == Pace(step=1.0, busy=1.0)


def test_where_cpu_time_cannot_be_read_nothing_is_told() -> None:
    gang = Gang()
    for step in range(20):
        gang.pacing.stepped(0, step, 10.0 * step)
        gang.pacing.look({}, 10.0 * step, excused=False)
    assert gang.paces == ()
