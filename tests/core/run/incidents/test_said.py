"""What a script says itself about its end: trainrun.FatalError and trainrun.RetryError."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun_operator.api.run.rules import FailureRule
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.attribution import best
from trainrun_operator.core.run.incidents.losses import losses_of

FATAL = "trainrun.FatalError: the data set is empty"
RETRY = "trainrun.RetryError: the server is busy"
BROKEN = "RuntimeError: Connection closed by peer"


def cause_of(scene: WorkerObservation) -> Cause:
    loss = best(losses_of(scene.view))
    assert loss is not None
    return loss.cause


def failed(scene: WorkerObservation) -> tuple[str, str]:
    mark = scene.after(scene.plan).plan.status.condition("Failed")
    return (mark.reason, mark.message) if mark is not None else ("", "")


@pytest.mark.case(
    "decisions", "The script raises trainrun.FatalError", counted="maxFailures; the run fails"
)
def test_a_fatal_error_fails_the_run_with_its_message_whatever_is_left_of_the_budget() -> None:
    scene = a_run(max_failures=-1).running().with_exit(1, exception=FATAL)
    reason, message = failed(scene)
    assert (reason, message) == (
        "FatalError",
        "rank 1 exited with code 1: trainrun.FatalError: the data set is empty: do what the "
        "message asks for; the script says that a restart does not help",
    )
    kept = ". Committed checkpoints are kept; a run on the same storage continues from them"
    assert failed(scene.committed(0, 30)) == (reason, f"{message}{kept}")


def test_a_class_made_from_it_says_the_same() -> None:
    kinds = ("my.NoData", "trainrun.FatalError", "trainrun.errors.TrainRunError", "Exception")
    scene = a_run().running().with_exit(1, exception="my.NoData: x", kinds=kinds)
    assert cause_of(scene) is Cause.FATAL_ERROR


def test_a_word_in_a_message_says_nothing() -> None:
    scene = a_run().running().with_exit(1, exception=f"ValueError: {FATAL}")
    assert cause_of(scene) is Cause.APP_ERROR


@pytest.mark.parametrize(
    "other",
    [
        {"signal": 11, "age": 30.0},
        {"exception": "ValueError: x", "age": 30.0},
        {"exception": BROKEN, "age": 30.0},
    ],
    ids=["signal", "exception", "broken collective"],
)
@pytest.mark.parametrize(
    ("said", "cause"), [(FATAL, Cause.FATAL_ERROR), (RETRY, Cause.RETRY_ERROR)]
)
def test_it_goes_before_whatever_other_processes_died_of(
    other: dict[str, Any], said: str, cause: Cause
) -> None:
    scene = a_run().running().with_exit(0, **other).with_exit(1, exception=said)
    assert cause_of(scene) is cause


@pytest.mark.parametrize("known", [Cause.NODE_LOST, Cause.PREEMPTED, Cause.EVICTED])
def test_what_the_world_knows_stands_above_it(known: Cause) -> None:
    scene = a_run().running().with_exit(1, exception=FATAL).lost(0, known)
    assert cause_of(scene) is known


def test_the_kernels_kill_for_memory_stands_above_it() -> None:
    scene = a_run().running().with_exit(0, oom=True).with_exit(1, exception=FATAL)
    assert cause_of(scene) is Cause.OUT_OF_MEMORY


def test_a_rule_that_does_not_name_it_says_nothing_about_it() -> None:
    """An exit code of 1 is that of any exception."""
    given = (FailureRule(action="RestartUncounted", exit_codes=(1,)),)
    scene = a_run(max_failures=-1, rules=given).running().with_exit(1, exception=FATAL)
    assert failed(scene)[0] == "FatalError"


@pytest.mark.parametrize(
    "matcher", [{"causes": ("FatalError",)}, {"exceptions": ("FatalError",)}], ids=str
)
def test_a_rule_that_names_it_decides(matcher: dict[str, Any]) -> None:
    given = (FailureRule(action="RestartUncounted", **matcher),)
    scene = a_run(max_failures=0, rules=given).running().with_exit(1, exception=FATAL)
    assert failed(scene) == ("", "")


@pytest.mark.case(
    "decisions", "The script raises trainrun.RetryError", counted="maxFailures after five in a row"
)
def test_a_restart_that_the_script_asks_for_is_not_counted_five_times_in_a_row() -> None:
    scene, counted = a_run(max_failures=1), []
    for attempt in range(1, 8):
        scene = scene.running(attempt).with_all(steps=(None,)).with_exit(0, exception=RETRY)
        scene = scene.after(scene.plan).waiting().resolved().without_backoff()
        scene = scene.after(scene.plan)
        counted.append(scene.status.failures.counted)
    assert counted == [0, 0, 0, 0, 0, 1, 2]
    mark = scene.status.condition("Failed")
    assert mark is not None
    assert mark.reason == "MaxFailuresExceeded"
    assert "the script repeatedly asks for a restart without a new step" in mark.message
