"""A model in shards in a run of two ranks ends with the same shards, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.common import STEPS
from tests.frameworks.trained import train

SCRIPT = Path(__file__).parent / "fsdp2_noise.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The shards of each rank."""
    run = train(SCRIPT, tmp_path_factory.mktemp("undisturbed"))
    progress = run.ended.status["progress"]
    assert progress["step"] == run.ended.status["checkpoint"]["step"] == STEPS
    return run.weights


def test_a_loop_goes_on_from_its_last_checkpoint_after_the_loss_of_a_rank(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(SCRIPT, tmp_path, "--fault", "kill rank=1 step=14", HANG_BEFORE_1="15")
    (incident,) = run.ended.incidents
    assert incident["resumedFrom"]["step"] == 12
    assert incident["lostSteps"] == 2
    assert run.weights == undisturbed


def test_a_loop_saves_inside_gradient_accumulation_before_a_worker_is_taken_away(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    fault = "preempt rank=1 step=8 grace=600s"
    run = train(SCRIPT, tmp_path, "--fault", fault, WAIT_AFTER_1="9", HANG_BEFORE_1="10")
    (incident,) = run.ended.incidents
    assert incident["cause"] == "Preempted"
    assert incident["resumedFrom"]["step"] == 9
    assert run.weights == undisturbed


def test_two_processes_of_one_worker_go_on_after_it_was_taken_away_and_one_was_lost(
    tmp_path: Path, undisturbed: list[str]
) -> None:
    run = train(
        SCRIPT,
        tmp_path,
        *("--fault", "preempt rank=1 step=8 grace=600s"),
        *("--fault", "kill rank=1 step=17"),
        workers=1,
        failures=2,
        WAIT_AFTER_1="9",
        HANG_BEFORE_1="10",
        HANG_BEFORE_2="18",
        LOADERS="2",
    )
    taken, killed = run.ended.incidents
    assert (taken["cause"], taken["resumedFrom"]["step"]) == ("Preempted", 9)
    assert (killed["cause"], killed["resumedFrom"]["step"]) == ("AppError", 16)
    assert run.weights == undisturbed
