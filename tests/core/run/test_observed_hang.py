"""The condition Hung: told once, coarse, with its culprit, and taken back when steps go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.agent_state import LongSection
from trainrun.contract.ages import essence
from trainrun.contract.evidence import Evidence, Frame, RankEvidence


def standing(owes: float | None, *, step: int | None = 5, **fields: Any) -> WorkerObservation:
    """The agents were asked where their ranks stand, and know nothing."""
    told: dict[str, Any] = {"slowest": 2.0, "spawned": 4100.0, "first_step": 4000.0}
    told |= {"steps": (step,), "owes": owes, "stepped": owes}
    scene = a_run(replicas=2).running().with_all(**(told | fields)).with_agent(1, steps=(4,))
    return scene.asked_for_evidence()


def told(scene: WorkerObservation) -> str:
    found = scene.plan.status.condition("Hung")
    return "" if found is None else found.message


def shown(scene: WorkerObservation) -> WorkerObservation:
    return scene.after(scene.plan)


@pytest.mark.case("processes", "A process hangs, and no timeout is set")
def test_it_says_who_stands_where_what_is_usual_and_that_nothing_is_ended() -> None:
    plan = standing(901.0).plan
    found = plan.status.condition("Hung")
    assert found is not None
    assert (found.status, found.reason) == ("True", "NoStep")
    assert found.message == (
        "no step for 15 min or more (the slowest took 2 s): rank 1 is at step 4, 1 other at "
        "5 (worker run-1-1 on node node-1). Only observed: wrap what takes long without a step in "
        "trainrun.long_section(); spec.health.progressTimeout, or hangPolicy: Restart, would end "
        "the attempt"
    )
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "Hung")]
    assert (plan.status.phase, plan.status.incident) == ("Running", None)


def test_it_is_told_once_and_reads_the_same_until_it_has_lasted_twice_as_long() -> None:
    first = shown(standing(901.0))
    message = told(first)
    later = first.with_all(owes=1799.0, stepped=1799.0, first_step=4898.0)
    assert (told(later), later.plan.events, later.plan.transition) == (message, (), False)
    longer = first.with_all(owes=1801.0, stepped=1801.0, first_step=4900.0)
    assert told(longer).startswith("no step for 30 min or more")
    assert longer.plan.events == ()


def test_it_is_taken_back_when_steps_go_on() -> None:
    scene = shown(standing(901.0)).with_all(owes=0.4, slowest=905.0, stepped=0.4)
    assert told(scene) == ""
    assert told(shown(scene)) == ""


def test_who_cannot_judge_takes_nothing_back() -> None:
    known = shown(standing(901.0))
    assert told(known.unheard(1)) == told(known)
    assert told(known.silent(1, 16)) == told(known)
    assert told(known.asked_to_save()) == told(known)
    assert told(known.with_agent(1, owes=None)) == "", "it waits for its agent, and says so"


def test_a_process_that_does_something_now_and_then_is_no_sign_that_steps_go_on() -> None:
    idle = standing(400.0, quiet=390.0)
    assert told(idle) != ""
    assert told(shown(idle).with_agent(0, quiet=5.0)) == told(idle)
    assert told(standing(400.0, quiet=5.0).with_status(evidence_asked=None)) == ""


def test_it_goes_with_the_attempt() -> None:
    scene = shown(standing(901.0)).with_exit(0)
    ended = scene.after(scene.plan)
    assert ended.status.ending is not None
    assert told(ended) == ""
    assert told(shown(standing(901.0)).all_done()) == ""


def test_what_never_reports_has_a_reason_of_its_own() -> None:
    scene = a_run(replicas=2).running().with_all(steps=(None,), owes=700.0, quiet=690.0)
    scene = scene.asked_for_evidence()
    found = scene.plan.status.condition("Hung")
    assert found is not None
    assert found.reason == "NoWork"
    assert found.message.startswith("the processes have used almost no CPU and I/O for 10 min or")


def test_a_section_that_takes_too_long_has_one_as_well() -> None:
    late = LongSection(rank=0, name="evaluate", timeout=60.0, lasts=130.0)
    scene = standing(None).with_agent(0, section=late)
    found = scene.plan.status.condition("Hung")
    assert found is not None
    assert found.reason == "SectionTooLong"
    assert '2 min or more in the long section "evaluate" (limit 60 s)' in found.message


def test_what_it_is_judged_by_is_no_news_of_an_agent() -> None:
    agent = standing(901.0).worker(1).agent
    other = standing(1000.0, slowest=3.0, quiet=10.0).worker(1).agent
    assert agent is not None
    assert other is not None
    assert essence(agent) == essence(other)


def where(scene: WorkerObservation, *names: str) -> WorkerObservation:
    """The agents have told where their ranks stand."""
    for slot, name in enumerate(names):
        own = Frame(name=name, file="/app/train.py", line=9, own=True)
        gloo = Frame(name=name, file="/lib/torch/distributed/distributed_c10d.py")
        frame = gloo if name == "all_reduce" else own
        rank = RankEvidence(rank=slot, step=5, state="S", stack=(frame,))
        scene = scene.with_agent(slot, evidence=Evidence(attempt=1, number=1, ranks=(rank,)))
    return scene


def test_the_event_of_a_hang_without_a_timeout_names_the_culprit_and_where_it_stands() -> None:
    """It said "ranks 0, 1 are at step 12", and nothing followed."""
    scene = standing(901.0).with_all(steps=(12,)).with_status(evidence_asked=None)
    asked = scene.plan
    assert (asked.events, asked.status.condition("Hung")) == ((), None)
    waits = scene.after(asked)
    assert (waits.plan.events, told(waits)) == ((), "")
    (event,) = where(waits, "load", "all_reduce").plan.events
    assert (event.type, event.reason) == ("Warning", "Hung")
    assert event.message.startswith(
        "no step for 15 min or more (the slowest took 2 s): ranks 0, 1 are at step 12; one "
        "rank away: rank 0 is in `load` (train.py:9); 1 other in all_reduce (worker run-0-1 "
        "on node node-0). Only observed: "
    )


def test_what_is_told_stays_while_the_agents_are_asked_again() -> None:
    known = shown(standing(901.0))
    again = known.with_status(evidence_asked=None)
    assert (told(again), again.plan.events) == (told(known), ())


def test_a_hang_that_ends_the_attempt_is_told_by_the_incident_alone() -> None:
    """It was told as StandsStill, as "only observed", and as the incident."""
    scene = standing(901.0).with_config(hang_policy="Restart").with_status(evidence_asked=None)
    assert scene.plan.events == ()
    plan = where(scene.after(scene.plan), "load", "all_reduce").plan
    assert [event.reason for event in plan.events] == ["Hung"]
    assert plan.events[0].message.startswith("attempt 1 ended: Hung: no step for 15 min or more")
    assert plan.status.condition("Hung") is None
