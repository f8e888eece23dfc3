"""A model in shards in a run of two ranks ends with the same shards, whatever happens."""

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

FRAMEWORK = "FSDP2"
SCRIPT = Path(__file__).parent / "fsdp2_noise.py"
KILL = ("--fault", "kill rank=1 step=14")
KILL_LATER = ("--fault", "kill rank=1 step=17")
PREEMPT = ("--fault", "preempt rank=1 step=8 grace=600s")
SAVE_IN_ACCUMULATION = {"WAIT_AFTER_1": "9", "HANG_BEFORE_1": "10"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))


def test_a_loop_tells_every_step(undisturbed: Trained, compare: Compare) -> None:
    assert_that_it_tells_every_step(undisturbed)
    compare(undisturbed, undisturbed, "undisturbed")


def test_two_processes_of_one_worker_end_like_two_workers(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    compare(train(SCRIPT, tmp_path, workers=1, **loading(1, 2)), undisturbed, "undisturbed")


def test_a_loop_goes_on_from_its_last_checkpoint_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *KILL, HANG_BEFORE_1="15")
    assert run.incidents == [("AppError", 12)]
    assert run.ended.incidents[0]["lostSteps"] == 2
    compare(run, undisturbed, "killed")


def test_a_loop_saves_inside_gradient_accumulation_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *PREEMPT, **SAVE_IN_ACCUMULATION)
    assert run.incidents == [("Preempted", 9)]
    compare(run, undisturbed, "preempted")


@BOTH_WAYS
def test_a_loop_goes_on_after_a_worker_was_taken_away_and_a_rank_was_lost(
    workers: int, tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    where = {**SAVE_IN_ACCUMULATION, "HANG_BEFORE_2": "18", **loading(workers, 2)}
    run = train(SCRIPT, tmp_path, *PREEMPT, *KILL_LATER, workers=workers, failures=2, **where)
    assert run.incidents == [("Preempted", 9), ("AppError", 16)]
    compare(run, undisturbed, "both")
