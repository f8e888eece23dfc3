"""The id by which trackers know a run: the same for whoever asks its folder, and no other run's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from trainrun.checkpoint import ownership
from trainrun.checkpoint.ownership import BeatWatch, release, stored_run_id
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore
from trainrun.contract import environment
from trainrun.contract.answer import ResolveRequest

if TYPE_CHECKING:
    from tests.support.checkpoints import Bench
    from trainrun.contract.agent_state import Resolution


def test_the_id_of_a_run_never_changes_from_version_to_version() -> None:
    assert ownership.derived_run_id("TrainRun uid 6e6f-1", "digits") == "qds44i3a6xuei7e7"


def test_another_name_or_another_beginning_is_another_run() -> None:
    found = {
        ownership.derived_run_id(created_by, name)
        for created_by in ("TrainRun uid a", "TrainRun uid b")
        for name in ("digits", "digits-2")
    }
    assert len(found) == 4


def test_an_id_is_safe_as_the_name_of_anything() -> None:
    made = ownership.derived_run_id("TrainRun uid ü€\"'", "n" * 300)
    assert len(made) == ownership.RUN_ID_LENGTH
    assert environment.valid_run_id(made) == made


@pytest.mark.parametrize("text", ["", "a" * 33, "A", "../x", "a b", "ü", "a\n", "a-b"])
def test_what_is_no_id_is_taken_for_none(text: str) -> None:
    assert environment.valid_run_id(text) == ""


def test_every_attempt_of_every_trainrun_in_a_folder_has_one_id(any_bench: Bench) -> None:
    first = any_bench.resolve(1)
    assert environment.valid_run_id(first.run_id)
    assert any_bench.resolve(1) == first
    any_bench.commit(step=10)
    found = [any_bench.resolve(2).run_id]
    release(any_bench.run, uid="uid-1")
    found.append(any_bench.resolve(3, uid="uid-2").run_id)
    assert found == [first.run_id] * 2
    assert stored_run_id(any_bench.run) == first.run_id


def test_a_folder_of_another_name_is_another_run(any_bench: Bench) -> None:
    first = any_bench.resolve(1).run_id
    for item in any_bench.run.objects(""):  # somebody copies it, to try something else
        content = any_bench.run.store.get(any_bench.run.key(item.key))
        any_bench.run.store.put(f"copied/{item.key}", content)
    assert stored_run_id(RunStore(any_bench.run.store, "copied")) not in ("", first)


def test_a_folder_that_nobody_has_used_has_no_id(any_bench: Bench) -> None:
    any_bench.run.store.probe()
    assert stored_run_id(any_bench.run) == ""


def test_a_run_keeps_its_id_when_its_run_record_is_damaged(bench: Bench) -> None:
    first = bench.resolve(1).run_id
    bench.run.store.put("digits/run.json", b"\0" * 60)
    release(bench.run, uid="uid-1")
    assert bench.resolve(2, uid="uid-2").run_id == first
    assert stored_run_id(bench.run) == first


def test_an_answer_that_starts_nothing_has_no_id(bench: Bench) -> None:
    bench.resolve(1)
    assert bench.resolve(2, uid="uid-2").run_id == ""


def test_eight_trainruns_that_race_for_a_new_folder_agree_on_its_id(any_bench: Bench) -> None:
    barrier = threading.Barrier(8)

    def start(number: int) -> Resolution:
        watch = BeatWatch(lease=30, clock=any_bench.clock)
        barrier.wait()
        return resolve(any_bench.run, ResolveRequest(attempt=1), uid=f"uid-{number}", watch=watch)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(start, range(8)))
    (winner,) = [number for number, it in enumerate(answers) if it.outcome == "Resolved"]
    assert stored_run_id(any_bench.run) == answers[winner].run_id
    release(any_bench.run, uid=f"uid-{winner}")
    for attempt, number in enumerate(sorted({*range(8)} - {winner}), start=2):
        assert any_bench.resolve(attempt, uid=f"uid-{number}").run_id == answers[winner].run_id
        release(any_bench.run, uid=f"uid-{number}")
