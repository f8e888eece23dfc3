"""A Lightning Trainer in a run of two ranks ends with the same weights, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.common import STEPS
from tests.frameworks.trained import train

SCRIPT = Path(__file__).parent / "lightning_noise.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The weights of each rank, with their buffers."""
    run = train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))
    progress = run.ended.status["progress"]
    assert progress["step"] == STEPS
    assert {"loss", "val_loss"} <= progress["metrics"].keys()
    # `save_top_k=1`: ModelCheckpoint removes its own files as ever.
    assert len(list((run.out / "disk").glob("*.ckpt"))) == 1
    return run.weights


def test_a_trainer_goes_on_inside_an_epoch_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(SCRIPT, tmp_path, "--fault", "kill rank=1 step=13", HANG_BEFORE_1="15")
    (incident,) = run.ended.incidents
    assert incident["resumedFrom"]["step"] == 12
    assert incident["lostSteps"] == 1
    assert run.weights == undisturbed


def test_a_trainer_saves_inside_an_epoch_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    fault = "preempt rank=1 step=9 grace=600s"
    run = train(SCRIPT, tmp_path, "--fault", fault, WAIT_AFTER_1="10")
    (incident,) = run.ended.incidents
    assert incident["cause"] == "Preempted"
    assert incident["resumedFrom"]["step"] == 10
    assert run.weights == undisturbed


def test_two_processes_of_one_worker_save_before_a_validation_and_go_on_from_the_end_of_an_epoch(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(
        SCRIPT,
        tmp_path,
        *("--fault", "preempt rank=1 step=6 grace=600s"),
        *("--fault", "kill rank=1 step=17"),
        workers=1,
        failures=2,
        WAIT_AFTER_1="7",  # a validation follows it
        HANG_BEFORE_2="19",
        LOADERS="2",
    )
    taken, killed = run.ended.incidents
    assert (taken["cause"], taken["resumedFrom"]["step"]) == ("Preempted", 7)
    assert (killed["cause"], killed["resumedFrom"]["step"]) == ("AppError", 16)
    assert run.weights == undisturbed
