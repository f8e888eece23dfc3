"""A TrainRun that starts fresh begins beside what is there, and nothing of that is touched."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.checkpoint.test_late_listings import LATE, LateStore, late_run
from tests.support.checkpoints import (
    Bench,
    Through,
    checkpoint_id,
    expected_directory,
    materialize,
)
from trainrun.checkpoint.inspection import list_checkpoints, next_resolution
from trainrun.checkpoint.ownership import BeatWatch, beat, generations, release, stored_run_id
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.writer import finish
from trainrun.contract.answer import ResolveRequest

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun.contract.agent_state import Resolution

BESIDE = "generation-000002/"


class ErrorPages(Through):
    """A store behind a proxy that has a page for every generation."""

    def get(self, key: str) -> bytes:
        return b"<html>" if "/generations/" in key else self._store.get(key)


def objects(run: RunStore) -> dict[str, bytes]:
    """All that lies in the first generation."""
    return {
        item.key: run.store.get(run.key(item.key))
        for item in run.objects("")
        if not item.key.startswith(("generation-", "generations/"))
    }


def fresh(bench: Bench, attempt: int = 1, *, uid: str = "uid-2") -> Resolution:
    """What a TrainRun that starts fresh is told before it knows where it is."""
    return bench.resolve(attempt, uid=uid, on_existing="StartFresh")


def inside(bench: Bench, generation: int, *, uid: str) -> Bench:
    """The same store, seen by agents that are told of this generation."""
    run = replace(bench.run, generation=generation)
    return replace(bench, run=run, uid=uid, scratch=bench.scratch / str(generation))


def test_an_attempt_is_claimed_in_the_generation_that_its_agent_is_told(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    assert fresh(any_bench).generation == 2
    inside(any_bench, 2, uid="uid-2").commit(step=5)
    answer = any_bench.resolve(2, uid="uid-2", generation=2)
    assert (answer.outcome, answer.resume) == ("Resolved", checkpoint_id(1, 5))
    assert any_bench.run.attempts() == [1]


def test_an_owner_is_looked_at_in_the_generation_that_the_agent_is_told(bench: Bench) -> None:
    bench.resolve(1)
    fresh(bench)
    second = inside(bench, 2, uid="uid-2")
    assert bench.resolve(2, look=True, generation=2).owner == "Unknown"
    assert beat(second.run, uid="uid-2", counter=1)
    answer = bench.resolve(2, look=True, generation=2)
    assert (answer.owner, answer.generation) == ("Moves", 2)


@pytest.mark.case("storage", "A run with onExisting: StartFresh finds a used folder")
def test_a_fresh_start_resumes_nothing_of_what_is_there_and_leaves_it_as_it_is(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    finish(any_bench.run, uid="uid-1")
    before = objects(any_bench.run)
    answer = fresh(any_bench)
    assert (answer.outcome, answer.resume, answer.generation) == ("Resolved", None, 2)
    assert answer.message == "start from scratch"
    second = inside(any_bench, 2, uid="uid-2")
    second.commit(step=10)  # of the same name, with other content
    again = second.resolve(2, generation=2)
    assert (again.resume, again.generation) == (checkpoint_id(1, 10), 2)
    assert objects(any_bench.run) == before
    keys = {item.key for item in any_bench.run.objects("")} - set(before)
    assert all(key.startswith((BESIDE, "generations/")) for key in keys)
    assert f"{BESIDE}checkpoints/{checkpoint_id(1, 10).name}/manifest.json" in keys
    assert f"{BESIDE}finished.json" not in keys


def test_an_empty_folder_is_where_a_fresh_start_begins(any_bench: Bench) -> None:
    answer = fresh(any_bench)
    assert (answer.outcome, answer.generation) == ("Resolved", 1)
    assert any_bench.run.objects("generations/") == []


def test_a_trainrun_stays_in_the_generation_that_it_has_begun(any_bench: Bench) -> None:
    any_bench.resolve(1)
    assert fresh(any_bench).generation == 2
    inside(any_bench, 2, uid="uid-2").commit(step=10)
    answer = fresh(any_bench, 2)  # its status was lost
    assert (answer.generation, answer.resume) == (2, checkpoint_id(1, 10))
    edited = any_bench.resolve(3, uid="uid-2", on_existing="Resume")
    assert (edited.generation, edited.resume) == (2, checkpoint_id(1, 10))
    assert len(generations(any_bench.run)) == 2


def test_a_trainrun_that_has_resumed_stays_where_it_is_when_it_is_edited_to_start_fresh(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    answer = any_bench.resolve(2, on_existing="StartFresh")
    assert (answer.generation, answer.resume) == (1, checkpoint_id(1, 10))


def test_the_first_trainrun_goes_on_in_its_own_generation_after_another_has_begun_one(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    fresh(any_bench)
    for known in (0, 1):
        answer = any_bench.resolve(2, generation=known)
        assert (answer.outcome, answer.generation) == ("Resolved", 1)
        assert answer.resume == checkpoint_id(1, 10)
    assert beat(any_bench.run, uid="uid-1", counter=1)


def test_whoever_resumes_next_resumes_the_newest_generation(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=500)
    fresh(any_bench)
    second = inside(any_bench, 2, uid="uid-2")
    second.commit(step=20)
    release(second.run, uid="uid-2")
    answer = any_bench.resolve(2, uid="uid-3")
    assert (answer.generation, answer.resume) == (2, checkpoint_id(1, 20))


def test_fail_on_existing_refuses_the_newest_generation(bench: Bench) -> None:
    bench.resolve(1)
    fresh(bench)
    answer = bench.resolve(1, uid="uid-3", on_existing="Fail")
    assert answer.outcome == "NotEmpty"
    assert "generation-000002 already holds a run" in answer.message


def test_each_fresh_start_begins_another_generation_with_another_id(any_bench: Bench) -> None:
    ids = [any_bench.resolve(1).run_id]
    for number in (2, 3, 4):
        answer = fresh(any_bench, uid=f"uid-{number}")
        assert answer.generation == number
        ids.append(answer.run_id)
    assert len(set(ids)) == 4
    assert [stored_run_id(run) for run in generations(any_bench.run)] == ids


def test_a_worker_of_the_generation_before_that_comes_back_writes_into_its_own(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    fresh(any_bench)
    any_bench.commit(step=900)  # of attempt 1, too, by an agent that was cut off
    beat(any_bench.run, uid="uid-1", counter=1, committed=checkpoint_id(1, 900))
    finish(any_bench.run, uid="uid-1")
    second = inside(any_bench, 2, uid="uid-2")
    assert second.run.folders() == {}
    assert second.resolve(2, generation=2).resume is None


def test_retention_of_one_generation_deletes_nothing_of_another(any_bench: Bench) -> None:
    any_bench.resolve(1)
    for step in (1, 2, 3, 4):
        any_bench.commit(step=step)
    before = objects(any_bench.run)
    fresh(any_bench)
    second = inside(any_bench, 2, uid="uid-2")
    for step in (1, 2, 3, 4):
        second.commit(step=step)
    assert retain(second.run, attempt=1, keep=2) == (checkpoint_id(1, 1), checkpoint_id(1, 2))
    assert objects(any_bench.run) == before


def test_checkpoints_of_one_name_are_not_mixed_up_in_a_nodes_cache(
    bench: Bench, tmp_path: Path
) -> None:
    bench.resolve(1)
    bench.commit(step=10, workers=2)
    fresh(bench)
    second = inside(bench, 2, uid="uid-2")
    second.part(step=10, files={0: {"model.pt": b"new"}}, whole=True)
    cache = tmp_path / "cache"
    old = materialize(bench.run, checkpoint_id(1, 10), cache_dir=cache)
    new = materialize(second.run, checkpoint_id(1, 10), cache_dir=cache)
    assert (new / "model.pt").read_bytes() == b"new"
    assert {path.name for path in old.iterdir()} == set(expected_directory(1, 10))


def test_what_would_be_resumed_is_told_of_each_generation(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    fresh(any_bench)
    first, second = generations(any_bench.run)
    assert next_resolution(first).resume == checkpoint_id(1, 10)
    assert next_resolution(second).resume is None
    assert [info.id for info in list_checkpoints(first)] == [checkpoint_id(1, 10)]
    assert list_checkpoints(second) == []
    assert second.attempts() == [1]  # asking has claimed nothing


def test_eight_agents_of_one_trainrun_that_race_begin_one_generation(any_bench: Bench) -> None:
    any_bench.resolve(1)
    barrier = threading.Barrier(8)

    def start(_: int) -> Resolution:
        barrier.wait()
        watch = BeatWatch(lease=30, clock=any_bench.clock)
        return resolve(
            any_bench.run,
            ResolveRequest(attempt=1, on_existing="StartFresh"),
            uid="uid-2",
            watch=watch,
        )

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(start, range(8)))
    assert {(it.outcome, it.generation) for it in answers} == {("Resolved", 2)}
    assert len(generations(any_bench.run)) == 2


def test_four_trainruns_that_race_to_start_fresh_get_a_generation_each(any_bench: Bench) -> None:
    barrier = threading.Barrier(4)

    def start(number: int) -> int:
        barrier.wait()
        while True:  # as its agent does
            watch = BeatWatch(lease=30, clock=any_bench.clock)
            answer = resolve(
                any_bench.run,
                ResolveRequest(attempt=1, on_existing="StartFresh"),
                uid=f"uid-{number}",
                watch=watch,
            )
            if answer.outcome not in ("InUse", "Unavailable"):
                assert answer.outcome == "Resolved", answer
                return answer.generation

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(start, range(4))) == [1, 2, 3, 4]


@pytest.mark.case("storage", "The agent that began a generation dies before anybody hears of it")
def test_a_generation_that_is_not_listed_yet_is_found_by_its_name(tmp_path: Path) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    fresh(bench)
    inside(bench, 2, uid="uid-2").commit(step=20)
    store.words = ("/generations/",)
    answer = fresh(bench, 2)
    assert (answer.generation, answer.resume) == (2, checkpoint_id(1, 20))
    assert fresh(bench, uid="uid-3").generation == 3
    newest = bench.resolve(1, uid="uid-4")
    assert (newest.generation, newest.outcome) == (3, "InUse")


def test_a_folder_whose_use_is_not_listed_yet_is_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    bench, store = late_run(tmp_path)
    bench.resolve(1)
    bench.commit(step=10)
    store.words = ("run/",)  # nothing at all
    answer = fresh(bench)
    assert (answer.generation, answer.resume) == (2, None), "the claim is found by its name"
    store.words = ()
    assert fresh(bench).generation == 2


@pytest.mark.parametrize("listings", range(LATE))
def test_nothing_is_ever_resumed_from_another_generation_where_listings_are_late(
    tmp_path: Path, listings: int
) -> None:
    store = LateStore()
    bench = Bench(run=RunStore(store, "run"), scratch=tmp_path)
    store.late = False
    bench.resolve(1)
    bench.commit(step=500)
    store.late = True
    for _ in range(listings):
        store.list("")
    answers = [fresh(bench) for _ in range(LATE + 1)]
    found = [it for it in answers if it.outcome == "Resolved"]
    assert found
    assert {(it.resume, it.generation) for it in found} == {(None, 2)}


def test_a_generation_whose_folder_was_deleted_by_hand_is_not_begun_again(bench: Bench) -> None:
    bench.resolve(1)
    fresh(bench)
    fresh(bench, uid="uid-3")
    gone = [f"{BESIDE}{item.key}" for item in generations(bench.run)[1].objects("")]
    bench.run.delete([*gone, "generations/000002.json"])
    assert fresh(bench, uid="uid-4").generation == 4
    assert bench.resolve(2, uid="uid-4").generation == 4


def test_a_record_that_cannot_be_read_is_nobodys_generation(bench: Bench) -> None:
    bench.resolve(1)
    fresh(bench)
    bench.run.store.put("digits/generations/000002.json", b"\0" * 20)
    answer = fresh(bench, 2)  # found by its claim
    assert (answer.outcome, answer.generation) == ("Resolved", 2)
    assert fresh(bench, uid="uid-3").generation == 3


def test_what_answers_every_question_is_not_taken_for_a_row_of_generations(bench: Bench) -> None:
    bench.resolve(1)
    run = RunStore(ErrorPages(bench), "digits")  # type: ignore[arg-type]
    answer = fresh(replace(bench, run=run))
    assert answer.outcome == "Unavailable"
    assert "generations/000002.json cannot be trusted" in answer.message
