"""Real damage to what is stored: never a bad resume, never a lost commit, always a message."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import (
    Bench,
    Through,
    checkpoint_id,
    expected_directory,
    materialize,
    read_directory,
)
from trainrun.checkpoint.choice import listed_damage
from trainrun.checkpoint.inspection import verify
from trainrun.checkpoint.ownership import beat
from trainrun.checkpoint.reader import read_again
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.writer import set_aside
from trainrun.contract.answer import ResolveRequest
from trainrun.errors import CheckpointDamaged, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

NEWEST = "step-000000020-attempt-1"


@pytest.fixture
def damaged(bench: Bench, folder: Path) -> Path:
    """The folder of the newer one of two commits."""
    bench.resolve(1)
    bench.commit(step=10)
    bench.commit(step=20)
    return folder / "checkpoints" / NEWEST


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as target:
        target.write(b"more")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


SEEN_IN_THE_LISTING: list[tuple[str, Callable[[Path], None], str]] = [
    ("worker-00001/model-rank1.pt", truncate, "1000 bytes, should be 2000"),
    ("worker-00001/model-rank1.pt", empty, "0 bytes, should be 2000"),
    ("worker-00001/model-rank1.pt", grow, "2004 bytes, should be 2000"),
    ("worker-00001/model-rank1.pt", Path.unlink, "missing"),
    ("worker-00000/common.json", Path.unlink, "missing"),
    ("manifest.json", empty, "empty (0 bytes without content)"),
]


@pytest.mark.case("storage", "A checkpoint's file is truncated, missing or has the wrong size")
@pytest.mark.parametrize(("name", "harm", "reason"), SEEN_IN_THE_LISTING)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(
    bench: Bench, damaged: Path, name: str, harm: Callable[[Path], None], reason: str
) -> None:
    harm(damaged / name)
    answer = bench.resolve(2)
    assert (answer.outcome, answer.resume) == ("Resolved", checkpoint_id(1, 10))
    (note,) = answer.set_aside
    assert note.startswith(f"{NEWEST}: ")
    assert name in note
    assert reason in note
    assert (damaged.parent.parent / "bad" / f"{NEWEST}.json").is_file()
    # Once given up it stays so, even when somebody puts the bytes back.
    assert bench.resolve(3).resume == checkpoint_id(1, 10)


@pytest.mark.parametrize("harm", [truncate, flip])
def test_a_manifest_that_reads_wrongly_is_set_aside_only_when_it_is_confirmed(
    bench: Bench, damaged: Path, harm: Callable[[Path], None]
) -> None:
    """The reader may be at fault: nothing is chosen before another node has read it."""
    harm(damaged / "manifest.json")
    answer = bench.resolve(2)
    assert (answer.outcome, answer.resume) == ("Suspect", None)
    assert answer.suspect is not None
    assert (answer.suspect.id, answer.suspect.files) == (checkpoint_id(1, 20), ("manifest.json",))
    assert answer.message.startswith(f"{NEWEST}/manifest.json: ")
    assert bench.run.bad() == set()
    assert bench.run.attempts() == [1]
    with pytest.raises(CheckpointDamaged, match=r"manifest\.json"):
        read_again(bench.run, checkpoint_id(1, 20), answer.suspect.files, scratch=bench.scratch)
    set_aside(bench.run, checkpoint_id(1, 20), "another node has read it, too")
    assert bench.resolve(2).resume == checkpoint_id(1, 10)


def test_only_the_files_asked_for_are_read_again(bench: Bench, damaged: Path) -> None:
    flip(damaged / "worker-00001" / "model-rank1.pt")
    newest, scratch = checkpoint_id(1, 20), bench.scratch / "again"
    read_again(bench.run, newest, ["worker-00000/model-rank0.pt"], scratch=scratch)
    with pytest.raises(CheckpointDamaged, match=r"model-rank1\.pt: CRC32"):
        read_again(bench.run, newest, ["worker-00001/model-rank1.pt"], scratch=scratch)
    assert list(scratch.iterdir()) == []


def test_what_the_listing_shows_is_told_from_what_reads_wrongly(
    bench: Bench, damaged: Path
) -> None:
    newest = checkpoint_id(1, 20)
    assert listed_damage(bench.run, newest) == ""
    flip(damaged / "manifest.json")
    flip(damaged / "worker-00000" / "model-rank0.pt")
    assert listed_damage(bench.run, newest) == ""
    empty(damaged / "manifest.json")
    assert listed_damage(bench.run, newest).startswith("manifest.json: empty")
    (damaged / "manifest.json").unlink()
    assert listed_damage(bench.run, newest) == "manifest.json: missing"


def test_a_missing_done_marker_does_not_matter_once_committed(bench: Bench, damaged: Path) -> None:
    (damaged / "worker-00001.done.json").unlink()
    assert bench.resolve(2).resume == checkpoint_id(1, 20)


def test_a_missing_manifest_is_made_again_from_the_markers(bench: Bench, damaged: Path) -> None:
    (damaged / "manifest.json").unlink()
    answer = bench.resolve(2)
    assert answer.resume == checkpoint_id(1, 20)
    directory = materialize(bench.run, checkpoint_id(1, 20), cache_dir=bench.scratch / "cache")
    assert read_directory(directory) == expected_directory(1, 20)


def test_a_damaged_marker_without_a_manifest_falls_back(bench: Bench, damaged: Path) -> None:
    (damaged / "manifest.json").unlink()
    flip(damaged / "worker-00001.done.json")
    assert bench.resolve(2).resume == checkpoint_id(1, 10)


def test_a_missing_marker_and_manifest_fall_back(bench: Bench, damaged: Path) -> None:
    (damaged / "manifest.json").unlink()
    (damaged / "worker-00001.done.json").unlink()
    assert bench.resolve(2).resume == checkpoint_id(1, 10)


@pytest.mark.case(
    "storage",
    "A bit has flipped in a checkpoint's file",
    counted="maxFailures after three in a row",
)
def test_a_flipped_bit_is_found_when_the_file_is_read(bench: Bench, damaged: Path) -> None:
    flip(damaged / "worker-00001" / "model-rank1.pt")
    answer = bench.resolve(2)
    assert answer.resume == checkpoint_id(1, 20)  # a listing cannot show it
    with pytest.raises(CheckpointDamaged) as caught:
        materialize(bench.run, checkpoint_id(1, 20), cache_dir=bench.scratch / "cache")
    assert f"{NEWEST}/worker-00001/model-rank1.pt: CRC32" in str(caught.value)
    assert "its content changed" in str(caught.value)
    set_aside(bench.run, checkpoint_id(1, 20), str(caught.value))
    assert bench.resolve(3).resume == checkpoint_id(1, 10)


@pytest.mark.slow
def test_no_flipped_bit_anywhere_leads_to_a_bad_resume(bench: Bench, damaged: Path) -> None:
    chance = random.Random(4)
    kept = shutil.copytree(damaged.parent.parent, bench.scratch / "kept")
    for _ in range(60):
        paths = sorted(path for path in damaged.rglob("*") if path.is_file())
        path = chance.choice(paths)
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        answer = bench.resolve(2)
        if answer.outcome == "Suspect" and answer.suspect is not None:
            set_aside(bench.run, answer.suspect.id, "confirmed")
            answer = bench.resolve(2)
        assert answer.outcome == "Resolved"
        assert answer.resume is not None
        cache = bench.scratch / f"cache-{chance.random()}"
        # Either it is read as it was written, or the damage is found.
        with contextlib.suppress(CheckpointDamaged):
            directory = materialize(bench.run, answer.resume, cache_dir=cache)
            assert read_directory(directory) == expected_directory(1, answer.resume.step)
        shutil.rmtree(damaged.parent.parent)
        shutil.copytree(kept, damaged.parent.parent)


@pytest.mark.case(
    "storage", "No good checkpoint is left, though one was committed", counted="the run fails"
)
def test_when_no_good_one_is_left_nothing_is_not_chosen(bench: Bench, damaged: Path) -> None:
    empty(damaged / "manifest.json")
    (damaged.parent / "step-000000010-attempt-1" / "worker-00000" / "model-rank0.pt").unlink()
    answer = bench.resolve(2)
    assert answer.outcome == "NoGoodCheckpoint"
    assert answer.resume is None
    for part in (
        "has no good checkpoint left, and starting from scratch would lose saved progress",
        "step-000000020-attempt-1: manifest.json: empty",
        "step-000000010-attempt-1: worker-00000/model-rank0.pt: missing",
        "Restore the objects named here",
    ):
        assert part in answer.message
    assert not (damaged.parent.parent / "attempts" / "000002.json").exists()
    again = bench.resolve(2).message
    assert [again.count(f"step-0000000{step}-attempt-1: ") for step in (10, 20)] == [1, 1]


@pytest.mark.parametrize("known", ["SetAside", "Reported"])
def test_a_commit_that_came_too_late_to_count_is_not_missed(
    bench: Bench, folder: Path, known: str
) -> None:
    bench.resolve(1)
    bench.resolve(2)
    late = bench.commit(step=10).id  # by a worker of attempt 1 that comes back
    if known == "SetAside":
        set_aside(bench.run, late, "two nodes read it wrongly")
    shutil.rmtree(folder / "checkpoints")
    answer = bench.resolve(3, committed=late if known == "Reported" else None)
    assert (answer.outcome, answer.resume) == ("Resolved", None)


@pytest.mark.case(
    "storage", "The store's listing is empty or incomplete", counted="the run waits, then fails"
)
def test_an_empty_listing_does_not_make_a_run_start_from_nothing(
    bench: Bench, damaged: Path
) -> None:
    bench.resolve(2)
    shutil.rmtree(damaged.parent)
    answer = bench.resolve(3)
    assert answer.outcome == "NoGoodCheckpoint"
    assert f"{NEWEST}: manifest.json: missing, but attempt 2 was started from it" in answer.message


def test_an_empty_listing_is_noticed_by_what_the_owner_said(bench: Bench, damaged: Path) -> None:
    assert beat(bench.run, uid="uid-1", counter=1, committed=checkpoint_id(1, 20))
    assert beat(bench.run, uid="uid-1", counter=2)
    shutil.rmtree(damaged.parent)
    answer = bench.resolve(2)
    assert answer.outcome == "NoGoodCheckpoint"
    message = f"{NEWEST}: manifest.json: missing, but its owner had committed it"
    assert message in answer.message


def test_a_new_owner_inherits_what_the_old_one_said(bench: Bench, damaged: Path) -> None:
    beat(bench.run, uid="uid-1", counter=1, committed=checkpoint_id(1, 20))
    bench.resolve(2, uid="uid-2")
    bench.clock.now += 31
    bench.resolve(1, uid="uid-2")
    shutil.rmtree(damaged.parent)
    assert bench.resolve(2, uid="uid-2").outcome == "NoGoodCheckpoint"


def test_a_store_that_lost_everything_is_not_taken_for_a_new_one(
    bench: Bench, damaged: Path
) -> None:
    shutil.rmtree(damaged.parent.parent)
    answer = bench.resolve(2, committed=checkpoint_id(1, 20))
    assert answer.outcome == "NoGoodCheckpoint"
    assert "it shows no attempt: its objects were deleted, or another" in answer.message
    message = f"{NEWEST}: manifest.json: missing, but it was reported as committed"
    assert message in answer.message


def test_a_volume_that_is_gone_is_waited_for(bench: Bench, damaged: Path) -> None:
    root = damaged.parents[2]
    root.rename(root.with_name("elsewhere"))
    answer = bench.resolve(2, committed=checkpoint_id(1, 20))
    assert answer.outcome == "Unavailable"
    assert "does not exist; is the volume mounted?" in answer.message
    assert not root.exists()
    with pytest.raises(StoreUnavailable, match="is the volume mounted"):
        bench.part(step=30, files={0: {"m": b"x"}})
    root.with_name("elsewhere").rename(root)
    assert bench.resolve(2).resume == checkpoint_id(1, 20)


def test_a_commit_that_has_vanished_is_told_when_an_older_one_is_used(
    bench: Bench, damaged: Path
) -> None:
    shutil.rmtree(damaged)
    answer = bench.resolve(2, committed=checkpoint_id(1, 20))
    assert answer.resume == checkpoint_id(1, 10)
    note = f"{NEWEST}: manifest.json: missing, but it was reported as committed"
    assert answer.set_aside == (note,)


def test_a_resume_point_without_manifest_is_named(bench: Bench, damaged: Path) -> None:
    bench.resolve(2)
    shutil.rmtree(damaged.parent / "step-000000010-attempt-1")
    (damaged / "manifest.json").unlink()
    (damaged / "worker-00000.done.json").unlink()
    answer = bench.resolve(3)
    assert answer.outcome == "NoGoodCheckpoint"
    message = f"{NEWEST}: manifest.json: missing, but attempt 2 was started from it"
    assert message in answer.message


def test_a_damaged_attempt_record_fences_nothing_and_keeps_its_number(
    bench: Bench, damaged: Path
) -> None:
    bench.resolve(2)
    flip(damaged.parents[1] / "attempts" / "000002.json")
    answer = bench.resolve(2)
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 2)
    assert bench.resolve(3).resume == checkpoint_id(1, 20)


def test_a_damaged_claim_is_waited_for_like_any_other(bench: Bench, damaged: Path) -> None:
    flip(damaged.parents[1] / "owners" / "000001.json")
    answer = bench.resolve(2)
    assert answer.outcome == "InUse"
    assert "uid (unreadable) (owners/000001.json)" in answer.message
    bench.clock.now += 31
    assert bench.resolve(2).resume == checkpoint_id(1, 20)


class Forgetful(Through):
    """A store whose listings leave out some prefixes, as an eventually consistent one may."""

    def __init__(self, bench: Bench, *hidden: str) -> None:
        super().__init__(bench)
        self._hidden = hidden

    def list(self, prefix: str) -> list[ObjectInfo]:
        return [item for item in self._store.list(prefix) if not item.key.startswith(self._hidden)]


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["digits/attempts/", f"digits/checkpoints/{NEWEST}/", "digits/"])
def test_a_listing_that_hides_something_is_not_believed(
    bench: Bench, damaged: Path, hidden: str
) -> None:
    run = RunStore(Forgetful(bench, hidden), "digits")  # type: ignore[arg-type]
    newest = checkpoint_id(1, 20)
    answer = resolve(
        run, ResolveRequest(attempt=2, committed=newest), uid="uid-1", watch=bench.watch
    )
    assert answer.outcome == "Unavailable"
    assert "exists but the listing does not show it" in answer.message
    assert bench.resolve(2).resume == newest


def test_verify_reads_everything(bench: Bench, damaged: Path) -> None:
    assert verify(bench.run, checkpoint_id(1, 20)).state == "good"
    flip(damaged / "worker-00001" / "model-rank1.pt")
    info = verify(bench.run, checkpoint_id(1, 20))
    assert info.state == "bad"
    assert "worker-00001/model-rank1.pt: CRC32" in info.reason
