"""Which nodes are better not used, by what the runs of a namespace have met there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.builders import BEGIN, an_incident
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import NodeStrike
from trainrun_operator.core.run.gang.avoiding import offenders, strikes_of

NOW = BEGIN + timedelta(days=2)


def strike(run: str = "a", *, ago: float, node: str = "n7", cause: str = "AppError") -> NodeStrike:
    """So many hours ago."""
    return NodeStrike(node=node, run=run, cause=cause, time=NOW - timedelta(hours=ago))


def bad(*strikes: NodeStrike, own: str = "") -> list[str]:
    return [offender.node for offender in offenders(strikes, own=own, now=NOW)]


@pytest.mark.parametrize(
    ("hours_ago", "is_bad"),
    [
        ((0,), False),
        ((0, 0.5), True),
        ((0, 11.9), True),
        ((0, 12.1), False),
        ((4, 4.1), True),
        ((4.2, 4.3), False),
        ((6, 6.1, 6.2, 6.3), True),
        ((25, 26, 27, 28, 29), False),
    ],
    ids=str,
)
def test_an_incident_weighs_half_after_six_hours_and_nothing_after_a_day(
    hours_ago: tuple[float, ...], *, is_bad: bool
) -> None:
    of_others = [strike(f"run-{n}", ago=hours) for n, hours in enumerate(hours_ago)]
    own = [strike("mine", ago=hours) for hours in hours_ago]
    assert bool(bad(*own, own="mine")) is is_bad
    assert bool(bad(*of_others)) is is_bad


def test_a_run_that_fails_again_and_again_speaks_only_once_to_others() -> None:
    crashes = [strike("buggy", ago=hours) for hours in (0, 1, 2, 3)]
    assert bad(*crashes, own="mine") == []
    assert bad(*crashes, own="buggy") == ["n7"]
    (offender,) = offenders((*crashes, strike("other", ago=1)), own="mine", now=NOW)
    assert [(s.run, s.time) for s in offender.strikes] == [
        ("other", NOW - timedelta(hours=1)),
        ("buggy", NOW),
    ]


@pytest.mark.case("decisions", "Workers of several runs are lost on one node again and again")
def test_what_strikes_several_runs_at_once_is_one_event_of_the_node() -> None:
    lost = [strike(f"run-{n}", ago=1 + n / 60, cause="NodeLost") for n in range(4)]
    assert bad(*lost) == []
    assert bad(*lost, strike("later", ago=0.5, cause="NodeLost")) == ["n7"]
    assert bad(*lost, own="run-2") == []


def test_the_worst_node_comes_first() -> None:
    strikes = [strike(f"{node}-{n}", ago=n, node=node) for node in ("n1", "n2") for n in range(2)]
    assert bad(*strikes, strike("c", ago=2, node="n2")) == ["n2", "n1"]


def test_a_clock_that_is_a_little_ahead_is_taken_for_now_and_one_far_ahead_for_none() -> None:
    assert bad(strike("a", ago=-0.1), strike("b", ago=0.1)) == ["n7"]
    (offender,) = offenders([strike("a", ago=-0.1), strike("b", ago=0)], now=NOW)
    assert offender.weight == 2.0
    assert bad(strike("a", ago=-1), strike("b", ago=0.1), strike("b", ago=-900)) == []


def test_only_what_may_be_a_nodes_fault_speaks_against_it() -> None:
    told = [an_incident(cause, node="n7", attempt=n) for n, cause in enumerate(Cause, start=1)]
    found = strikes_of("run", told)
    assert {s.cause for s in found} == {
        "Evicted",
        "NodeLost",
        "OutOfMemory",
        "AppError",
        "StartFailed",
        "Misread",
        "Silent",
        "Hung",
        "Unknown",
    }
    assert strikes_of("run", [an_incident(node=""), an_incident(node="n", collateral=True)]) == ()


def test_it_is_told_with_what_happened_and_to_whom() -> None:
    strikes = (strike("a", ago=2), strike("b", ago=1, cause="NodeLost"), strike("c", ago=0))
    (offender,) = offenders(strikes, now=NOW)
    assert offender.runs == ("a", "b", "c")
    assert offender.text == (
        "n7 (3 incidents of 3 runs: AppError, NodeLost; the last on 2026-01-03 at 00:00 UTC)"
    )
