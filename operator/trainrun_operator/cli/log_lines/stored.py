"""The lines that a run's storage holds, attempt by attempt, and what is missing there.

Layer: cli. One attempt is read at a time: those of a large gang are many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from trainrun.checkpoint.logs import KEPT_ATTEMPTS, RankLog, WorkerLog, read_logs, stored_logs
from trainrun.checkpoint.run_store import RunStore
from trainrun_operator.cli.log_lines.line import Gap, Line, Shown, Wanted


@dataclass(slots=True, kw_only=True)
class StoredLines:
    """Those of one folder."""

    run: RunStore
    wanted: Wanted
    slots: dict[int, list[int]] = field(default_factory=dict)
    """By attempt: which workers have stored something."""
    told: set[tuple[int, int]] = field(default_factory=set)
    """Attempt and rank of which `of` has shown all that there is."""

    def look(self) -> None:
        """List what there is. Raises StoreError."""
        found: dict[int, list[int]] = defaultdict(list)
        for attempt, slot in stored_logs(self.run):
            found[attempt].append(slot)
        self.slots = dict(found)

    def of(self, attempt: int) -> Iterator[Shown]:
        """The lines of an attempt in the order of time, what is missing of them first.

        Raises StoreError.
        """
        places = [(attempt, slot) for slot in self.slots.get(attempt, [])]
        logs = read_logs(self.run, places)
        read = [log for log in logs if log is not None]
        for (_, slot), log in zip(places, logs, strict=True):
            if log is None:
                yield _missing(attempt, f"what slot {slot} has stored cannot be read")
        lines: list[Line] = []
        for log in read:
            for rank in log.ranks:
                if self.wanted.has(attempt, [rank.rank]):
                    self.told.add((attempt, rank.rank))
                    lines += _lines(log, rank)
                    yield from self._dropped(log, rank)
        lines.sort(key=lambda line: line.time or datetime.min.replace(tzinfo=UTC))
        yield from self.wanted.last(lines)

    def lacks(self, attempt: int) -> list[tuple[int, set[int]]]:
        """Slots of an attempt of which nothing is stored, and their ranks, as far as what the
        others have stored tells how many there are. Raises StoreError."""
        there = self.slots.get(attempt, [])
        first = next(iter(read_logs(self.run, [(attempt, slot) for slot in there[:1]])), None)
        if first is None:
            return []
        each = len(first.ranks)
        missing = set(range(first.workers)) - set(there)
        return [(slot, set(range(slot * each, slot * each + each))) for slot in sorted(missing)]

    def _dropped(self, log: WorkerLog, rank: RankLog) -> Iterator[Gap]:
        if rank.dropped and self.wanted.tail is None:
            count = f"{rank.dropped:,} earlier line{'s' if rank.dropped > 1 else ''}"
            yield Gap(
                attempt=log.attempt,
                worker=log.worker,
                text=f"{count} of rank {rank.rank} were not kept: the last {len(rank.lines):,} are",
            )


def deleted(attempts: Iterable[int], newest: int) -> list[int]:
    """Those whose lines were deleted, since only the newest attempts keep theirs."""
    return [attempt for attempt in attempts if attempt <= newest - KEPT_ATTEMPTS]


def _missing(attempt: int, text: str) -> Gap:
    return Gap(attempt=attempt, text=text)


def _lines(log: WorkerLog, rank: RankLog) -> Iterator[Line]:
    begun = _moment(log.begun)
    for line in rank.lines:
        yield Line(
            attempt=log.attempt,
            rank=rank.rank,
            text=line.text,
            worker=log.worker,
            time=_came(begun, line.at),
        )


def _came(begun: datetime | None, at: float) -> datetime | None:
    try:
        return None if begun is None else begun + timedelta(seconds=at)
    except OverflowError:
        return None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):  # no moment, or one of the year 0
        return None
