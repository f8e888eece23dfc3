"""Whether a notice would come in time for the script, said before it comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun.contract.ages import essence


def asking(gap: float, *, step: int = 1210, **config: object) -> WorkerObservation:
    scene = a_run(replicas=2, grace=seconds(30), **config).running()
    return scene.committed(0, 1000).with_all(steps=(step,), stepped=1.0).with_agent(1, ask_gap=gap)


def told(scene: WorkerObservation) -> str:
    found = scene.plan.status.condition("SaveTooLate")
    return "" if found is None else found.message


def shown(scene: WorkerObservation) -> WorkerObservation:
    """The next pass, after that one and what it asks for were written."""
    return scene.after(scene.plan, scene.after(scene.plan).plan)


def test_a_script_that_asks_too_seldom_is_told_what_a_notice_would_cost() -> None:
    scene = shown(asking(0.0)).with_agent(1, ask_gap=95.0)
    found = scene.plan.status.condition("SaveTooLate")
    assert found is not None
    assert (found.status, found.reason) == ("True", "AsksTooSeldom")
    assert found.message == (
        "a notice of 30 s would lose 210 steps: the script has not called should_save() for 68 s "
        "or more (worker run-1-1); call it in evaluation loops and before long work, too, or raise "
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


def uneven(pause: float, *, calls: int = 100, **config: object) -> WorkerObservation:
    """Slot 0 asks in every step, slot 1 has not asked for so long."""
    scene = asking(0.0, **config).with_all(fewest_calls=100, ask_pause=0.5, first_step=60.0)
    for slot in (0, 1):
        scene = scene.voted(slot, calls=100)
    return scene.with_agent(1, fewest_calls=calls, ask_pause=pause)


def test_ranks_that_stop_asking_while_others_go_on_are_told_once() -> None:
    """As with uneven inputs under DDP's Join: a save was lost, and nobody had said why."""
    scene = shown(uneven(0.0)).with_agent(1, fewest_calls=97, ask_pause=11.0)
    assert told(scene) == (
        "a notice would lose 210 steps: the script has not called should_save() for 10 s or more "
        "(worker run-1-1) while other ranks did: let all ranks call it equally often, also without "
        "data (DDP's Join)"
    )
    assert [event.reason for event in scene.plan.events] == ["SaveTooLate"]
    next_epoch = shown(scene).with_agent(1, fewest_calls=160, ask_pause=0.5)
    assert (told(next_epoch), next_epoch.plan.events) == (told(scene), ())


def test_ranks_that_pause_together_or_need_not_agree_do_not_ask_unevenly() -> None:
    assert told(uneven(29.0, calls=98)) == "", "it evaluates, and the others wait for it"
    assert told(uneven(9.0, calls=50)) == ""
    assert told(uneven(29.0, calls=50, independent_ranks=True)) == ""
    assert told(uneven(29.0, calls=50).with_exit(1, code=0)) == "", "it has ended"
    assert told(uneven(29.0, calls=0)) != "", "it never asks, and the others do"


def test_ranks_that_begin_or_evaluate_together_were_said_to_ask_unevenly() -> None:
    """What the others told was some seconds older: a slow start in a fresh clone, an evaluation."""
    begun = uneven(29.0, calls=0).with_all(first_step=0.6)
    assert told(begun.with_agent(1, fewest_calls=0, ask_pause=20.0)) == ""
    evaluated = uneven(29.0, calls=80).with_agent(0, ask_gap=28.0)
    assert "while other ranks did" not in told(evaluated)
