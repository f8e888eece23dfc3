"""What an agent has to do about an order, case by case; no process, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from trainrun.agent import desired_state
from trainrun.agent.desired_state import (
    ActualState,
    Begin,
    DesiredState,
    Flush,
    GiveUp,
    Leave,
    OfferPort,
    Resolve,
)
from trainrun.contract.agent_state import Offer, Outcome, Resolution
from trainrun.contract.answer import Answer, Exit, Hold, Order, ResolveRequest, Start

if TYPE_CHECKING:
    from trainrun.agent.desired_state import Task

AT_REST = ActualState(alive=False, stopped=True, uploading=False)
UPLOADING = replace(AT_REST, uploading=True)
ALIVE = ActualState(alive=True, stopped=False, uploading=False)
HELPERS_LEFT = ActualState(alive=False, stopped=False, uploading=False)
NOW = 100.0
NEW = DesiredState()


def a_start(attempt: int) -> Start:
    return Start(
        attempt=attempt, workers=1, world_size=1, master_addr="127.0.0.1", master_port=29999
    )


def a_hold(attempt: int, **fields: Any) -> Hold:
    return Hold(attempt=attempt, flush_seconds=30.0, **fields)


def told(*orders: Order, before: DesiredState = NEW) -> DesiredState:
    for order in orders:
        before = desired_state.answered(before, Answer(order=order), NOW)
    return before


def after(attempt: int, *orders: Order) -> DesiredState:
    """The duty of a worker that has started this attempt, and was told these orders then."""
    return told(*orders, before=desired_state.started(told(a_start(attempt)), attempt))


def to_do(
    what: DesiredState, actual: ActualState = AT_REST, *, passed: float = 0.0
) -> tuple[Task, ...]:
    return desired_state.to_do(what, actual, NOW + passed)


def phase(what: DesiredState, actual: ActualState, *, passed: float = 0.0) -> str:
    return desired_state.phase(what, actual, NOW + passed)


def test_without_an_order_there_is_nothing_to_do() -> None:
    assert to_do(DesiredState()) == ()
    assert phase(DesiredState(), AT_REST) == "Idle"


def test_a_gang_gathers_from_the_beginning_or_a_hold_until_the_start() -> None:
    assert desired_state.gathers(DesiredState(), AT_REST)
    assert desired_state.gathers(told(a_hold(1)), AT_REST)
    assert desired_state.gathers(after(1, a_hold(2)), AT_REST)
    assert desired_state.gathers(after(1, a_hold(2, flush=(7,))), UPLOADING)
    assert not desired_state.gathers(after(1, a_hold(2)), HELPERS_LEFT)
    assert not desired_state.gathers(after(2, a_hold(2)), AT_REST)  # late
    assert not desired_state.gathers(told(a_start(1)), AT_REST)
    assert not desired_state.gathers(told(Exit()), AT_REST)


def test_the_same_answer_again_changes_nothing() -> None:
    once = told(a_hold(1))
    assert desired_state.answered(once, Answer(order=a_hold(1)), NOW + 5) is once


def test_an_attempt_is_started_once() -> None:
    assert to_do(told(a_start(2))) == (Begin(a_start(2)),)
    assert to_do(after(2)) == ()


def test_an_attempt_below_one_that_was_held_for_is_refused() -> None:
    assert to_do(told(a_hold(3), a_start(2))) == ()
    assert to_do(told(a_hold(3), a_start(3))) == (Begin(a_start(3)),)


@pytest.mark.parametrize("left", [ALIVE, HELPERS_LEFT])
def test_what_is_left_of_an_attempt_is_stopped_before_anything_else(left: ActualState) -> None:
    assert to_do(after(1, a_start(2)), left) == (desired_state.Stop(),)
    assert to_do(after(1, a_hold(2, offer=True)), left) == (desired_state.Stop(),)
    assert phase(after(1, a_hold(2)), left) == "Running"


def test_processes_get_sigterm_where_the_hold_gives_them_time_and_are_killed_when_it_is_over() -> (
    None
):
    held = after(1, a_hold(2, grace_seconds=20.0))
    assert to_do(held, ALIVE, passed=19.9) == (desired_state.Terminate(),)
    assert to_do(held, ALIVE, passed=20.0) == (desired_state.Stop(),)
    assert phase(held, ALIVE) == "Running"


def test_processes_that_may_still_end_by_themselves_are_let_alone_until_that_time_is_over() -> None:
    held = after(1, a_hold(2, linger_seconds=2.0))
    assert to_do(held, ALIVE, passed=1.9) == ()
    assert phase(held, ALIVE, passed=1.9) == "Running"
    assert to_do(held, ALIVE, passed=2.0) == (desired_state.Stop(),)
    assert to_do(held, HELPERS_LEFT) == (desired_state.Stop(),)
    assert to_do(told(a_hold(2), before=held), ALIVE) == (desired_state.Stop(),), (
        "the culprit was heard"
    )
    graceful = after(1, a_hold(2, linger_seconds=2.0, grace_seconds=20.0))
    assert to_do(graceful, ALIVE, passed=2.0) == (desired_state.Terminate(),)


def test_helpers_that_outlive_their_process_are_not_waited_for() -> None:
    assert to_do(after(1, a_hold(2, grace_seconds=20.0)), HELPERS_LEFT) == (desired_state.Stop(),)


def test_a_hold_for_the_attempt_that_runs_is_late() -> None:
    assert to_do(after(2, a_hold(2)), ALIVE) == ()


def test_uploads_that_a_hold_names_come_before_the_port_and_the_resume_point() -> None:
    asked = ResolveRequest(attempt=2)
    held = after(1, a_hold(2, flush=(10,), offer=True, resolve=asked))
    assert to_do(held, UPLOADING) == (Flush((10,)),)
    assert phase(held, UPLOADING) == "Flushing"
    assert to_do(held) == (Flush((10,)), OfferPort(2), Resolve(asked))
    assert phase(held, AT_REST) == "Idle"


def test_uploads_that_take_too_long_are_given_up() -> None:
    held = after(1, a_hold(2, flush=(10,)))
    assert to_do(held, UPLOADING, passed=30.0) == (GiveUp(), Resolve(None))
    assert phase(held, UPLOADING, passed=30.0) == "Idle"


def test_a_hold_that_allows_more_time_for_uploads_is_news() -> None:
    held = after(1, a_hold(2, flush=(10,), flush_allowed=30.0))
    later = desired_state.answered(
        held, Answer(order=a_hold(2, flush=(10,), flush_allowed=50.0)), NOW + 20.0
    )
    assert to_do(later, UPLOADING, passed=30.0) == (Flush((10,)),)
    assert phase(later, UPLOADING, passed=49.0) == "Flushing"
    assert to_do(later, UPLOADING, passed=50.0) == (GiveUp(), Resolve(None))


def test_a_new_worker_has_nothing_to_flush() -> None:
    assert to_do(told(a_hold(2, flush=(10,), offer=True))) == (OfferPort(2), Resolve(None))


def test_a_port_is_offered_once_per_attempt() -> None:
    offer = Offer(attempt=2, address="127.0.0.1", port=29999)
    offered = desired_state.offered(told(a_hold(2, offer=True)), offer)
    assert to_do(offered) == (Resolve(None),)
    assert to_do(told(a_hold(3, offer=True), before=offered)) == (OfferPort(3), Resolve(None))


def test_who_is_told_to_leave_leaves_and_begins_nothing_any_more() -> None:
    leaving = after(1, Exit(code=3))
    assert to_do(leaving, ALIVE) == (Leave(Exit(code=3)),)
    assert to_do(desired_state.released(leaving), ALIVE) == ()


@pytest.mark.parametrize(
    ("order", "ours"),
    [
        (a_start(1), True),
        (a_start(2), False),
        (a_hold(2), True),
        (a_hold(1), False),
        (Exit(), False),
    ],
)
def test_an_answer_speaks_of_our_steps_while_our_attempt_runs_or_was_ended_last(
    order: Order, ours: bool
) -> None:
    assert (after(1, order).of_attempt is not None) == ours


@pytest.mark.case(
    "storage", "A process dies after such a report while the store is away", counted="its cause"
)
@pytest.mark.parametrize(
    ("outcome", "last_word"),
    [("Resolved", True), ("Finished", True), ("Behind", True), ("Unavailable", False)],
)
def test_the_store_is_asked_again_where_time_may_help(outcome: Outcome, last_word: bool) -> None:
    found = Resolution(attempt=2, outcome=outcome)
    assert desired_state.settled(found, ResolveRequest(attempt=2)) == last_word
    assert not desired_state.settled(found, ResolveRequest(attempt=3))
    assert not desired_state.settled(None, ResolveRequest(attempt=2))
