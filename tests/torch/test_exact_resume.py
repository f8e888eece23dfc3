"""A resumed training ends with the same bits as the undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch import training
from tests.torch.ranks import run_ranks
from tests.torch.training import Plan

MIDDLE = 2 * training.BATCHES + 4
"""Of the last epoch: each epoch starts loading processes anew, which takes longer than to train."""
SAVED_AFTER = {
    "inside the first accumulation": 2,
    "the last batch of an epoch": training.BATCHES,
    "in the middle of an epoch": MIDDLE,
    "inside an accumulation over the end of an epoch": 2 * training.BATCHES,
    "one batch before the end of the run": 3 * training.BATCHES - 1,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[int, Path]]:
    """What each rank ends with, and the checkpoints saved on the way."""
    folder = tmp_path_factory.mktemp("undisturbed")
    saves = {count: folder / f"checkpoint-{count}" for count in SAVED_AFTER.values()}
    for path in saves.values():
        path.mkdir()
    digests = run_ranks(training.WORLD, training.run_rank, folder / "run", Plan(saves=saves))
    return digests, saves


@pytest.mark.parametrize("where", SAVED_AFTER)
def test_a_resume_ends_with_the_same_bits(
    where: str, undisturbed: tuple[list[str], dict[int, Path]], tmp_path: Path
) -> None:
    digests, saves = undisturbed
    checkpoint = saves[SAVED_AFTER[where]]
    resumed = run_ranks(
        training.WORLD, training.run_rank, tmp_path / "resumed", Plan(load=checkpoint)
    )
    assert resumed == digests


def test_a_resume_with_loading_processes_ends_with_the_same_bits(
    undisturbed: tuple[list[str], dict[int, Path]], tmp_path: Path
) -> None:
    digests, saves = undisturbed
    plan = Plan(load=saves[MIDDLE], num_workers=2)
    assert run_ranks(training.WORLD, training.run_rank, tmp_path / "resumed", plan) == digests


def test_what_all_ranks_share_is_saved_once(
    undisturbed: tuple[list[str], dict[int, Path]],
) -> None:
    _, saves = undisturbed
    assert sorted(path.name for path in saves[MIDDLE].iterdir()) == [
        "count",
        "state-rank0.pt",
        "state-rank1.pt",
        "state-rank2.pt",
        "state-rank3.pt",
        "state.pt",
    ]


def test_without_the_warm_up_the_bits_differ(
    undisturbed: tuple[list[str], dict[int, Path]], tmp_path: Path
) -> None:
    digests, saves = undisturbed
    resumed = run_ranks(
        training.WORLD,
        training.run_rank,
        tmp_path / "resumed",
        Plan(load=saves[MIDDLE], warm=False),
    )
    assert resumed != digests, "DDP no longer reorders its buckets: warm_up() may be dropped"
