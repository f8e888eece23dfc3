"""How long a step has been owed, as an agent measures it."""

from __future__ import annotations

import pytest

from trainrun.agent.training.step_clock import LONGEST_WAIT, StepClock
from trainrun.contract.agent_state import LongSection
from trainrun.contract.messages import SectionBegun


def ticked(clock: StepClock, begin: float, end: float) -> StepClock:
    """An agent that has run all the time."""
    while begin <= end:
        clock.tick(begin)
        begin += 1.0
    return clock


def started(*, until: float, blocked: bool = False) -> StepClock:
    clock = StepClock(excused=lambda: blocked)
    clock.start(100.0)
    return ticked(clock, 100.0, until)


def test_a_step_is_owed_since_the_start_and_then_since_the_newest_report() -> None:
    clock = started(until=160.0)
    assert clock.owes(160.0) == 60.0
    clock.moved(160.0)
    assert clock.owes(163.0) == 3.0


def test_nothing_is_owed_while_a_process_waits_for_its_agent() -> None:
    clock = started(until=110.0)
    clock.begin_wait()
    clock.begin_wait()
    clock.end_wait(110.0)
    assert clock.owes(110.0) is None
    ticked(clock, 110.0, 500.0).end_wait(500.0)
    assert clock.owes(500.5) == 0.5


def test_nothing_is_owed_while_the_store_holds_a_report_up() -> None:
    assert started(until=500.0, blocked=True).owes(500.0) is None


@pytest.mark.case(
    "processes", "A rank stays in a long_section() beyond its timeout", counted="maxFailures"
)
def test_nothing_is_owed_in_a_long_section_and_it_is_told_how_long_it_lasts() -> None:
    clock = started(until=110.0)
    clock.begun(3, SectionBegun(number=1, name="evaluate", seconds=60.0), 110.0)
    clock.begun(4, SectionBegun(number=1, name="export", seconds=20.0), 112.0)
    ticked(clock, 110.0, 140.0)
    assert clock.owes(140.0) is None
    assert clock.section(140.0) == LongSection(rank=4, name="export", timeout=20.0, lasts=28.0)
    clock.ended(4, 1, 140.0)
    assert clock.section(140.0) == LongSection(rank=3, name="evaluate", timeout=60.0, lasts=30.0)
    assert clock.owes(140.0) is None
    clock.ended(3, 1, 141.0)
    assert (clock.section(142.0), clock.owes(142.0)) == (None, 1.0)


def test_a_process_that_ends_leaves_its_sections() -> None:
    clock = started(until=110.0)
    clock.begun(3, SectionBegun(number=7, name="evaluate", seconds=60.0), 110.0)
    clock.left(4, 110.0)
    assert clock.owes(110.0) is None
    clock.left(3, 110.0)
    assert clock.owes(111.0) == 1.0


def test_an_end_without_a_beginning_changes_nothing() -> None:
    clock = started(until=160.0)
    clock.ended(3, 9, 160.0)
    assert clock.owes(160.0) == 60.0


def test_an_agent_that_stood_still_itself_knows_nothing_and_counts_anew() -> None:
    clock = started(until=110.0)
    assert clock.owes(400.0) is None
    clock.tick(400.0)
    assert clock.owes(401.0) == 1.0


def test_a_long_section_does_not_last_longer_for_a_pause_of_the_whole_machine() -> None:
    clock = started(until=110.0)
    clock.begun(0, SectionBegun(number=1, name="evaluate", seconds=60.0), 110.0)
    ticked(clock, 110.0, 130.0)
    for now in (700.0, 701.0):
        section = clock.section(now)
        assert section is not None
        assert section.lasts <= 26.0
        clock.tick(now)


def test_the_slowest_step_is_one_that_came_and_not_the_first() -> None:
    clock = started(until=160.0)
    clock.stepped(160.0)
    assert clock.slowest == 0.0, "it may have compiled for a minute"
    ticked(clock, 160.0, 167.0).stepped(167.0)
    ticked(clock, 167.0, 169.0).stepped(169.0)
    assert clock.slowest == 7.0
    ticked(clock, 169.0, 300.0)
    assert clock.slowest == 7.0, "nobody knows whether it will come"


def test_a_step_that_nobody_owed_was_not_slow() -> None:
    clock = started(until=160.0)
    clock.stepped(160.0)
    clock.begun(0, SectionBegun(number=1, name="evaluate", seconds=60.0), 161.0)
    ticked(clock, 160.0, 200.0).ended(0, 1, 200.0)
    clock.stepped(201.0)
    clock.begin_wait()
    ticked(clock, 201.0, 300.0).stepped(300.0)
    clock.end_wait(300.0)
    clock.tick(900.0)
    clock.stepped(901.0)
    assert clock.slowest == 1.0


def test_a_transfer_that_never_ends_does_not_excuse_for_ever() -> None:
    end = 100.0 + LONGEST_WAIT
    for blocked in (True, False):
        clock = started(until=100.0, blocked=blocked)
        if not blocked:
            clock.begin_wait()
        ticked(clock, 100.0, end + 10.0)
        assert clock.owes(end) is None
        assert clock.owes(end + 10.0) == 10.0
        clock.moved(end + 10.0)  # another process has reported
        assert clock.owes(end + 11.0) is None


def test_waits_one_after_the_other_are_not_one_long_wait() -> None:
    clock, now = started(until=100.0), 100.0
    for _ in range(3):
        clock.begin_wait()
        ticked(clock, now, now + LONGEST_WAIT / 2)
        now += LONGEST_WAIT / 2
        clock.end_wait(now)
    assert clock.owes(now) == 0.0


def test_a_store_that_is_known_to_be_away_is_waited_for_without_end() -> None:
    clock = StepClock(excused=lambda: True, away=lambda: True)
    clock.start(100.0)
    assert ticked(clock, 100.0, 200.0 + LONGEST_WAIT).owes(200.0 + LONGEST_WAIT) is None
