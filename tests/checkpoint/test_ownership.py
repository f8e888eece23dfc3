"""Who may use a run's folder."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, checkpoint_id
from tests.support.memory_store import MemoryStore
from trainrun.checkpoint.ownership import BeatWatch, beat, claimants, owner_uid, release
from trainrun.checkpoint.records import Beat, OwnerRecord, RunRecord
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore
from trainrun.contract.answer import ResolveRequest

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun.checkpoint.selection import ObjectInfo


def owners(bench: Bench) -> list[str]:
    return [item.key for item in bench.run.objects("owners/")]


@pytest.mark.case("storage", "Another run uses the same storage and run name")
@pytest.mark.case("strangers", "A TrainRun is deleted with --cascade=orphan")
def test_storage_in_use_is_waited_for_with_a_message(any_bench: Bench) -> None:
    any_bench.resolve(1)
    beat(any_bench.run, uid="uid-1", counter=1)
    answer = any_bench.resolve(2, uid="uid-2")
    assert answer.outcome == "InUse"
    assert answer.message == (
        f"{any_bench.run.uri} is in use by TrainRun uid uid-1 (owners/000001.json); this run "
        "takes it over when that one is suspended or finished, or shows no sign of life for 30 s. "
        "If no TrainRun has this uid, delete its leftover pods: kubectl delete pods -A -l "
        "trainrun.dev/run-uid=uid-1"
    )


def test_a_released_claim_is_taken_at_once(any_bench: Bench) -> None:
    any_bench.resolve(1)
    release(any_bench.run, uid="uid-1")
    assert any_bench.resolve(2, uid="uid-2").outcome == "Resolved"
    assert any_bench.run.read(OwnerRecord, "owners/000002.json").uid == "uid-2"


def test_a_dead_owners_claim_is_taken_over_after_the_lease(any_bench: Bench) -> None:
    any_bench.resolve(1)
    beat(any_bench.run, uid="uid-1", counter=1)
    assert any_bench.resolve(2, uid="uid-2").outcome == "InUse"
    any_bench.clock.now += 29.9
    assert any_bench.resolve(2, uid="uid-2").outcome == "InUse"
    any_bench.clock.now += 0.1
    assert any_bench.resolve(2, uid="uid-2").outcome == "Resolved"


def test_every_beat_starts_the_lease_again(bench: Bench) -> None:
    bench.resolve(1)
    for counter in range(5):
        beat(bench.run, uid="uid-1", counter=counter)
        assert bench.resolve(2, uid="uid-2").outcome == "InUse"
        bench.clock.now += 29
    bench.clock.now += 1
    assert bench.resolve(2, uid="uid-2").outcome == "Resolved"


def test_an_owner_that_never_beat_is_taken_over_too(bench: Bench) -> None:
    bench.resolve(1)
    assert bench.resolve(2, uid="uid-2").outcome == "InUse"
    bench.clock.now += 30
    assert bench.resolve(2, uid="uid-2").outcome == "Resolved"


def test_a_fresh_watch_starts_to_count_from_nothing(bench: Bench) -> None:
    bench.resolve(1)
    bench.resolve(2, uid="uid-2")
    bench.clock.now += 1000
    other = BeatWatch(lease=30, clock=bench.clock)
    assert (
        resolve(bench.run, ResolveRequest(attempt=2), uid="uid-3", watch=other).outcome == "InUse"
    )


@pytest.mark.case("storage", "Another run takes the storage over", counted="the run fails")
def test_an_owner_that_was_taken_over_notices(any_bench: Bench) -> None:
    any_bench.resolve(1)
    assert beat(any_bench.run, uid="uid-1", counter=1)
    any_bench.resolve(2, uid="uid-2")
    any_bench.clock.now += 31
    any_bench.resolve(2, uid="uid-2")
    assert not beat(any_bench.run, uid="uid-1", counter=2)
    assert beat(any_bench.run, uid="uid-2", counter=1)
    assert any_bench.resolve(3).outcome == "InUse"


def test_a_folder_that_nobody_owns_takes_no_beat(bench: Bench) -> None:
    assert not beat(bench.run, uid="uid-1", counter=1)
    release(bench.run, uid="uid-1")
    assert owners(bench) == []


def test_an_owner_that_comes_back_after_its_release_claims_anew(bench: Bench) -> None:
    bench.resolve(1)
    release(bench.run, uid="uid-1")
    assert bench.resolve(2).outcome == "Resolved"
    assert "owners/000002.json" in owners(bench)
    assert bench.resolve(3, uid="uid-2").outcome == "InUse"


def test_everybody_who_has_owned_the_folder_is_known_by_its_claims(bench: Bench) -> None:
    assert claimants(bench.run) == set()
    bench.resolve(1)
    release(bench.run, uid="uid-1")
    bench.resolve(2, uid="uid-2")
    assert claimants(bench.run) == {"uid-1", "uid-2"}
    bench.run.store.put(bench.run.key("owners/000001.json"), b"garbage")
    assert claimants(bench.run) == {"", "uid-2"}


def test_a_beat_that_comes_after_the_release_does_not_take_it_back(bench: Bench) -> None:
    bench.resolve(1)
    release(bench.run, uid="uid-1")
    assert not beat(bench.run, uid="uid-1", counter=7)  # an agent that was cut off and forgotten
    assert bench.resolve(2, uid="uid-2").outcome == "Resolved"


def test_a_beat_remembers_the_newest_commit(bench: Bench) -> None:
    bench.resolve(1)
    beat(bench.run, uid="uid-1", counter=1, committed=checkpoint_id(1, 20))
    beat(bench.run, uid="uid-1", counter=2, committed=checkpoint_id(1, 10))
    release(bench.run, uid="uid-1")
    assert bench.run.read(Beat, "owners/000001.beat").committed == checkpoint_id(1, 20)


@pytest.mark.parametrize("on_existing", ["Resume", "Fail"])
def test_of_eight_racing_runs_one_gets_the_folder(any_bench: Bench, on_existing: str) -> None:
    barrier = threading.Barrier(8)

    def start(number: int) -> str:
        watch = BeatWatch(lease=30, clock=any_bench.clock)
        barrier.wait()
        return resolve(
            any_bench.run,
            ResolveRequest(attempt=1, on_existing=on_existing),  # type: ignore[arg-type]
            uid=f"uid-{number}",
            watch=watch,
        ).outcome

    with ThreadPoolExecutor(8) as pool:
        outcomes = sorted(pool.map(start, range(8)))
    loser = "InUse" if on_existing == "Resume" else "NotEmpty"
    assert outcomes == sorted([loser] * 7 + ["Resolved"])
    assert any_bench.run.attempts() == [1]


def test_of_two_racing_agents_of_one_run_both_get_the_same_answer(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    barrier = threading.Barrier(4)

    def ask(_: int) -> object:
        barrier.wait()
        return any_bench.resolve(2)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert all(answer == answers[0] for answer in answers)


def test_a_folder_of_a_newer_layout_is_refused(bench: Bench) -> None:
    bench.run.write_once("run.json", RunRecord(layout=99, created_by="TrainRun uid x"))
    answer = bench.resolve(1)
    assert answer.outcome == "Misconfigured"
    assert (
        "has layout 99, created by TrainRun uid x; this version supports layout 1" in answer.message
    )


def test_a_damaged_run_record_is_no_obstacle(bench: Bench) -> None:
    bench.run.store.put("digits/run.json", b"")
    assert bench.resolve(1).outcome == "Resolved"


def test_the_run_record_says_who_came_first(bench: Bench) -> None:
    bench.resolve(1)
    record = json.loads(bench.run.store.get("digits/run.json"))
    assert record["layout"] == 1
    assert record["created_by"] == "TrainRun uid uid-1"


@pytest.mark.case("operator", "A node with a whole gang is cut off from the operators alone")
def test_an_owner_that_nobody_hears_is_seen_to_live_by_its_beat_and_nothing_is_claimed(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    beat(any_bench.run, uid="uid-1", counter=1)
    before = sorted(item.key for item in any_bench.run.objects(""))
    looks = [any_bench.resolve(2, look=True)]
    beat(any_bench.run, uid="uid-1", counter=2)
    looks.append(any_bench.resolve(2, look=True))
    looks.append(any_bench.resolve(2, look=True))
    assert {look.outcome for look in looks} == {"Looked"}
    assert [look.owner for look in looks] == ["Unknown", "Moves", "Unknown"]
    assert sorted(item.key for item in any_bench.run.objects("")) == before


def test_a_beat_that_stands_still_for_the_lease_is_seen_as_such(any_bench: Bench) -> None:
    any_bench.resolve(1)
    beat(any_bench.run, uid="uid-1", counter=1)
    assert any_bench.resolve(2, look=True).owner == "Unknown"
    any_bench.clock.now += 29.9
    assert any_bench.resolve(2, look=True).owner == "Unknown"
    any_bench.clock.now += 0.1
    assert any_bench.resolve(2, look=True).owner == "Still"
    assert any_bench.resolve(2).outcome == "Resolved"


def test_a_folder_without_an_owner_says_nothing(bench: Bench) -> None:
    assert bench.resolve(1, look=True).owner == "Unknown"


class CutStore(MemoryStore):
    """Its listings end after some objects, as those of a server that forgets to say so."""

    shows = 0

    def list(self, prefix: str) -> list[ObjectInfo]:
        return sorted(super().list(prefix), key=lambda item: item.key)[: self.shows]


@pytest.mark.parametrize("shows", [0, 1])
def test_a_claim_that_a_listing_leaves_out_is_still_ours(tmp_path: Path, shows: int) -> None:
    """It was told as StorageLost: our own uid was "the last to claim" what this run has lost."""
    store = CutStore()
    store.shows = 1000
    bench = Bench(run=RunStore(store, "digits"), scratch=tmp_path)
    bench.resolve(1)
    release(bench.run, uid="uid-1")
    bench.resolve(2)
    store.shows = shows

    assert beat(bench.run, uid="uid-1", counter=7)
    assert owner_uid(bench.run) == "uid-1"
    assert json.loads(store.objects["digits/owners/000002.beat"])["counter"] == 7
    assert bench.resolve(3, uid="uid-2", on_existing="Fail").outcome == "NotEmpty"
    # The attempts are cut, too: asked again later, and not refused for good.
    assert bench.resolve(3, on_existing="Fail").outcome == "Unavailable"
