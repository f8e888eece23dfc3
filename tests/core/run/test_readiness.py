"""Whether a notice would come in time for the script, said before it comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import Scene, a_run, seconds
from trainrun.contract.ages import essence


def asking(gap: float, *, step: int = 1210, **config: object) -> Scene:
    scene = a_run(replicas=2, grace=seconds(30), **config).running()
    return scene.committed(0, 1000).with_all(steps=(step,), stepped=1.0).with_agent(1, ask_gap=gap)


def told(scene: Scene) -> str:
    found = scene.plan.status.condition("SaveTooLate")
    return "" if found is None else found.message


def shown(scene: Scene) -> Scene:
    """The next pass, after that one and what it asks for were written."""
    return scene.after(scene.plan, scene.after(scene.plan).plan)


def test_a_script_that_asks_too_seldom_is_told_what_a_notice_would_cost() -> None:
    scene = shown(asking(0.0)).with_agent(1, ask_gap=95.0)
    found = scene.plan.status.condition("SaveTooLate")
    assert found is not None
    assert (found.status, found.reason) == ("True", "AsksTooSeldom")
    assert found.message == (
        "a notice of 30 s would lose 210 steps: the script has not asked should_save() for 68 s or "
        "more (worker run-1-1); ask in evaluation loops and before long work, too, or raise "
        "terminationGracePeriodSeconds"
    )
    assert [event.reason for event in scene.plan.events] == ["SaveTooLate"]


@pytest.mark.parametrize("gap", [0.0, 29.0, 30.0])
def test_gaps_within_the_grace_are_nothing_to_tell(gap: float) -> None:
    assert told(asking(gap)) == ""


@pytest.mark.parametrize("policy", ["Signal", "Stop"])
def test_nothing_is_told_where_a_notice_does_not_wait_for_the_script(policy: str) -> None:
    assert told(asking(95.0, on_notice=policy)) == ""


def test_it_is_told_once_however_the_training_goes_on_and_anew_when_it_gets_much_worse() -> None:
    first = asking(31.0)
    message = told(first)
    assert "for 30 s or more" in message
    later = shown(first).with_all(steps=(1300,))
    assert told(later.with_agent(1, ask_gap=44.0)) == message
    assert later.with_agent(1, ask_gap=44.0).plan.events == ()
    assert "for 45 s or more" in told(later.with_agent(1, ask_gap=46.0))


def test_a_new_leader_keeps_it_until_it_has_heard_everybody() -> None:
    known = shown(asking(95.0))
    assert told(known.unheard(1)) == told(known)
    assert told(known.with_agent(1, ask_gap=0.0)) == ""


def test_it_goes_with_the_attempt() -> None:
    scene = shown(asking(95.0)).with_exit(0)
    assert told(scene.after(scene.plan)) == ""
    assert told(shown(asking(95.0)).all_done()) == ""


def test_without_a_step_that_would_be_lost_it_says_what_would() -> None:
    message = told(shown(asking(0.0, step=1000)).with_agent(1, ask_gap=95.0))
    assert "would lose what was trained since the newest checkpoint: the script" in message


def test_a_longer_gap_is_no_news_of_an_agent() -> None:
    agent = asking(31.0).worker(1).agent
    assert agent is not None
    assert essence(agent) == essence(replace(agent, ask_gap=95.0))
