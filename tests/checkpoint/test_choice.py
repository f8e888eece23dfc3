"""Which checkpoint is chosen where newer ones are damaged, set aside or gone, and what is told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoints import Bench, Through, checkpoint_id
from trainrun.checkpoint.choice import look, recorded_reason
from trainrun.checkpoint.inspection import list_checkpoints, next_resolution
from trainrun.checkpoint.ownership import beat
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.writer import commit_if_complete, set_aside
from trainrun.contract.answer import ResolveRequest
from trainrun.errors import ObjectNotFound

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun.contract.checkpoint_id import CheckpointId

GONE = "manifest.json: missing, but it was reported as committed"
OWNERS = "manifest.json: missing, but its owner had committed it"
OLD, MIDDLE, NEW = (checkpoint_id(1, step) for step in (10, 20, 30))


@pytest.fixture
def checkpoints(bench: Bench, folder: Path) -> Path:
    """The folder of three checkpoints."""
    bench.resolve(1)
    for checkpoint in (OLD, MIDDLE, NEW):
        bench.commit(step=checkpoint.step)
    return folder / "checkpoints"


def remove(checkpoints: Path, *which: CheckpointId) -> None:
    for checkpoint in which:
        shutil.rmtree(checkpoints / checkpoint.name)


def test_a_commit_that_has_vanished_is_never_resumed_even_if_it_comes_back(
    bench: Bench, checkpoints: Path, tmp_path: Path
) -> None:
    shutil.move(checkpoints / NEW.name, tmp_path / "kept")
    assert bench.resolve(2, committed=NEW).resume == MIDDLE
    assert bench.run.is_bad(NEW)
    shutil.move(tmp_path / "kept", checkpoints / NEW.name)
    assert bench.resolve(3).resume == MIDDLE


def test_commits_that_have_vanished_are_told_newest_first(bench: Bench, checkpoints: Path) -> None:
    assert beat(bench.run, uid="uid-1", counter=1, committed=MIDDLE)
    remove(checkpoints, MIDDLE, NEW)
    answer = bench.resolve(2, committed=NEW)
    assert answer.resume == OLD
    assert answer.set_aside == (f"{NEW.name}: {GONE}", f"{MIDDLE.name}: {OWNERS}")


def test_a_commit_that_has_vanished_and_is_older_than_what_is_used_is_not_missed(
    bench: Bench, checkpoints: Path
) -> None:
    remove(checkpoints, OLD)
    answer = bench.resolve(2, committed=OLD)
    assert (answer.resume, answer.set_aside) == (NEW, ())
    assert not bench.run.is_bad(OLD)


@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "all but files"])
def test_what_was_set_aside_and_then_removed_is_not_told_again(
    bench: Bench, checkpoints: Path, *, whole: bool
) -> None:
    set_aside(bench.run, NEW, "it poisons the training")
    if whole:
        remove(checkpoints, NEW)
    else:
        for record in (checkpoints / NEW.name).glob("*.json"):
            record.unlink()
    answer = bench.resolve(2, committed=NEW)
    assert (answer.resume, answer.set_aside) == (MIDDLE, ())


def test_a_damaged_commit_that_is_known_is_told_once(bench: Bench, checkpoints: Path) -> None:
    (checkpoints / NEW.name / "worker-00000" / "model-rank0.pt").unlink()
    answer = bench.resolve(2, committed=NEW)
    assert answer.resume == MIDDLE
    assert answer.set_aside == (f"{NEW.name}: worker-00000/model-rank0.pt: missing",)


def test_nothing_older_is_chosen_nor_given_up_while_a_manifest_is_suspect(
    bench: Bench, checkpoints: Path
) -> None:
    shutil.rmtree(checkpoints / MIDDLE.name / "worker-00000")
    manifest = checkpoints / NEW.name / "manifest.json"
    manifest.write_bytes(b"x" * manifest.stat().st_size)
    answer = bench.resolve(2)
    assert (answer.outcome, answer.resume) == ("Suspect", None)
    assert answer.suspect is not None
    assert answer.suspect.id == NEW
    assert bench.run.bad() == set()


def test_a_fence_of_long_ago_still_holds_when_newer_checkpoints_are_lost(
    bench: Bench, checkpoints: Path
) -> None:
    """Only the records of the last two attempts were read, and what they do not fence was used."""
    remove(checkpoints, NEW)
    bench.resolve(2)
    late = bench.commit(step=90)  # by an agent of attempt 1 that could not be reached
    bench.resolve(3)
    bench.commit(attempt=3, step=40)
    for attempt in (4, 5, 6):
        assert bench.resolve(attempt).resume == checkpoint_id(3, 40)
    damaged = checkpoint_id(3, 40)
    shutil.rmtree(checkpoints / damaged.name / "worker-00001")
    answer = bench.resolve(7)
    assert (answer.resume, bench.run.bad()) == (MIDDLE, {damaged})
    assert bench.run.folder(late.id).has_manifest


def test_of_attempts_those_are_looked_at_that_may_fence_a_checkpoint_and_the_last_two(
    bench: Bench, folder: Path
) -> None:
    for attempt in range(1, 7):
        bench.resolve(attempt)
    bench.commit(attempt=3, step=10)
    assert [claim.attempt for claim in look(bench.run).claims] == [4, 5, 6]
    remove(folder / "checkpoints", checkpoint_id(3, 10))
    bench.commit(attempt=6, step=20)
    assert [claim.attempt for claim in look(bench.run).claims] == [5, 6]


def test_a_step_that_was_set_aside_before_its_commit_is_not_resumed(bench: Bench) -> None:
    """`set-aside` said that no attempt resumes from it any more, and the next one did."""
    bench.resolve(1)
    bench.commit(step=10)
    all_parts_of_20(bench)
    assert [info.state for info in list_checkpoints(bench.run)] == ["good", "good"]
    set_aside(bench.run, MIDDLE, "it poisons the training")
    assert next_resolution(bench.run).resume == OLD
    answer = bench.resolve(2, committed=OLD)
    assert answer.resume == OLD
    assert answer.set_aside == (f"{MIDDLE.name}: it poisons the training",)
    assert not bench.run.folder(MIDDLE).has_manifest
    assert [info.state for info in list_checkpoints(bench.run)] == ["good", "bad"]


@pytest.mark.case("storage", "Slot 0's agent dies before it writes the manifest")
def test_a_step_below_one_that_was_set_aside_before_its_commit_is_completed(bench: Bench) -> None:
    bench.resolve(1)
    all_parts_of_20(bench)
    set_aside(bench.run, MIDDLE, "it poisons the training")
    bench.part(step=10, files={0: {"m0": b"x"}})
    answer = bench.resolve(2)
    assert answer.resume == OLD
    assert bench.run.folder(OLD).has_manifest


def test_a_step_that_was_set_aside_and_is_committed_all_the_same_is_not_resumed(
    bench: Bench,
) -> None:
    """By an agent that had it under way."""
    bench.resolve(1)
    bench.commit(step=10)
    all_parts_of_20(bench)
    set_aside(bench.run, MIDDLE, "it poisons the training")
    assert commit_if_complete(bench.run, attempt=1, step=20) is not None
    answer = bench.resolve(2, committed=MIDDLE)
    assert (answer.resume, answer.set_aside) == (OLD, (f"{MIDDLE.name}: it poisons the training",))


def test_a_run_whose_only_step_was_set_aside_before_its_commit_does_not_start_from_nothing(
    bench: Bench,
) -> None:
    bench.resolve(1)
    all_parts_of_20(bench)
    set_aside(bench.run, MIDDLE, "it poisons the training")
    answer = bench.resolve(2)
    assert answer.outcome == "NoGoodCheckpoint"
    assert f"; {MIDDLE.name}: it poisons the training. Restore" in answer.message
    assert answer.message.count(MIDDLE.name) == 1


def test_a_run_whose_only_commit_was_set_aside_and_removed_does_not_start_from_nothing(
    bench: Bench, folder: Path
) -> None:
    bench.resolve(1)
    bench.commit(step=20)
    set_aside(bench.run, MIDDLE, "it poisons the training")
    remove(folder / "checkpoints", MIDDLE)
    answer = bench.resolve(2)
    assert answer.outcome == "NoGoodCheckpoint"
    assert f"; {MIDDLE.name}: it poisons the training. Restore" in answer.message


def all_parts_of_20(bench: Bench) -> None:
    """Slot 0's agent dies before it commits."""
    for worker in range(2):
        bench.part(step=20, worker=worker, workers=2, files={worker: {f"m{worker}": b"x"}})


def test_parts_that_vanish_while_a_checkpoint_is_completed_are_told(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    all_parts_of_20(bench)
    store: Any = WithoutMarkers(bench)
    answer = resolve(
        replace(bench.run, store=store),
        ResolveRequest(attempt=2),
        uid="uid-1",
        watch=bench.watch,
    )
    assert answer.resume == OLD
    assert "newer, but never completed: step-000000020-attempt-1: " in answer.message


class WithoutMarkers(Through):
    """A store that lists done markers which are gone by now."""

    def get(self, key: str) -> bytes:
        if key.endswith(".done.json"):
            raise ObjectNotFound(key)
        return self._store.get(key)


def test_where_nothing_is_left_all_is_told_newest_first_with_the_first_witness(
    bench: Bench, checkpoints: Path
) -> None:
    bench.resolve(2)
    bench.resolve(3)
    assert beat(bench.run, uid="uid-1", counter=1, committed=MIDDLE)
    remove(checkpoints, OLD, MIDDLE, NEW)
    answer = bench.resolve(4)
    assert (answer.outcome, answer.highest_attempt) == ("NoGoodCheckpoint", 3)
    started = f"{NEW.name}: manifest.json: missing, but attempt 2 was started from it"
    assert started in answer.message
    assert f"{MIDDLE.name}: {OWNERS}" in answer.message
    assert answer.message.index(NEW.name) < answer.message.index(MIDDLE.name)


def test_where_nothing_is_left_what_was_left_behind_is_not_told(
    bench: Bench, checkpoints: Path
) -> None:
    """Its restoration would be of no use."""
    bench.resolve(2)
    set_aside(bench.run, NEW, "it poisons the training")
    bench.resolve(3)
    remove(checkpoints, OLD, MIDDLE)
    answer = bench.resolve(4)
    assert answer.outcome == "NoGoodCheckpoint"
    assert f"; {MIDDLE.name}: manifest.json: missing, but attempt 3" in answer.message
    assert NEW.name not in answer.message


def test_why_a_checkpoint_was_set_aside_counts_more_than_that_it_is_gone(
    bench: Bench, checkpoints: Path
) -> None:
    remove(checkpoints, OLD, MIDDLE)
    bench.resolve(2)
    set_aside(bench.run, NEW, "two nodes read it wrongly")
    remove(checkpoints, NEW)
    answer = bench.resolve(3)
    assert answer.outcome == "NoGoodCheckpoint"
    assert f"{NEW.name}: two nodes read it wrongly" in answer.message
    assert answer.message.count(NEW.name) == 1
    assert "attempt 2 was started from it" not in answer.message


def test_a_checkpoint_that_was_set_aside_stays_so_where_the_reason_cannot_be_read(
    bench: Bench, checkpoints: Path
) -> None:
    set_aside(bench.run, NEW, "it poisons the training")
    (record,) = (checkpoints.parent / "bad").iterdir()
    record.write_bytes(b"{")
    answer = bench.resolve(2)
    assert answer.resume == MIDDLE
    reason = "set aside for a reason that can no longer be read"
    assert answer.set_aside == (f"{NEW.name}: {reason}",)
    record.unlink()
    assert recorded_reason(bench.run, NEW) == reason
