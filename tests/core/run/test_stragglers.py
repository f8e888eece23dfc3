"""The condition Straggler: which rank holds its peers up, by how much, and when it is told."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.agent_state import Pace, ProcessExit
from trainrun.contract.ages import essence


def working(*paces: tuple[float, float] | None) -> WorkerObservation:
    """Ranks with so many seconds a step, and busy for such a part of the time."""
    scene = a_run(replicas=len(paces)).running()
    for slot, pace in enumerate(paces):
        scene = scene.with_agent(slot, paces=(as_pace(pace),))
    return scene


def as_pace(pace: tuple[float, float] | None) -> Pace | None:
    return Pace(step=pace[0], busy=pace[1]) if pace is not None else None


def told(scene: WorkerObservation) -> str:
    found = scene.plan.status.condition("Straggler")
    return "" if found is None else found.message


def shown(scene: WorkerObservation) -> WorkerObservation:
    return scene.after(scene.plan)


@pytest.mark.case("processes", "A rank is slower than its peers for some minutes")
def test_a_rank_whose_steps_take_longer_is_named_with_its_node_and_factor() -> None:
    plan = working((1.0, 1.0), (1.1, 1.0), (1.0, 1.0), (2.3, 1.0)).plan
    found = plan.status.condition("Straggler")
    assert found is not None
    assert (found.status, found.reason) == ("True", "SlowSteps")
    assert found.message == (
        "rank 3 (worker run-3-1 on node node-3) takes at least 2 times as long for a step as its "
        "peers; check its node (clocks, other load), and what only this rank does. Nothing is "
        "restarted for this"
    )
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "Straggler")]
    assert (plan.status.phase, plan.status.incident) == ("Running", None)


def test_where_all_wait_for_each_other_the_one_that_works_longest_is_named() -> None:
    scene = working((1.0, 0.3), (1.0, 0.95), (1.0, 0.31))
    found = scene.plan.status.condition("Straggler")
    assert found is not None
    assert found.reason == "WorksLonger"
    assert found.message.startswith(
        "rank 1 (worker run-1-1 on node node-1) computes, or waits for a CPU, at least 3 "
        "times as long in each step as its peers, which seem to wait for it; check"
    )


@pytest.mark.parametrize(
    "paces",
    [
        ((1.0, 1.0), (1.4, 1.0)),
        ((1.0, 1.0), (1.0, 1.4), (1.0, 1.0)),
        ((1.0, 0.01), (1.0, 0.4), (1.0, 0.01)),  # it waits itself, most of the time
        ((5.0, 1.0),),  # alone
        (None, (9.0, 9.0)),
        ((2.0, 1.0), (2.0, 1.0), (1.0, 1.0)),  # one is fast
    ],
)
def test_what_is_no_straggler(paces: tuple[tuple[float, float] | None, ...]) -> None:
    assert told(working(*paces)) == ""


def test_ranks_that_wait_without_any_cpu_are_waiting_all_the_same() -> None:
    message = told(working((1.0, 0.0), (1.0, 0.9)))
    assert message.startswith("rank 1 (")
    assert "at least 100 times" in message


def test_what_is_told_stays_while_the_factor_changes_little_and_until_it_is_clearly_well() -> None:
    known = shown(working((1.0, 1.0), (2.02, 1.0)))
    message = told(known)
    assert "at least 2 times" in message
    for step in (1.9, 2.4, 3.1):
        later = known.with_agent(1, paces=(Pace(step=step, busy=1.0),))
        assert (told(later), later.plan.transition) == (message, False)
    assert "at least 3 times" in told(known.with_agent(1, paces=(Pace(step=4.0, busy=1.0),)))
    nearly = shown(working((1.0, 1.0), (1.5, 1.0)))
    assert told(nearly.with_agent(1, paces=(Pace(step=1.26, busy=1.0),))) == told(nearly)
    well = nearly.with_agent(1, paces=(Pace(step=1.24, busy=1.0),))
    assert told(well) == ""


def test_who_was_named_stays_named_where_another_one_is_as_slow() -> None:
    paces = ((1.0, 1.0), (2.2, 1.0), (2.1, 1.0), (1.0, 1.0))
    known = shown(working(*paces))
    assert told(known).startswith("rank 1 ")
    later = known.with_agent(2, paces=(Pace(step=2.3, busy=1.0),))
    assert told(later) == told(known)


def test_ranks_of_one_worker_and_those_that_have_ended() -> None:
    fast, slow = Pace(step=1.0, busy=1.0), Pace(step=4.0, busy=1.0)
    scene = a_run(replicas=2, processes_per_worker=2).running().with_all(steps=(5, 5))
    scene = scene.with_agent(0, paces=(fast, fast)).with_agent(1, paces=(fast, slow))
    assert told(scene).startswith("rank 3 (worker run-1-1 on node node-1) takes at least 3 times")
    end = ProcessExit(rank=3, code=0)
    assert told(scene.with_agent(1, exits=(end,))) == ""
    both = (ProcessExit(rank=2, code=0), end)
    assert told(scene.with_agent(1, exits=both, phase="Idle")) == ""


def test_who_cannot_judge_takes_nothing_back() -> None:
    known = shown(working((1.0, 1.0), (3.5, 1.0)))
    assert told(known.unheard(1)) == told(known)
    assert told(known.silent(0, 16)) == told(known)
    assert told(working((1.0, 1.0), (3.5, 1.0)).unheard(1)) == ""


def test_it_goes_with_the_attempt() -> None:
    known = shown(working((1.0, 1.0), (3.5, 1.0)))
    ended = known.with_exit(0)
    assert told(ended.after(ended.plan)) == ""
    assert told(known.all_done()) == ""


def test_how_a_rank_works_is_no_news_of_an_agent() -> None:
    one = working((1.0, 1.0), (3.5, 1.0)).worker(1).agent
    other = working((1.0, 1.0), (2.5, 0.7)).worker(1).agent
    assert one is not None
    assert other is not None
    assert essence(one) == essence(other)
