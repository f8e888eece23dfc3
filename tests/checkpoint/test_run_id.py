"""The id of a run is the same for whoever asks its folder, and that of no other run."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from trainrun.checkpoint import BeatWatch, RunStore, known_run_id, release, resolve
from trainrun.contract import run_id

if TYPE_CHECKING:
    from tests.support.checkpoints import Bench
    from trainrun.contract.agent_state import Resolution


def test_every_attempt_of_every_trainrun_in_a_folder_has_one_id(any_bench: Bench) -> None:
    first = any_bench.resolve(1)
    assert run_id.valid(first.run_id)
    assert any_bench.resolve(1) == first
    any_bench.commit(step=10)
    found = [any_bench.resolve(2).run_id]
    release(any_bench.run, uid="uid-1")
    found.append(any_bench.resolve(3, uid="uid-2").run_id)
    assert found == [first.run_id] * 2
    assert known_run_id(any_bench.run) == first.run_id


def test_a_folder_of_another_name_is_another_run(any_bench: Bench) -> None:
    first = any_bench.resolve(1).run_id
    for item in any_bench.run.objects(""):  # somebody copies it, to try something else
        content = any_bench.run.store.get(any_bench.run.key(item.key))
        any_bench.run.store.put(f"copied/{item.key}", content)
    assert known_run_id(RunStore(any_bench.run.store, "copied")) not in ("", first)


def test_a_folder_that_nobody_has_used_has_no_id(any_bench: Bench) -> None:
    any_bench.run.store.probe()
    assert known_run_id(any_bench.run) == ""


def test_a_run_keeps_its_id_when_its_run_record_is_damaged(bench: Bench) -> None:
    first = bench.resolve(1).run_id
    bench.run.store.put("digits/run.json", b"\0" * 60)
    release(bench.run, uid="uid-1")
    assert bench.resolve(2, uid="uid-2").run_id == first
    assert known_run_id(bench.run) == first


def test_an_answer_that_starts_nothing_has_no_id(bench: Bench) -> None:
    bench.resolve(1)
    assert bench.resolve(2, uid="uid-2").run_id == ""


def test_eight_trainruns_that_race_for_a_new_folder_agree_on_its_id(any_bench: Bench) -> None:
    barrier = threading.Barrier(8)

    def start(number: int) -> Resolution:
        watch = BeatWatch(lease=30, clock=any_bench.clock)
        barrier.wait()
        return resolve(any_bench.run, uid=f"uid-{number}", attempt=1, watch=watch)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(start, range(8)))
    (winner,) = [number for number, it in enumerate(answers) if it.outcome == "Resolved"]
    assert known_run_id(any_bench.run) == answers[winner].run_id
    release(any_bench.run, uid=f"uid-{winner}")
    for attempt, number in enumerate(sorted({*range(8)} - {winner}), start=2):
        assert any_bench.resolve(attempt, uid=f"uid-{number}").run_id == answers[winner].run_id
        release(any_bench.run, uid=f"uid-{number}")
