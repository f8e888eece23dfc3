"""Ranks that bring their files under steps of their own."""

from __future__ import annotations

from trainrun.agent.checkpoints.torn_saves import AlternatingSaves
from trainrun.checkpoint.records import Manifest, ManifestFile


def commit(step: int, *ranks: int, whole: bool = False) -> Manifest:
    files = tuple(
        ManifestFile(name=f"{rank}.pt", size=1, crc32=0, worker=rank, ranks=(rank,))
        for rank in ranks
    )
    return Manifest(attempt=1, step=step, workers=2, whole=whole, files=files)


def after(*manifests: Manifest) -> AlternatingSaves:
    turns = AlternatingSaves()
    for manifest in manifests:
        turns.saw(manifest)
    return turns


def test_ranks_that_save_by_turns_under_different_steps_are_named_with_the_remedy() -> None:
    problem = after(commit(10, 0), commit(11, 1), commit(20, 0)).problem
    assert problem is not None
    assert (problem.type, problem.reason) == ("CheckpointPartial", "RanksTakeTurns")
    assert problem.message == (
        "the checkpoint of step 20 has files only from rank 0, that of step 11 only from rank 1, "
        "so a restart would miss the others' files. If they belong together, report them with the "
        "same step on every rank"
    )


def test_one_checkpoint_from_another_rank_is_in_order() -> None:
    assert after(commit(10, 0), commit(20, 0), commit(21, 1)).problem is None


def test_checkpoints_of_the_same_ranks_or_of_all_are_in_order() -> None:
    assert after(commit(1, 0), commit(2, 0), commit(3, 0)).problem is None
    assert after(commit(1, 0, 1), commit(2, 0), commit(3, 0, 1)).problem is None
    assert after(commit(1), commit(2), commit(3)).problem is None


def test_whole_checkpoints_are_in_order_whoever_brings_them() -> None:
    assert after(commit(1, 0), commit(2, 1, whole=True), commit(3, 0)).problem is None
