"""The last lines of the processes of each attempt, one object per attempt and worker, written once.

Layer: rules over `RunStore`; written by each agent for itself, read by the command line. JSON
lines, compressed: one about the worker, then one per rank. Invariants: what is stored is masked,
within bounds, and never changed; the attempts before the newest KEPT_ATTEMPTS have none.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun.checkpoint.stores.run_store import READERS
from trainrun.contract import layout
from trainrun.contract.masking import masked
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainrun.checkpoint.stores.run_store import RunStore

KEPT_ATTEMPTS = 20
"""Attempts whose last lines are kept: the newest ones."""
LARGEST = 64 << 20
"""Bytes that are unpacked of one object."""
LATEST = 1e10
"""Seconds after the start of its processes, three centuries, at which a line may have come."""
MOST_WORKERS = 100_000
"""As many as there are keys for."""
_UNREADABLE = (
    *(OSError, EOFError, zlib.error, ValueError, TypeError, KeyError),
    *(OverflowError, RecursionError),  # numbers of a thousand digits, lists in lists
)
"""What Python says of an object that no agent has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a training process."""

    at: float
    """Seconds since the processes of its worker were started in this attempt."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """The last lines of one process."""

    rank: int
    lines: tuple[LogLine, ...] = ()
    dropped: int = 0
    """Lines before them that were not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLog:
    """The last lines of the processes of one worker in one attempt."""

    attempt: int
    slot: int
    workers: int = 0
    """Slots of the attempt; 0: not known."""
    worker: str = ""
    """Its name."""
    node: str = ""
    begun: str = ""
    """When its processes were started, by its own clock: ISO 8601, for people and to sort by."""
    ranks: tuple[RankLog, ...] = ()


def write_log(run: RunStore, log: WorkerLog) -> bool:
    """Store them, masked; False where others stand there already, which stay. Raises StoreError."""
    key = run.key(layout.log_key(log.attempt, log.slot))
    return run.store.put_if_absent(key, _packed(log))


def forget_logs(run: RunStore, *, attempt: int) -> None:
    """Delete those that are older than the KEPT_ATTEMPTS attempts up to this one.

    Raises StoreError.
    """
    places = ((layout.read_log(item.key), item.key) for item in run.objects(layout.LOGS))
    old = [key for place, key in places if place and place[0] <= attempt - KEPT_ATTEMPTS]
    if old:
        run.delete(old)


def stored_logs(run: RunStore) -> list[tuple[int, int]]:
    """Attempt and slot of all that are stored, ascending. Raises StoreError."""
    places = (layout.read_log(item.key) for item in run.objects(layout.LOGS))
    return sorted(place for place in places if place is not None)


def read_logs(run: RunStore, places: Iterable[tuple[int, int]]) -> list[WorkerLog | None]:
    """Those of these attempts and slots, in this order; None: it cannot be read.

    Raises StoreError.
    """

    def read(place: tuple[int, int]) -> WorkerLog | None:
        try:
            return _unpacked(run.store.get(run.key(layout.log_key(*place))))
        except (CheckpointDamaged, ObjectNotFound):
            return None

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(read, places))


def _packed(log: WorkerLog) -> bytes:
    head = {
        "attempt": log.attempt,
        "slot": log.slot,
        "workers": log.workers,
        "worker": log.worker,
        "node": log.node,
        "begun": log.begun,
    }
    rows = [head, *(_row(rank) for rank in log.ranks)]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    # The same log gives the same bytes, so writing it twice is no conflict.
    return gzip.compress(text.encode(), mtime=0)


def _row(rank: RankLog) -> dict[str, object]:
    lines = [[line.at, masked(line.text)] for line in rank.lines]
    return {"rank": rank.rank, "dropped": rank.dropped, "lines": lines}


def _unpacked(data: bytes) -> WorkerLog:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            head, *rows = file.read(LARGEST).decode().strip().split("\n")
        return _of(json.loads(head), [json.loads(row) for row in rows])
    except _UNREADABLE as error:
        raise CheckpointDamaged(f"stored lines that cannot be read: {error}") from error


def _of(head: dict[str, object], rows: list[dict[str, object]]) -> WorkerLog:
    ranks = []
    for row in rows:
        lines = row["lines"]
        if not isinstance(lines, list):
            raise TypeError("lines that are no list")
        told = tuple(LogLine(at=_at(at), text=str(text)) for at, text in lines)
        ranks.append(RankLog(rank=_int(row["rank"]), lines=told, dropped=_int(row["dropped"])))
    return WorkerLog(
        attempt=_int(head["attempt"]),
        slot=_int(head["slot"]),
        workers=_int(head.get("workers", 0), most=MOST_WORKERS),
        worker=str(head.get("worker", "")),
        node=str(head.get("node", "")),
        begun=str(head.get("begun", "")),
        ranks=tuple(ranks),
    )


def _at(value: object) -> float:
    at = float(value)  # type: ignore[arg-type]
    if not 0 <= at <= LATEST:  # NaN neither
        raise ValueError(f"a line of second {at}")
    return at


def _int(value: object, *, most: float = math.inf) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    if value > most:
        raise ValueError(f"{value} is more than {most}")
    return value
