"""A Hugging Face Trainer in a run of two ranks ends with the same weights, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from transformers import GPT2LMHeadModel

from tests.frameworks.common import STEPS, digest
from tests.frameworks.trained import BOTH_WAYS, Trained, loading, train

if TYPE_CHECKING:
    from tests.frameworks.conftest import Compare

FRAMEWORK = "Hugging Face Trainer"
SCRIPT = Path(__file__).parent / "gpt2.py"
KILL = ("--fault", "kill rank=1 step=13")
KILL_LATER = ("--fault", "kill rank=1 step=17")
PREEMPT = ("--fault", "preempt rank=1 step=9 grace=600s")
SAVE = {"WAIT_AFTER_1": "10", "HANG_BEFORE_1": "12"}
"""On notice, and not once more at step 12 before the worker is stopped."""
AGAIN = {**SAVE, "HANG_BEFORE_2": "19"}


def disks(workers: int) -> dict[str, str]:
    """Each worker has a disk of its own; the processes of one share its folder."""
    return {"DISKS": "rank"} if workers == 2 else {}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))


def test_a_trainer_tells_what_it_logs_and_keeps_its_own_folders(
    undisturbed: Trained, compare: Compare
) -> None:
    progress = undisturbed.ended.status["progress"]
    assert progress["step"] == STEPS
    assert isinstance(progress["metrics"]["train_loss"], float)
    assert undisturbed.reported >= set(range(2, STEPS + 1, 2))  # `logging_steps=2`
    # `save_total_limit=1`: the Trainer removes its own folders as ever.
    kept = [path.name for path in (undisturbed.out / "disk").glob("checkpoint-*")]
    assert kept == [f"checkpoint-{STEPS}"]
    compare(undisturbed, undisturbed, "undisturbed")


def test_two_processes_of_one_worker_end_like_two_workers(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    compare(train(SCRIPT, tmp_path, workers=1, **loading(1, 1)), undisturbed, "undisturbed")


def test_processes_of_one_worker_that_save_to_different_folders_are_refused(tmp_path: Path) -> None:
    run = train(SCRIPT, tmp_path, workers=1, failures=0, fails=True, DISKS="rank")
    (incident,) = run.ended.incidents
    assert "ValueError: rank 0 has output_dir=" in incident["message"]
    assert "disk-0', but rank 1 of the same worker has" in incident["message"]
    assert "Give the processes of a worker the same output_dir" in incident["message"]


def test_a_trainer_goes_on_from_its_last_checkpoint_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *KILL, HANG_BEFORE_1="15")
    assert run.incidents == [("AppError", 12)]
    assert run.ended.incidents[0]["lostSteps"] == 1
    compare(run, undisturbed, "killed")


def test_a_trainer_saves_inside_an_epoch_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    run = train(SCRIPT, tmp_path, *PREEMPT, **SAVE, **disks(2))
    assert run.incidents == [("Preempted", 10)]
    compare(run, undisturbed, "preempted")


@BOTH_WAYS
def test_a_trainer_goes_on_after_a_worker_was_taken_away_and_a_rank_was_lost(
    workers: int, tmp_path: Path, undisturbed: Trained, compare: Compare
) -> None:
    where = {**AGAIN, **disks(workers), **loading(workers, 1)}
    run = train(SCRIPT, tmp_path, *PREEMPT, *KILL_LATER, workers=workers, failures=2, **where)
    assert run.incidents == [("Preempted", 10), ("AppError", 16)]
    compare(run, undisturbed, "both")


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(SCRIPT, tmp_path_factory.mktemp("best"), BEST="1", DISKS="life")


@pytest.mark.case(
    "script", "A framework's option needs state that a resume cannot carry", counted="maxFailures"
)
def test_every_rank_ends_with_the_best_weights_also_without_a_disk_that_all_share(
    best: Trained,
) -> None:
    assert best.weights[0] == best.weights[1] == best_on_disk(best, "disk-0-1")


def test_a_worker_that_comes_back_with_an_empty_disk_ends_with_the_best_weights(
    tmp_path: Path, best: Trained
) -> None:
    run = train(
        SCRIPT, tmp_path, *PREEMPT, *KILL_LATER, failures=2, BEST="1", DISKS="life", **AGAIN
    )
    assert run.incidents == [("Preempted", 10), ("AppError", 16)]
    assert run.weights == best.weights
    # The patience of EarlyStoppingCallback is over where it was over without a fault.
    assert run.ended.status["progress"]["step"] == best.ended.status["progress"]["step"] == 20
    assert best_on_disk(run, "disk-0-3") == best_on_disk(best, "disk-0-1")


def best_on_disk(run: Trained, disk: str) -> str:
    """The best checkpoint of a Trainer's folder, as a digest."""
    return digest(GPT2LMHeadModel.from_pretrained(run.out / disk / "checkpoint-4"))
