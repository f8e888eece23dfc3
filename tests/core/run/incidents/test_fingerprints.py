"""The same failure again and again is shown, with the code or the node to blame."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import Scene, a_run, an_incident
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.incidents.repeats import repeated

NAN = {
    "exception": ("FloatingPointError", "ArithmeticError"),
    "raised_at": "loss.py:88",
    "step": 128,
    "rank": 1,
    "exit_code": 1,
}


def several(*nodes: str, **fields: Any) -> list[Incident]:
    return [
        an_incident(attempt=number, node=node, **(NAN | fields))
        for number, node in enumerate(nodes, start=1)
    ]


def test_the_third_time_on_three_nodes_it_is_the_code() -> None:
    assert repeated(several("n1", "n2", "n3")) == (
        "SameFailure",
        "third time: FloatingPointError in loss.py:88 at step 128, on 3 nodes: the code, which no "
        "restart mends",
    )


def test_always_on_one_node_it_is_the_node() -> None:
    killed = {"exception": (), "raised_at": "", "exit_code": 139, "step": None}
    assert repeated(several("n1", "n1", "n1", "n1", **killed)) == (
        "SameNode",
        "fourth time: SIGSEGV before the first step, always on node n1: have the node checked",
    )


def test_twice_may_be_chance() -> None:
    assert repeated(several("n1", "n2")) == ("", "")


@pytest.mark.parametrize(
    "other",
    [
        {"step": 129},
        {"template": "another image"},
        {"raised_at": "loss.py:89"},
        {"exception": ("ValueError",)},
        {"collateral": True},
        {"exception": (), "raised_at": ""},
    ],
    ids=str,
)
def test_what_differs_is_another_failure(other: dict[str, Any]) -> None:
    assert repeated([*several("n1", "n2"), *several("n3", **other)]) == ("", "")


def test_nothing_is_said_where_nothing_has_happened() -> None:
    assert repeated([]) == ("", "")


def test_other_incidents_in_between_do_not_hide_it() -> None:
    between = several("n4", exit_code=139, exception=(), raised_at="")
    assert repeated([*several("n1", "n2"), *between, *several("n3")])[0] == "SameFailure"


def failing(scene: Scene, attempt: int, *, step: int | None = 7) -> Scene:
    scene = scene.running(attempt).with_all(steps=(step,))
    end = {"exception": "ValueError: x", "kinds": ("ValueError",), "raised_at": "train.py:5"}
    scene = scene.with_exit(attempt % 2, **end)
    return scene.after(scene.plan)


def test_the_condition_is_there_from_the_third_time_on_until_the_run_gets_further() -> None:
    scene, shown = a_run(max_failures=-1), []
    for attempt in (1, 2, 3):
        scene = failing(scene, attempt).waiting().resolved().without_backoff()
        scene = scene.after(scene.plan)
        shown.append(scene.status.is_true("FailsAgain"))
    assert shown == [False, False, True]
    mark = scene.status.condition("FailsAgain")
    assert mark is not None
    assert mark.message.startswith("third time: ValueError in train.py:5 at step 7, on 2 nodes")
    assert not scene.running(4).with_all(steps=(8,)).plan.status.is_true("FailsAgain")
