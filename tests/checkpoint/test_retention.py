"""What is deleted, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, checkpoint_id
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import Score
from trainrun.checkpoint.writer import set_aside
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path


def steps(bench: Bench) -> list[tuple[int, int]]:
    return sorted((key.attempt, key.step) for key in bench.run.folders())


def test_the_newest_are_kept_and_the_oldest_go_first(any_bench: Bench) -> None:
    any_bench.resolve(1)
    for step in (10, 20, 30, 40):
        any_bench.commit(step=step)
    assert retain(any_bench.run, attempt=1, keep=2) == (checkpoint_id(1, 10), checkpoint_id(1, 20))
    assert steps(any_bench) == [(1, 30), (1, 40)]
    assert retain(any_bench.run, attempt=1, keep=2) == ()


LEAST_LOSS = Score(metric="loss", order="Min")
"""A checkpoint of the bench has its step for a loss: the first one is the best."""


def test_the_best_are_kept_and_the_two_newest(any_bench: Bench) -> None:
    any_bench.resolve(1)
    for step in (10, 20, 30, 40, 50, 60):
        any_bench.commit(step=step)
    gone = retain(any_bench.run, attempt=1, keep=2, score=LEAST_LOSS)
    assert gone == (checkpoint_id(1, 30), checkpoint_id(1, 40))
    assert steps(any_bench) == [(1, 10), (1, 20), (1, 50), (1, 60)]
    assert retain(any_bench.run, attempt=1, keep=2, score=LEAST_LOSS) == ()
    assert any_bench.resolve(2).resume == checkpoint_id(1, 60)  # not the best one


def test_a_damaged_one_is_not_among_the_best(bench: Bench, folder: Path) -> None:
    bench.resolve(1)
    for step in (10, 20, 30, 40, 50, 60):
        bench.commit(step=step)
    name = checkpoint_id(1, 10).name
    (folder / "checkpoints" / name / "worker-00001" / "model-rank1.pt").unlink()
    gone = retain(bench.run, attempt=1, keep=2, score=LEAST_LOSS)
    assert gone == (checkpoint_id(1, 10), checkpoint_id(1, 40))


def test_an_old_one_that_reads_wrongly_here_may_be_the_best(bench: Bench) -> None:
    bench.resolve(1)
    for step in (10, 20, 30, 40, 50, 60):
        bench.commit(step=step)
    manifest = f"digits/checkpoints/{checkpoint_id(1, 10).name}/manifest.json"
    written = bench.run.store.get(manifest)
    bench.run.store.put(manifest, written.replace(b"rank", b"tank"))
    assert retain(bench.run, attempt=1, keep=2, score=LEAST_LOSS) == (checkpoint_id(1, 40),)


def test_where_nobody_has_reported_the_metric_the_newest_are_kept(bench: Bench) -> None:
    bench.resolve(1)
    for step in (10, 20, 30, 40):
        bench.commit(step=step)
    score = Score(metric="accuracy", order="Max")
    gone = retain(bench.run, attempt=1, keep=3, score=score)
    assert gone == (checkpoint_id(1, 10),)


def test_fewer_than_two_are_never_kept(bench: Bench) -> None:
    bench.resolve(1)
    for step in (10, 20, 30):
        bench.commit(step=step)
    retain(bench.run, attempt=1, keep=1)
    assert steps(bench) == [(1, 20), (1, 30)]


def test_resume_points_of_the_last_two_attempts_stay(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    bench.resolve(2)
    bench.commit(attempt=2, step=20)
    bench.resolve(3)
    for step in (30, 40, 50):
        bench.commit(attempt=3, step=step)
    retain(bench.run, attempt=3, keep=2)
    assert steps(bench) == [(1, 10), (2, 20), (3, 40), (3, 50)]
    bench.resolve(4)
    for step in (60, 70):
        bench.commit(attempt=4, step=step)
    retain(bench.run, attempt=4, keep=2)
    assert steps(bench) == [(2, 20), (3, 50), (4, 60), (4, 70)]


def test_leftovers_of_lower_attempts_are_collected(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    any_bench.part(step=20, worker=0, workers=2, files={0: {"a": b"x"}})
    any_bench.resolve(2)
    any_bench.part(attempt=2, step=15, worker=0, workers=2, files={0: {"a": b"x"}})
    assert retain(any_bench.run, attempt=2, keep=3) == (checkpoint_id(1, 20),)
    assert steps(any_bench) == [(1, 10), (2, 15)]


def test_damaged_ones_do_not_count_and_go_when_they_are_old(bench: Bench) -> None:
    bench.resolve(1)
    for step in (10, 20, 30):
        bench.commit(step=step)
    set_aside(bench.run, checkpoint_id(1, 30), "flipped bit")
    assert retain(bench.run, attempt=1, keep=2) == ()
    for step in (40, 50):
        bench.commit(step=step)
    retain(bench.run, attempt=1, keep=2)
    assert steps(bench) == [(1, 40), (1, 50)]
    assert bench.run.bad() == {checkpoint_id(1, 30)}


def test_damage_that_nobody_has_met_yet_does_not_count_either(bench: Bench, folder: Path) -> None:
    bench.resolve(1)
    for step in (10, 20, 30, 40):
        bench.commit(step=step)
    for step in (30, 40):
        name = checkpoint_id(1, step).name
        (folder / "checkpoints" / name / "worker-00001" / "model-rank1.pt").unlink()
    assert retain(bench.run, attempt=1, keep=2) == ()
    assert bench.resolve(2).resume == checkpoint_id(1, 20)


def test_an_attempt_that_is_not_the_newest_deletes_nothing(bench: Bench) -> None:
    bench.resolve(1)
    for step in (10, 20, 30, 40):
        bench.commit(step=step)
    bench.resolve(2)
    assert retain(bench.run, attempt=1, keep=2) == ()
    assert len(steps(bench)) == 4


def test_an_unreadable_resume_point_stops_retention(bench: Bench) -> None:
    bench.resolve(1)
    for step in (10, 20, 30, 40):
        bench.commit(step=step)
    bench.run.store.put("digits/attempts/000001.json", b"")
    assert retain(bench.run, attempt=1, keep=2) == ()


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_deletion_that_is_cut_short_never_leaves_something_complete(
    bench: Bench, rounds: int
) -> None:
    class CutShort:
        """Dies in the middle of a deletion."""

        def __init__(self) -> None:
            self.left = rounds

        def __getattr__(self, name: str) -> object:
            return getattr(bench.run.store, name)

        def delete(self, keys: object) -> None:
            if self.left == 0:
                raise StoreUnavailable("gone")
            self.left -= 1
            bench.run.store.delete(keys)  # type: ignore[arg-type]

    bench.resolve(1)
    for step in (10, 20, 30):
        bench.commit(step=step)
    with pytest.raises(StoreUnavailable):
        retain(RunStore(CutShort(), "digits"), attempt=1, keep=2)  # type: ignore[arg-type]
    for step in (20, 30):
        set_aside(bench.run, checkpoint_id(1, step), "x")
    answer = bench.resolve(2)
    assert answer.resume is None
    assert answer.outcome == "NoGoodCheckpoint"
    assert retain(bench.run, attempt=1, keep=2) == ()
    for step in (40, 50):
        bench.commit(step=step)
    assert checkpoint_id(1, 10) in retain(bench.run, attempt=1, keep=2)


def test_a_manifest_that_reads_wrongly_here_is_kept_besides_the_good_ones(bench: Bench) -> None:
    """Another node may read it well: one bad reader must not delete a good checkpoint."""
    bench.resolve(1)
    for step in (10, 20, 30, 40):
        bench.commit(step=step)
    bench.resolve(2)
    bench.commit(attempt=2, step=50)
    name = checkpoint_id(1, 40).name
    manifest = f"digits/checkpoints/{name}/manifest.json"
    written = bench.run.store.get(manifest)
    bench.run.store.put(manifest, written.replace(b"rank", b"tank"))
    assert retain(bench.run, attempt=2, keep=2) == (checkpoint_id(1, 10), checkpoint_id(1, 20))
