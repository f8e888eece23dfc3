"""What the next attempt would resume from: told as `resolve` does, and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, checkpoint_id, read_directory
from trainrun.checkpoint.inspection import ReadOnlyStore, next_resolution
from trainrun.checkpoint.ownership import beat
from trainrun.checkpoint.writer import set_aside

if TYPE_CHECKING:
    from pathlib import Path


def nothing(bench: Bench) -> None:
    """Nobody has used the folder."""


def one_committed(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)


def parts_without_a_manifest(bench: Bench) -> None:
    one_committed(bench)
    for worker in (0, 1):
        bench.part(step=30, worker=worker, workers=2, files={worker: {f"{worker}.pt": b"abc"}})


def newest_damaged(bench: Bench) -> None:
    one_committed(bench)
    bench.commit(step=20)
    name = checkpoint_id(1, 20).name
    bench.run.delete([f"checkpoints/{name}/worker-00001/model-rank1.pt"])
    assert beat(bench.run, uid="uid-1", counter=1, committed=checkpoint_id(1, 20))


def all_set_aside(bench: Bench) -> None:
    one_committed(bench)
    set_aside(bench.run, checkpoint_id(1, 10), "the loss explodes")


def newest_fenced(bench: Bench) -> None:
    one_committed(bench)
    bench.resolve(2)
    bench.commit(attempt=1, step=40)


def unreadable_manifest(bench: Bench) -> None:
    one_committed(bench)
    key = f"digits/checkpoints/{checkpoint_id(1, 10).name}/manifest.json"
    bench.run.store.put(key, bench.run.store.get(key).replace(b"rank", b"tank"))


LIVES = (
    nothing,
    one_committed,
    parts_without_a_manifest,
    newest_damaged,
    all_set_aside,
    newest_fenced,
    unreadable_manifest,
)


@pytest.mark.parametrize("life", LIVES)
def test_it_is_what_the_next_attempt_is_told_and_nothing_is_written(
    bench: Bench, folder: Path, life: object
) -> None:
    life(bench)  # type: ignore[operator]
    before = read_directory(folder.parent)
    foretold = next_resolution(bench.run)
    assert read_directory(folder.parent) == before
    told = bench.resolve(foretold.attempt)
    assert (told.outcome, told.resume, told.set_aside) == (
        foretold.outcome,
        foretold.resume,
        foretold.set_aside,
    )


def test_an_owner_that_lives_is_no_obstacle(bench: Bench) -> None:
    bench.resolve(1, uid="somebody-else")
    bench.commit(step=10)
    assert next_resolution(bench.run).resume == checkpoint_id(1, 10)


def test_a_write_once_answers_as_the_store_would(bench: Bench) -> None:
    bench.run.store.put("digits/there", b"1")
    looked_at = ReadOnlyStore(bench.run.store)
    assert looked_at.put_if_absent("digits/there", b"1")
    assert not looked_at.put_if_absent("digits/there", b"2")
    assert looked_at.put_if_absent("digits/new", b"2")
    assert bench.run.store.size("digits/new") is None
