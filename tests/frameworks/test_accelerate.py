"""A loop of Accelerate in a run of two ranks ends with the same weights, whatever happens.

Two workers have Accelerate's usual sampler, two processes of one worker the seedable one, which
gives another order, and loading processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.trained import (
    BOTH_WAYS,
    Trained,
    assert_that_it_tells_every_step,
    loading,
    train,
)

if TYPE_CHECKING:
    from tests.frameworks.conftest import Compare

FRAMEWORK = "Accelerate"
SCRIPT = Path(__file__).parent / "accelerate_noise.py"
KILL_AT_THE_END_OF_AN_EPOCH = ("--fault", "kill rank=1 step=17")
KILL_LATER = ("--fault", "kill rank=1 step=22")
"""The first step behind the save at 20 in which the ranks wait for each other."""
PREEMPT = ("--fault", "preempt rank=1 step=9 grace=600s")
SAVE = {"WAIT_AFTER_1": "10", "HANG_BEFORE_1": "12"}
"""On notice, and not once more at step 12 before the worker is stopped."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Trained]:
    """By the number of workers."""
    return {
        workers: train(
            SCRIPT, tmp_path_factory.mktemp("undisturbed"), workers=workers, **variant(workers)
        )
        for workers in (2, 1)
    }


def variant(workers: int) -> dict[str, str]:
    return {**loading(workers, 2), **({"SEEDABLE": "1"} if workers == 1 else {})}


@BOTH_WAYS
def test_a_loop_tells_every_step(
    workers: int, undisturbed: dict[int, Trained], compare: Compare
) -> None:
    run = undisturbed[workers]
    assert_that_it_tells_every_step(run)
    assert run.ended.status["progress"]["metrics"].keys() == {"loss", "val_loss", "epoch"}
    compare(run, run, "undisturbed")


def test_a_loop_goes_on_from_the_end_of_an_epoch_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: dict[int, Trained], compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *KILL_AT_THE_END_OF_AN_EPOCH, HANG_BEFORE_1="18")
    assert run.incidents == [("AppError", 16)]
    assert run.ended.incidents[0]["lostSteps"] == 1
    compare(run, undisturbed[2], "killed")


def test_a_loop_saves_inside_gradient_accumulation_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: dict[int, Trained], compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *PREEMPT, **SAVE)
    assert run.incidents == [("Preempted", 10)]
    compare(run, undisturbed[2], "preempted")


@BOTH_WAYS
def test_a_loop_goes_on_after_a_worker_was_taken_away_and_a_rank_was_lost(
    workers: int, tmp_path: Path, undisturbed: dict[int, Trained], compare: Compare
) -> None:
    where = {**SAVE, "HANG_BEFORE_2": "23", **variant(workers)}
    run = train(SCRIPT, tmp_path, *PREEMPT, *KILL_LATER, workers=workers, failures=2, **where)
    assert run.incidents == [("Preempted", 10), ("AppError", 20)]
    compare(run, undisturbed[workers], "both")
