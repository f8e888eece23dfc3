"""With a window only the newest incidents count: by their own times, and in a bounded status."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import BEGIN, HOUR, a_config, a_run, an_incident, seconds
from trainrun_operator.api.run.spec import MAX_IN_WINDOW
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.incidents import ledger
from trainrun_operator.core.run.incidents.attribution import settled
from trainrun_operator.core.run.view import View

WINDOWED = a_config(max_failures=2, window=HOUR)


def at(minutes: float, attempt: int = 9) -> Incident:
    return replace(an_incident(attempt=attempt), time=BEGIN + timedelta(minutes=minutes))


def after(*minutes: float, config: RunConfig = WINDOWED) -> TrainRunStatus:
    """The status once failures of these minutes have been settled."""
    status = TrainRunStatus()
    for attempt, minute in enumerate(minutes, start=1):
        status = replace(status, attempt=attempt, incident=at(minute, attempt))
        now = BEGIN + timedelta(minutes=minute)
        scene = replace(a_run(), config=config, status=status, now=now)
        view: View = scene.view
        status = settled(view, status)
    return status


@pytest.mark.parametrize(
    ("before", "now", "fails"),
    [
        ((), 0, False),
        ((0, 10), 20, True),
        ((0, 10), 59, True),
        ((0, 10), 60, False),
        ((0.015, 10), 60.01, True),  # less than a second before it would leave the window
        ((0, 10, 65), 69, True),
        ((0, 10, 65), 70, False),
        ((0, 100, 200, 300, 400), 450, False),
    ],
)
def test_the_failure_that_is_one_too_many_within_the_window_fails_the_run(
    before: tuple[float, ...], now: float, fails: bool
) -> None:
    assert (ledger.judge(after(*before), at(now), WINDOWED) is not None) is fails


def test_the_message_names_the_window() -> None:
    verdict = ledger.judge(after(0, 10), at(20), WINDOWED)
    assert verdict is not None
    assert verdict.reason == "MaxFailuresExceeded"
    assert (
        "spec.failurePolicy.maxFailures is 2 within 3600 s (spec.failurePolicy.window) and 2 were "
        "used before"
    ) in verdict.message


def test_the_counters_stay_and_the_text_shows_what_counts_now() -> None:
    status = after(0, 10, 100)
    assert (status.failures.counted, status.failures.text) == (3, "1/2")
    scene = replace(a_run().running(4), config=WINDOWED)
    scene = scene.with_status(failures=status.failures, moments=status.moments)
    shown = replace(scene, now=BEGIN + timedelta(minutes=101)).plan.status.failures
    assert (shown.counted, shown.text) == (3, "1/2")
    assert replace(scene, now=BEGIN + 9 * HOUR).plan.status.failures.text == "0/2"


def test_a_window_that_is_given_later_counts_what_was_before() -> None:
    without = a_config(max_failures=2)
    assert ledger.judge(after(0, 10, config=without), at(20), WINDOWED) is not None
    assert ledger.judge(after(0, 10, config=without), at(90), WINDOWED) is None


def test_moments_are_bounded_by_the_largest_limit_and_enough_for_it() -> None:
    config = a_config(max_failures=MAX_IN_WINDOW, window=HOUR)
    status = after(*(minute / 10 for minute in range(200)), config=config)
    assert {name: len(text) for name, text in status.moments.items()} == {"failures": 65 * 13}
    assert ledger.judge(status, at(20), config) is not None


def test_moments_are_microseconds_since_1970_which_every_version_reads_alike() -> None:
    first = "6474846204000"
    moments = ledger.remembered({"failures": first, "preemptions": "x"}, at(1))
    assert moments == {"failures": f"{first}6474849b3c700", "preemptions": "x"}


def test_a_failed_run_goes_on_when_enough_fits_into_the_window() -> None:
    status = after(0, 10, 20)
    assert not ledger.admits(status, "failures", WINDOWED)
    assert ledger.admits(status, "failures", replace(WINDOWED, window=seconds(900)))
    assert ledger.admits(status, "failures", a_config(max_failures=3, window=HOUR))


def test_failures_that_a_leader_whose_clock_was_ahead_has_counted_are_not_forgotten() -> None:
    assert ledger.judge(after(180, 181), at(5), WINDOWED) is not None
