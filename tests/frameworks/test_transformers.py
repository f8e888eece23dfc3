"""A Hugging Face Trainer in a run of two ranks ends with the same weights, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frameworks.gpt2 import STEPS
from tests.worlds.local.local_runs import Ended, LocalRuns

SCRIPT = Path(__file__).parent / "gpt2.py"
LONGEST = 800.0
"""Seconds that a run may take: importing transformers takes ten on a busy machine."""

Train = Callable[..., tuple[Ended, Path]]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    made: list[LocalRuns] = []

    def run(*options: str, **env: str) -> tuple[Ended, Path]:
        folder = tmp_path / str(len(made))
        out = folder / "out"
        out.mkdir(parents=True)
        runs = LocalRuns(
            folder=folder,
            script=str(SCRIPT),
            env={"OUT": str(out), **env},
            spec={"failurePolicy": {"maxFailures": 1}},
        )
        made.append(runs)
        driver = runs.start(*options)
        driver.process.wait(LONGEST)
        ended = driver.end()
        assert ended.code == 0, ended.out[-3000:] + ended.err
        return ended, out

    yield run
    for runs in made:
        runs.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The weights of each rank."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "out").mkdir()
    runs = LocalRuns(folder=folder, script=str(SCRIPT), env={"OUT": str(folder / "out")})
    driver = runs.start()
    driver.process.wait(LONGEST)
    ended = driver.end()
    runs.close()
    assert ended.code == 0, ended.out[-3000:] + ended.err
    assert isinstance(ended.status["progress"]["metrics"]["train_loss"], float)
    # `save_total_limit=1`: the Trainer removes its own folders as ever.
    kept = [path.name for path in (folder / "out" / "disk").glob("checkpoint-*")]
    assert kept == [f"checkpoint-{STEPS}"]
    return weights(folder / "out")


def weights(out: Path) -> list[str]:
    return [(out / f"weights-{rank}").read_text() for rank in (0, 1)]


@pytest.mark.parametrize(
    "env", [{}, {"OWN_DISKS": "1"}, {"LOADERS": "1"}], ids=["one disk", "own disks", "loaders"]
)
def test_a_trainer_goes_on_from_its_last_checkpoint_after_the_loss_of_a_rank(
    env: dict[str, str], train: Train, undisturbed: list[str]
) -> None:
    ended, out = train("--fault", "kill rank=1 step=13", HANG_BEFORE="15", **env)
    (incident,) = ended.incidents
    assert incident["resumedFrom"]["step"] == 12
    assert incident["lostSteps"] == 1
    assert weights(out) == undisturbed


@pytest.mark.parametrize("env", [{}, {"OWN_DISKS": "1"}], ids=["one disk", "own disks"])
def test_a_trainer_saves_inside_an_epoch_before_a_worker_is_taken_away(
    env: dict[str, str], train: Train, undisturbed: list[str]
) -> None:
    ended, out = train("--fault", "preempt rank=1 step=9 grace=600s", WAIT_AFTER="10", **env)
    (incident,) = ended.incidents
    assert incident["cause"] == "Preempted"
    assert incident["resumedFrom"]["step"] == 10
    assert weights(out) == undisturbed
