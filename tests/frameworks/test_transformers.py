"""A Hugging Face Trainer in a run of two ranks ends with the same weights, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.common import STEPS
from tests.frameworks.trained import train

SCRIPT = Path(__file__).parent / "gpt2.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The weights of each rank."""
    run = train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))
    assert isinstance(run.ended.status["progress"]["metrics"]["train_loss"], float)
    # `save_total_limit=1`: the Trainer removes its own folders as ever.
    kept = [path.name for path in (run.out / "disk").glob("checkpoint-*")]
    assert kept == [f"checkpoint-{STEPS}"]
    return run.weights


@pytest.mark.parametrize("env", [{}, {"OWN_DISKS": "1"}], ids=["one disk", "own disks"])
def test_a_trainer_goes_on_from_its_last_checkpoint_after_the_loss_of_a_rank(
    env: dict[str, str], tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(SCRIPT, tmp_path, "--fault", "kill rank=1 step=13", HANG_BEFORE_1="15", **env)
    (incident,) = run.ended.incidents
    assert incident["resumedFrom"]["step"] == 12
    assert incident["lostSteps"] == 1
    assert run.weights == undisturbed


def test_a_trainer_saves_inside_an_epoch_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    fault = "preempt rank=1 step=9 grace=600s"
    run = train(SCRIPT, tmp_path, "--fault", fault, WAIT_AFTER_1="10", OWN_DISKS="1")
    (incident,) = run.ended.incidents
    assert incident["cause"] == "Preempted"
    assert incident["resumedFrom"]["step"] == 10
    assert run.weights == undisturbed


def test_two_processes_of_one_worker_go_on_after_it_was_taken_away_and_one_was_lost(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(
        SCRIPT,
        tmp_path,
        *("--fault", "preempt rank=1 step=9 grace=600s"),
        *("--fault", "kill rank=1 step=17"),
        workers=1,
        failures=2,
        WAIT_AFTER_1="10",
        HANG_BEFORE_2="19",
        LOADERS="1",
    )
    taken, killed = run.ended.incidents
    assert (taken["cause"], taken["resumedFrom"]["step"]) == ("Preempted", 10)
    assert (killed["cause"], killed["resumedFrom"]["step"]) == ("AppError", 16)
    assert run.weights == undisturbed
