"""A Lightning Trainer in a run of two ranks ends with the same weights, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.common import STEPS
from tests.frameworks.trained import BOTH_WAYS, Trained, loading, train

if TYPE_CHECKING:
    from tests.frameworks.conftest import Compare

FRAMEWORK = "Lightning"
SCRIPT = Path(__file__).parent / "lightning_noise.py"
KILL = ("--fault", "kill rank=1 step=13")
KILL_LATER = ("--fault", "kill rank=1 step=17")
PREEMPT = ("--fault", "preempt rank=1 step=9 grace=600s")
PREEMPT_BEFORE_A_VALIDATION = ("--fault", "preempt rank=1 step=6 grace=600s")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))


def test_a_trainer_tells_every_step_and_keeps_its_own_files(
    undisturbed: Trained, compare: Compare
) -> None:
    progress = undisturbed.ended.status["progress"]
    assert progress["step"] == STEPS
    assert undisturbed.reported == set(range(1, STEPS + 1))
    assert {"loss", "val_loss"} <= progress["metrics"].keys()
    # `save_top_k=1`: ModelCheckpoint removes its own files as ever.
    assert len(list((undisturbed.out / "disk").glob("*.ckpt"))) == 1
    compare(undisturbed, undisturbed, "undisturbed")


def test_two_processes_of_one_worker_end_like_two_workers(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    compare(train(SCRIPT, tmp_path, workers=1, **loading(1, 2)), undisturbed, "undisturbed")


def test_a_trainer_goes_on_inside_an_epoch_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *KILL, HANG_BEFORE_1="15")
    assert run.incidents == [("AppError", 12)]
    assert run.ended.incidents[0]["lostSteps"] == 1
    compare(run, undisturbed, "killed")


def test_a_trainer_saves_inside_an_epoch_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    # Not once more at step 12 before the worker is stopped.
    run = train(SCRIPT, tmp_path, *PREEMPT, WAIT_AFTER_1="10", HANG_BEFORE_1="12")
    assert run.incidents == [("Preempted", 10)]
    compare(run, undisturbed, "preempted")


@BOTH_WAYS
def test_a_trainer_saves_before_a_validation_and_goes_on_from_the_end_of_an_epoch_on_new_disks(
    workers: int, tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    where = {"WAIT_AFTER_1": "7", "HANG_BEFORE_1": "9", "HANG_BEFORE_2": "19"}
    where |= loading(workers, 2)
    if workers == 2:
        where["NEW_DISKS"] = "1"
    faults = (*PREEMPT_BEFORE_A_VALIDATION, *KILL_LATER)
    run = train(SCRIPT, tmp_path, *faults, workers=workers, failures=2, **where)
    assert run.incidents == [("Preempted", 7), ("AppError", 16)]
    assert bests(run) == bests(undisturbed)
    compare(run, undisturbed, "both")


def test_a_trainer_that_saves_in_the_background_goes_on_from_such_a_checkpoint(
    tmp_path: Path, undisturbed: Trained
) -> None:
    where = {"WAIT_AFTER_1": "10", "HANG_BEFORE_1": "12"}
    run = train(SCRIPT, tmp_path, *PREEMPT, **where, ASYNCHRONOUS="1")
    assert run.incidents == [("Preempted", 10)]
    assert run.weights == undisturbed.weights
    assert bests(run) == bests(undisturbed)


def bests(run: Trained) -> list[str]:
    """The weights in the file that ModelCheckpoint holds for the best, as each rank reads it."""
    return [(run.out / f"best-{rank}").read_text() for rank in (0, 1)]
