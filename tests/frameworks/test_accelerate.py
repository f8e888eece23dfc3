"""A loop of Accelerate in a run of two ranks ends with the same weights, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.common import STEPS
from tests.frameworks.trained import train

SCRIPT = Path(__file__).parent / "accelerate_noise.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The weights of each rank, with their buffers."""
    run = train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))
    progress = run.ended.status["progress"]
    assert progress["step"] == run.ended.status["checkpoint"]["step"] == STEPS
    assert progress["metrics"].keys() == {"loss", "val_loss", "epoch"}
    return run.weights


@pytest.fixture(scope="module")
def seedable(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same with Accelerate's seedable sampler: another order."""
    return train(SCRIPT, tmp_path_factory.mktemp("seedable"), SEEDABLE="1").weights


def test_a_loop_goes_on_from_the_end_of_an_epoch_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(SCRIPT, tmp_path, "--fault", "kill rank=1 step=17", HANG_BEFORE_1="18")
    (incident,) = run.ended.incidents
    assert incident["resumedFrom"]["step"] == 16
    assert incident["lostSteps"] == 1
    assert run.weights == undisturbed


def test_a_loop_saves_inside_an_epoch_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    fault = "preempt rank=1 step=12 grace=600s"
    run = train(SCRIPT, tmp_path, "--fault", fault, WAIT_AFTER_1="13")
    (incident,) = run.ended.incidents
    assert incident["cause"] == "Preempted"
    assert incident["resumedFrom"]["step"] == 13
    assert run.weights == undisturbed


def test_two_processes_of_one_worker_save_inside_gradient_accumulation(
    tmp_path: Path, seedable: list[str]
) -> None:
    run = train(
        SCRIPT,
        tmp_path,
        *("--fault", "preempt rank=1 step=9 grace=600s"),
        *("--fault", "kill rank=1 step=21"),
        workers=1,
        failures=2,
        WAIT_AFTER_1="10",
        HANG_BEFORE_2="22",
        LOADERS="2",
        SEEDABLE="1",
    )
    taken, killed = run.ended.incidents
    assert (taken["cause"], taken["resumedFrom"]["step"]) == ("Preempted", 10)
    assert (killed["cause"], killed["resumedFrom"]["step"]) == ("AppError", 20)
    assert run.weights == seedable
