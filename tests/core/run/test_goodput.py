"""What the time of a run went into: buckets without a rest, and a step counts once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.builders import BEGIN
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.core.run.times import divided, goodput, total


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def a_chapter(**fields: Any) -> Chapter:
    """Started at 0, spawned at 1, first step at 11, last one at 61 (51 steps), over at 70."""
    told: dict[str, Any] = {
        "number": 2,
        "attempt": 1,
        "begun": at(0),
        "workers": 2,
        "reports": True,
        "spawned": at(1),
        "first_step": at(11),
        "stepped": at(61),
        "reached": 51,
        "ended": at(61.5),
        "end": "Incident",
        "incident": {"cause": "AppError"},
        "survived": 51,
        "since": at(61.5),
        "doing": "Flushing",
    }
    return Chapter(**(told | fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"useful": 50.0, "start": 1.0, "first_step": 10.0, "rework": 0.5, "drain": 8.5}),
        (
            {"survived": 41},
            {"useful": 40.0, "start": 1.0, "first_step": 10.0, "rework": 10.5, "drain": 8.5},
        ),
        (
            {"survived": None},
            {"start": 1.0, "first_step": 10.0, "rework": 50.5, "drain": 8.5},
        ),
        (
            {"rendezvous_seconds": 3.0, "load_seconds": 2.0, "stall_seconds": 25.0},
            {
                "useful": 25.0,
                "start": 1.0,
                "rendezvous": 3.0,
                "load": 2.0,
                "first_step": 5.0,
                "checkpoint_stall": 25.0,
                "rework": 0.5,
                "drain": 8.5,
            },
        ),
        (
            {"ended": at(66), "since": at(66)},
            {"useful": 50.0, "start": 1.0, "first_step": 10.0, "hang": 5.0, "drain": 4.0},
        ),
        (
            {"ended": at(66), "since": at(66), "incident": {"cause": "Interrupted"}},
            {"useful": 50.0, "start": 1.0, "first_step": 10.0, "unknown": 5.0, "drain": 4.0},
        ),
        (
            {"end": "Suspend", "incident": {}},
            {"useful": 50.0, "start": 1.0, "first_step": 10.0, "drain": 9.0},
        ),
        (
            {"first_step": None, "stepped": None, "reached": None},
            {"start": 1.0, "first_step": 60.5, "drain": 8.5},
        ),
        (
            {"first_step": None, "stepped": None, "reached": None, "reports": False},
            {"start": 1.0, "drain": 8.5, "unknown": 60.5},
        ),
        (
            {"resumed_from": CheckpointId(attempt=1, step=50), "stepped": at(11), "survived": 51},
            {"start": 1.0, "first_step": 10.0, "hang": 50.5, "drain": 8.5},
        ),
        (
            {"workers": 0, "ended": None, "since": at(10), "waits": {"Unschedulable": 10.0}},
            {"queue": 10.0, "drain": 60.0},
        ),
        (
            {"workers": 0, "ended": None, "since": None, "doing": ""},
            {"unknown": 70.0},
        ),
    ],
)
def test_the_time_of_a_chapter_is_divided_without_a_rest(
    fields: dict[str, Any], expected: dict[str, float]
) -> None:
    found = divided(a_chapter(**fields), at(70))
    assert found == expected
    assert sum(found.values()) == pytest.approx(70.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"begun": at(20)},  # by a leader whose clock was ahead
        {"begun": at(80)},
        {"spawned": at(-30)},
        {"first_step": at(0.5)},
        {"ended": at(-5)},
        {"since": at(20)},
        {"waits": {"Unschedulable": 50.0}},
    ],
)
def test_a_clock_that_is_set_back_makes_no_time_negative(fields: dict[str, Any]) -> None:
    chapter = a_chapter(**fields)
    found = divided(chapter, at(70))
    assert all(part > 0 for part in found.values())
    assert sum(found.values()) == pytest.approx(
        max(70.0 - (chapter.begun - at(0)).total_seconds(), 0.0)
    )


def test_an_attempt_that_runs_has_kept_all_its_steps_until_it_is_known_otherwise() -> None:
    running = a_chapter(ended=None, end="", incident={}, survived=None, since=None)
    assert divided(running, at(62))["useful"] == 51.0
    assert divided(running, at(161))["unknown"] == 100.0


def test_goodput_is_useful_time_of_all_time() -> None:
    both = total({"useful": 30.0, "queue": 10.0}, {"useful": 30.0, "rework": 30.0})
    assert both == {"useful": 60.0, "queue": 10.0, "rework": 30.0}
    assert goodput(both) == 0.6
    assert goodput({}) is None
