"""The fold of the log: what is known of each key, how fast, and in how much memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from time import process_time

import pytest

from tests.tasks.by_hand import output
from trainrun.tasks.records import (
    Began,
    Changed,
    Dispatched,
    Done,
    Failed,
    Output,
    Over,
    Rebuild,
    Record,
)
from trainrun.tasks.replayed_state import ReplayedState

DISPATCHED = Dispatched(
    key="a", generation=1, number=1, worker=3, function="m:f", arguments="f(1)", parents=("z",)
)
DONE = Done(key="a", generation=1, number=1, worker=3, seconds=2.5, outputs=(output("a"),))


def failed(number: int, *, counted: bool = True, final: bool = False) -> Failed:
    return Failed(
        key="a", number=number, reason="Exited", message="m", counted=counted, final=final
    )


def again(number: int, generation: int = 1) -> Dispatched:
    return Dispatched(key="a", generation=generation, number=number, worker=0)


def test_a_key_is_known_from_its_records() -> None:
    replayed = ReplayedState([Began(session="s", attempt=4), DISPATCHED, failed(1), again(2)])
    entry = replayed.entries["a"]
    assert (entry.function, entry.arguments, entry.parents) == ("m:f", "f(1)", ("z",))
    assert (entry.number, entry.worker, entry.open) == (2, 0, True)
    assert (entry.spent, entry.retries, replayed.retried) == (1, 1, 1)
    assert (replayed.attempt, replayed.over) == (4, False)
    replayed.fold(DONE)
    replayed.fold(Over(outcome="Returned"))
    assert (entry.open, entry.done, entry.seconds) == (False, True, 2.5)
    assert (replayed.done, replayed.over) == (1, True)


def test_only_counted_failures_are_retries() -> None:
    replayed = ReplayedState([DISPATCHED, failed(1, counted=False), again(2), failed(2), again(3)])
    assert (replayed.entries["a"].spent, replayed.retried) == (1, 1)
    replayed.fold(failed(3, final=True))
    assert (replayed.entries["a"].settled, replayed.retried) == (True, 1)


def test_a_new_driver_ends_all_tries_and_counts_those_on_lost_workers() -> None:
    for lost, spent in (((3,), 1), ((0, 1), 0)):
        replayed = ReplayedState([DISPATCHED, Began(session="t", lost=lost)])
        assert (replayed.entries["a"].open, replayed.entries["a"].spent) == (False, spent)
        replayed.fold(Began(session="u", lost=lost))
        assert replayed.entries["a"].spent == spent


def test_a_rebuild_keeps_the_older_results_until_it_is_done() -> None:
    rebuild = Rebuild(key="a", generation=2, why="w")
    replayed = ReplayedState([DISPATCHED, failed(1), again(2), DONE, rebuild, rebuild])
    entry = replayed.entries["a"]
    assert (entry.done, entry.spent, entry.generation, entry.rebuilds) == (False, 0, 2, 1)
    assert entry.outputs == DONE.outputs
    replayed.fold(again(3, 2))
    replayed.fold(Changed(key="a", generation=2, index=0))
    replayed.fold(Done(key="a", generation=2, number=3, worker=0, seconds=1, outputs=DONE.outputs))
    assert (entry.done, entry.changed, replayed.done) == (True, True, 1)


def log_of(keys: int) -> Iterator[Record]:
    """As it is read: no two records share a text."""
    for i in range(keys):
        key = sha256(str(i).encode()).hexdigest()
        yield Dispatched(
            key=key[:32] + key[32:],
            generation=1,
            number=1,
            worker=i % 16,
            function=f"{'prepare'}:{'tokenize'}"[:99],
            arguments=f"tokenize('s3://bucket/shards/{i:06}.parquet')",
            parents=(sha256(str(max(0, i - 1)).encode()).hexdigest(),),
            code=sha256(b"code").hexdigest(),
        )
        digest = sha256(key.encode()).hexdigest()
        outputs = (Output(digest=digest, size=i),)
        yield Done(
            key=key[:32] + key[32:],
            generation=1,
            number=1,
            worker=i % 16,
            seconds=1.0 + i,
            outputs=outputs,
        )


@pytest.mark.slow
def test_ten_thousand_tasks_are_folded_fast_and_small() -> None:
    records = list(log_of(10_000))
    began = process_time()
    replayed = ReplayedState(records)
    assert process_time() - began < 0.5
    assert replayed.done == 10_000
    del records, replayed
    tracemalloc.start()
    replayed = ReplayedState(log_of(2_000))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(replayed.entries) < 1_500  # bytes: 150 MB for 100,000
