"""The last log lines of the processes of each attempt: one write-once object per worker.

Layer: rules over `RunStore`; each agent writes its own, the command line reads them. The format is
compressed JSON lines: one about the worker, then one per rank. Invariants: stored lines are masked,
bounded and never changed; only the newest KEPT_ATTEMPTS attempts have any.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from trainrun.checkpoint.run_store import READERS
from trainrun.contract import layout, wire
from trainrun.contract.masking import masked
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainrun.checkpoint.run_store import RunStore

T = TypeVar("T")

KEPT_ATTEMPTS = 20
"""Number of newest attempts whose last lines are kept."""
LARGEST = 64 << 20
"""Maximum bytes unpacked from one object."""
LATEST = 1e10
"""Maximum time of a line in seconds after the start of its processes: three centuries."""
MOST_WORKERS = 100_000
"""Maximum number of workers: keys have five digits for them."""


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
    """Number of earlier lines that were not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLog:
    """The last lines of the processes of one worker in one attempt."""

    attempt: int
    slot: int
    workers: int = 0
    """Slots of the attempt; 0: not known."""
    worker: str = ""
    """The worker's name."""
    node: str = ""
    begun: str = ""
    """Start of its processes by the worker's clock: ISO 8601, for display and sorting."""
    ranks: tuple[RankLog, ...] = ()


def write_log(run: RunStore, log: WorkerLog) -> bool:
    """Store the lines, masked; False: others already exist, and stay. The call for slot 0 also
    deletes lines of old attempts. Raises StoreError."""
    key = run.key(layout.log_key(log.attempt, log.slot))
    written = run.store.put_if_absent(key, _packed(log))
    if log.slot == 0:
        forget_logs(run, attempt=log.attempt)
    return written


def forget_logs(run: RunStore, *, attempt: int) -> None:
    """Delete lines of attempts older than the KEPT_ATTEMPTS up to this one.

    Raises StoreError.
    """
    places = ((layout.read_log(item.key), item.key) for item in run.objects(layout.LOGS))
    old = [key for place, key in places if place and place[0] <= attempt - KEPT_ATTEMPTS]
    if old:
        run.delete(old)


def stored_logs(run: RunStore) -> list[tuple[int, int]]:
    """Attempt and slot of all stored logs, ascending. Raises StoreError."""
    places = (layout.read_log(item.key) for item in run.objects(layout.LOGS))
    return sorted(place for place in places if place is not None)


def read_logs(run: RunStore, places: Iterable[tuple[int, int]]) -> list[WorkerLog | None]:
    """The logs of these attempts and slots, in this order; None: missing or unreadable.

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
    rows = [replace(log, ranks=()), *map(_masked, log.ranks)]
    text = "".join(json.dumps(wire.encode(row), separators=(",", ":")) + "\n" for row in rows)
    # The same log gives the same bytes, so writing it twice is not a conflict.
    return gzip.compress(text.encode(), mtime=0)


def _masked(rank: RankLog) -> RankLog:
    lines = tuple(LogLine(at=line.at, text=masked(line.text)) for line in rank.lines)
    return replace(rank, lines=lines)


def _unpacked(data: bytes) -> WorkerLog:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            head, *rows = file.read(LARGEST).splitlines()
        ranks = tuple(_decoded(RankLog, row) for row in rows)
        log = replace(_decoded(WorkerLog, head), ranks=ranks)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CheckpointDamaged(f"stored log lines cannot be read: {error}") from error
    if log.workers > MOST_WORKERS:
        raise CheckpointDamaged(f"stored log lines cannot be read: {log.workers} workers")
    return log


def _decoded(cls: type[T], row: bytes) -> T:
    return wire.decode(cls, wire.parsed(row), check=_checked)


def _checked(value: Any) -> Any:
    if isinstance(value, (int, float)) and not 0 <= value <= LATEST:  # NaN neither
        raise ValueError(f"a number from 0 to {LATEST:.0e}")
    return value
