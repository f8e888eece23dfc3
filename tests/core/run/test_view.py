"""What several stages of a pass ask about the gang is worked out once in it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.builders import a_run
from trainrun_operator.core.run.incidents.hangs import suspected_hang
from trainrun_operator.core.run.view import View, once


def test_a_question_that_is_asked_again_in_a_pass_is_answered_as_before() -> None:
    asked = []

    @once
    def slots(view: View) -> list[int]:
        asked.append(view)
        return [worker.slot for worker in view.workers]

    first, second = a_run().running().view, a_run(replicas=3).running().view
    assert slots(first) is slots(first)
    assert (slots(first), slots(second)) == ([0, 1], [0, 1, 2])
    assert slots(replace(first, observation=second.observation)) == [0, 1, 2]
    assert len(asked) == 3


def test_that_a_gang_stands_still_is_judged_once_in_a_pass() -> None:
    view = a_run().running().with_all(owes=1000.0, slowest=2.0, first_step=2000.0).view
    assert suspected_hang(view) is not None
    assert suspected_hang(view) is suspected_hang(view)


def test_views_of_the_same_facts_are_equal_whatever_was_asked_of_one() -> None:
    scene = a_run().running()
    asked = scene.view
    suspected_hang(asked)
    assert asked == scene.view
