"""The last lines of each attempt, in the run's folder."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from trainrun.checkpoint.logs import (
    KEPT_ATTEMPTS,
    LogLine,
    RankLog,
    WorkerLog,
    forget_logs,
    read_logs,
    stored_logs,
    write_log,
)

if TYPE_CHECKING:
    from tests.support.checkpoints import Bench


def a_log(attempt: int = 1, slot: int = 0, *lines: str) -> WorkerLog:
    told = tuple(LogLine(at=float(n), text=text) for n, text in enumerate(lines))
    return WorkerLog(
        attempt=attempt,
        slot=slot,
        workers=2,
        worker=f"digits-{slot}-1",
        node="n1",
        begun="2026-11-03T09:00:00.000+00:00",
        ranks=(RankLog(rank=slot, lines=told, dropped=3),),
    )


def test_what_was_written_is_read_back(bench: Bench) -> None:
    log = a_log(1, 1, "step 1", "caf\u00e9 \u2028 \U0001f600", "")
    assert write_log(bench.run, log)
    assert write_log(bench.run, log), "the same again is no conflict"
    assert stored_logs(bench.run) == [(1, 1)]
    assert read_logs(bench.run, [(1, 1)]) == [log]


def test_what_stands_there_stays(bench: Bench) -> None:
    assert write_log(bench.run, a_log(1, 0, "first"))
    assert not write_log(bench.run, a_log(1, 0, "second"))
    assert read_logs(bench.run, [(1, 0)]) == [a_log(1, 0, "first")]


def test_no_secret_is_stored(bench: Bench) -> None:
    write_log(bench.run, a_log(1, 0, "login with password=hunter2 now", "loss 0.5"))
    data = gzip.decompress(bench.run.store.get(bench.run.key("logs/000001-00000.jsonl.gz")))
    assert b"hunter2" not in data
    assert b"password=***" in data
    assert b"loss 0.5" in data


def test_only_the_newest_attempts_keep_theirs(bench: Bench) -> None:
    for attempt in range(1, KEPT_ATTEMPTS + 3):
        write_log(bench.run, a_log(attempt))
    bench.run.store.put(bench.run.key("logs/notes.txt"), b"mine")
    forget_logs(bench.run, attempt=KEPT_ATTEMPTS + 2)
    assert stored_logs(bench.run) == [(n, 0) for n in range(3, KEPT_ATTEMPTS + 3)]
    forget_logs(bench.run, attempt=2)
    assert len(stored_logs(bench.run)) == KEPT_ATTEMPTS
    assert bench.run.store.get(bench.run.key("logs/notes.txt")) == b"mine"


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"{}", mtime=0),
        gzip.compress(b'{"attempt":1,"slot":0}\n{"rank":0,"dropped":0,"lines":7}', mtime=0),
        gzip.compress(b'{"attempt":1,"slot":0}\n{"rank":"x","dropped":0,"lines":[]}', mtime=0),
        gzip.compress(
            b'{"attempt":1,"slot":0}\n{"rank":0,"dropped":0,"lines":[{"at":1}]}', mtime=0
        ),
        *(
            gzip.compress(
                b'{"attempt":1,"slot":0}\n{"rank":0,"dropped":0,"lines":[{"at":%s,"text":""}]}'
                % at,
                mtime=0,
            )
            for at in (b"NaN", b"Infinity", b"-1", b"1e30", b"9" * 400, b"null", b"[]")
        ),
        gzip.compress(b'{"attempt":1,"slot":0,"workers":1000000000}', mtime=0),
        gzip.compress(b'{"attempt":1,"slot":0}\n' + b"[" * 100_000, mtime=0),
        gzip.compress(b"\xff\xfe", mtime=0),
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b"cut", mtime=0)[:-4],
    ],  # without the time of day: each process collects them, and must name them alike
)
def test_an_object_that_cannot_be_read_costs_only_itself(bench: Bench, data: bytes) -> None:
    bench.run.store.put(bench.run.key("logs/000001-00000.jsonl.gz"), data)
    write_log(bench.run, a_log(1, 1))
    assert read_logs(bench.run, [(1, 0), (1, 1), (1, 2)]) == [None, a_log(1, 1), None]
