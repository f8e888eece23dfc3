"""The same failure again and again is shown, with the code or the node to blame."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident
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
        "third time: FloatingPointError in loss.py:88 at step 128, on 3 nodes: the code is at "
        "fault, and restarts do not help",
    )


def test_always_on_one_node_it_is_the_node() -> None:
    killed = {"exception": (), "raised_at": "", "exit_code": 139, "step": None}
    assert repeated(several("n1", "n1", "n1", "n1", **killed)) == (
        "SameNode",
        "fourth time: SIGSEGV before the first step, always on node n1: have the node checked",
    )


def test_of_an_exception_the_script_is_looked_at_before_the_node() -> None:
    assert repeated(several("n1", "n1", "n1"))[1].endswith(
        "always on node n1: first check whether the script is at fault, then have the node checked"
    )


KILLED = {"exception": (), "raised_at": "", "exit_code": 139}


@pytest.mark.parametrize(
    ("end", "blamed"),
    [
        (
            {},
            "FloatingPointError in loss.py:88 at step 128: the code is at fault, and restarts do "
            "not help",
        ),
        (KILLED, "SIGSEGV at step 128: the code is at fault, or node n1, the only one that ran it"),
    ],
    ids=["exception", "signal"],
)
def test_a_run_of_one_worker_was_told_to_have_its_node_checked(
    end: dict[str, Any], blamed: str
) -> None:
    told = repeated(several("n1", "n1", "n1", **end), alone=True)
    assert told == ("SameFailure", f"third time: {blamed}")


def test_the_folder_of_a_worker_on_this_machine_is_no_node() -> None:
    told = repeated(several("w1", "w1", "w1", worker="w1"))
    assert told[1].endswith("at step 128: the code is at fault, and restarts do not help")


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


def failing(scene: WorkerObservation, attempt: int, *, step: int | None = 7) -> WorkerObservation:
    scene = scene.running(attempt).with_all(steps=(step,))
    end = {"exception": "ValueError: x", "kinds": ("ValueError",), "raised_at": "train.py:5"}
    scene = scene.with_exit(attempt % 2, **end)
    return scene.after(scene.plan)


@pytest.mark.case(
    "decisions", "The same failure ends attempts at the same step", counted="its cause"
)
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


def test_the_only_worker_of_a_run_has_no_other_node_to_compare_with() -> None:
    scene = a_run(max_failures=-1, replicas=1)
    for attempt in (2, 4, 6):  # slot 0 each time
        scene = failing(scene, attempt).waiting().resolved().without_backoff()
        scene = scene.after(scene.plan)
    mark = scene.status.condition("FailsAgain")
    assert mark is not None
    assert mark.reason == "SameFailure"
