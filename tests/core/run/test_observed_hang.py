"""The condition Hung: told once, coarse, and taken back when steps go on."""

from __future__ import annotations

from typing import Any

from tests.support.builders import Scene, a_run
from trainrun.contract.agent_state import LongSection
from trainrun.contract.ages import essence
from trainrun.contract.evidence import Evidence, Frame, RankEvidence


def standing(owes: float | None, *, step: int | None = 5, **fields: Any) -> Scene:
    told: dict[str, Any] = {"slowest": 2.0, "spawned": 4100.0, "first_step": 4000.0}
    told |= {"steps": (step,), "owes": owes, "stepped": owes}
    return a_run(replicas=2).running().with_all(**(told | fields)).with_agent(1, steps=(4,))


def told(scene: Scene) -> str:
    found = scene.plan.status.condition("Hung")
    return "" if found is None else found.message


def shown(scene: Scene) -> Scene:
    return scene.after(scene.plan)


def test_it_says_who_stands_where_what_is_usual_and_that_nothing_is_ended() -> None:
    plan = standing(901.0).plan
    found = plan.status.condition("Hung")
    assert found is not None
    assert (found.status, found.reason) == ("True", "NoStep")
    assert found.message == (
        "no step for 15 min or more, and one took 2 s at most: rank 1 stands at step 4, 1 other at "
        "5 (worker run-1-1 on node node-1). Only observed: wrap what takes long without a step in "
        "trainrun.long_section(); spec.health.progressTimeout, or hangPolicy: Restart, would end it"
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
    assert told(standing(400.0, quiet=5.0)) == ""


def test_it_goes_with_the_attempt() -> None:
    scene = shown(standing(901.0)).with_exit(0)
    ended = scene.after(scene.plan)
    assert ended.status.ending is not None
    assert told(ended) == ""
    assert told(shown(standing(901.0)).all_done()) == ""


def test_what_never_reports_has_a_reason_of_its_own() -> None:
    scene = a_run(replicas=2).running().with_all(steps=(None,), owes=700.0, quiet=690.0)
    found = scene.plan.status.condition("Hung")
    assert found is not None
    assert found.reason == "NoWork"
    assert found.message.startswith("the processes have used next to no CPU and I/O for 10 min or")


def test_a_section_that_takes_too_long_has_one_as_well() -> None:
    late = LongSection(rank=0, name="evaluate", timeout=60.0, lasts=130.0)
    scene = standing(None).with_agent(0, section=late)
    found = scene.plan.status.condition("Hung")
    assert found is not None
    assert found.reason == "SectionTooLong"
    assert '"evaluate" for 2 min or more, which may take 60 s' in found.message


def test_what_it_is_judged_by_is_no_news_of_an_agent() -> None:
    agent = standing(901.0).worker(1).agent
    other = standing(1000.0, slowest=3.0, quiet=10.0).worker(1).agent
    assert agent is not None
    assert other is not None
    assert essence(agent) == essence(other)


def test_where_the_ranks_stand_is_asked_and_told_once_it_is_known() -> None:
    asked = standing(901.0).plan
    assert asked.status.evidence_asked is not None
    scene = standing(901.0).asked_for_evidence()
    frame = Frame(name="step", file="/app/train.py", line=9, own=True)
    for slot, step in enumerate((5, 4)):
        rank = RankEvidence(rank=slot, step=step, state="S", stack=(frame,))
        scene = scene.with_agent(slot, evidence=Evidence(attempt=1, number=1, ranks=(rank,)))
    message = told(scene)
    assert "; cause unknown: rank 1 stands in `step` (train.py:9); 1 other in `step`" in message
    assert "Only observed: " in message
