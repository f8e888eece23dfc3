"""The metrics of a run in its folder: numbered pieces of JSON lines, each written once.

Layer: rules over `RunStore`; slot 0's agent writes them. Invariant: a piece never changes, so
readers may cache it; writing the same piece twice is harmless.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trainrun.checkpoint.run_store import READERS
from trainrun.contract import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainrun.checkpoint.run_store import RunStore


class MetricsLog:
    """Writes the metrics of one attempt, piece by piece."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._next = 1

    def write(self, run: RunStore, records: Iterable[Mapping[str, Any]]) -> str | None:
        """Store these records (JSON-safe) as the next piece; return its key, None for no records.

        Raises StoreError; the call may then be repeated with the same records.
        """
        lines = [json.dumps(record, separators=(",", ":"), allow_nan=False) for record in records]
        if not lines:
            return None
        data = ("\n".join(lines) + "\n").encode()
        key = layout.metrics_key(self._attempt, self._next)
        # A number is taken when another agent was slot 0 of this attempt before.
        while not run.store.put_if_absent(run.key(key), data):
            self._next += 1
            key = layout.metrics_key(self._attempt, self._next)
        self._next += 1
        return key


def read_metrics(
    run: RunStore, *, most: int | None = None, known: set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """All records of a run in the order of attempts and pieces; unreadable lines are left out.

    `most` limits the number of pieces read, spread evenly over all of them. With `known`, keys of
    pieces to leave out, which gets those that there are now: the next call reads on. Each record
    has the additional field `attempt`. Raises StoreError.
    """
    pieces = sorted(
        (place, item.key)
        for item in run.objects(layout.METRICS)
        if (place := layout.read_metrics(item.key)) is not None and item.key not in (known or ())
    )
    everything = [key for _, key in pieces]
    if most is not None and len(pieces) > most:
        last = len(pieces) - 1
        pieces = [pieces[round(n * last / (most - 1))] for n in range(most)]
    with ThreadPoolExecutor(READERS) as pool:
        for begin in range(0, len(pieces), READERS):
            some = pieces[begin : begin + READERS]
            contents = pool.map(lambda piece: run.store.get(run.key(piece[1])), some)
            for ((attempt, _), key), data in zip(some, contents, strict=True):
                if known is not None:
                    known.add(key)  # not before it was read: a store may fail on the way
                yield from ({"attempt": attempt, **record} for record in records_of(data))
    if known is not None:
        known.update(everything)  # also those that `most` left out


def records_of(data: bytes) -> Iterator[dict[str, Any]]:
    """The records of a piece; unreadable lines are left out."""
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record
