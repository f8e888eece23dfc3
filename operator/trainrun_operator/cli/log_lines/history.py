"""Reads a run's lines from its storage, and from its workers' files on this machine as they grow.

Layer: cli. Reads one attempt at a time, in order: a large gang has many lines. Reports lines that a
lost worker had not stored. Reads each file once, from its beginning, so no line is shown twice or
left out after restarts; a worker that is recreated under its old name has a new file.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

from trainrun.checkpoint.logs import KEPT_ATTEMPTS, RankLog, WorkerLog, read_logs, stored_logs
from trainrun.checkpoint.run_store import RunStore
from trainrun_operator.cli.formatting import counted, named
from trainrun_operator.cli.log_lines.line import Gap, Line, LogItem, Wanted, WorkerOutput
from trainrun_operator.worlds.local.worker import OUTPUT_FILE


@dataclass(slots=True, kw_only=True)
class History:
    """All lines of one run."""

    run: RunStore | None
    """Its folder; None: the storage cannot be read."""
    slots: Mapping[int, Sequence[int]]
    """Slots that have stored lines, by attempt."""
    live: Iterable[Line]
    """The output of the workers that still exist."""
    claimed: tuple[int, ...] = ()
    """Attempts that started, according to the storage."""
    running: int | None = None
    """The running attempt; None: none."""
    wanted: Wanted
    size: int = 0
    """Number of ranks, according to the lines read so far; 0: not known."""
    _live: dict[int | None, list[Line]] = field(default_factory=lambda: defaultdict(list))
    _complete: set[tuple[int, int]] = field(default_factory=set)
    """Attempt and rank whose stored lines have all been yielded."""

    def items(self) -> Iterator[LogItem]:
        """All wanted lines and gaps, by attempt. Raises StoreError."""
        for line in self.live:
            self._live[line.attempt].append(line)
        numbers = {n for n in self._live if n is not None} | {*self.claimed, *self.slots}
        oldest = max(numbers, default=0) - KEPT_ATTEMPTS + 1
        if deleted := sorted(n for n in numbers if n < oldest and n not in self.slots):
            yield from self._deleted(deleted)
        for attempt in sorted(numbers - set(deleted)):
            if self.wanted.attempt in (None, attempt):
                yield from self._of(attempt)
        yield from self._live[None]

    def _of(self, attempt: int) -> Iterator[LogItem]:
        live = self._live[attempt]
        if self.run is not None:
            yield from self._stored(self.run, attempt)
        yield from (line for line in live if (attempt, line.rank) not in self._complete)
        if self.run is not None and attempt != self.running:
            for text in self._lost(self.run, attempt, {line.rank for line in live}):
                yield Gap(attempt=attempt, text=text)

    def _stored(self, run: RunStore, attempt: int) -> Iterator[LogItem]:
        """An attempt's stored lines by time, after its gaps."""
        slots = self.slots.get(attempt, ())
        lines: list[Line] = []
        logs = read_logs(run, [(attempt, slot) for slot in slots])
        for slot, log in zip(slots, logs, strict=True):
            if log is None:
                yield Gap(attempt=attempt, text=f"the stored lines of slot {slot} cannot be read")
                continue
            self.size = max(self.size, log.workers * len(log.ranks))
            for rank in log.ranks:
                if self.wanted.has(attempt, [rank.rank]):
                    self._complete.add((attempt, rank.rank))
                    lines += _lines(log, rank)
                    yield from self._dropped(log, rank)
        lines.sort(key=lambda line: line.moment)
        yield from self.wanted.last(lines)

    def _dropped(self, log: WorkerLog, rank: RankLog) -> Iterator[Gap]:
        if rank.dropped and self.wanted.tail is None:
            count = counted(rank.dropped, "earlier line")
            yield Gap(
                attempt=log.attempt,
                worker=log.worker,
                text=f"{count} of rank {rank.rank} were not kept, only the last "
                f"{len(rank.lines):,}",
            )

    def _lost(self, run: RunStore, attempt: int, seen: set[int]) -> Iterator[str]:
        """Texts about lines of an attempt that were neither stored nor `seen` in a live worker."""
        there = self.slots.get(attempt, ())
        if not there and not seen:
            yield (
                "nothing is stored: its workers were lost before they could store their last "
                "lines, or it never ran"
            )
        # One stored log says how many workers and ranks there are.
        for log in filter(None, read_logs(run, [(attempt, slot) for slot in there[:1]])):
            each = len(log.ranks)
            for slot in sorted({*range(log.workers)} - {*there}):
                ranks = set(range(slot * each, slot * each + each))
                if not ranks & seen and self.wanted.has(attempt, ranks):
                    yield (
                        f"nothing is stored for slot {slot} ({named(ranks)}): its worker was lost "
                        "before it could store its last lines"
                    )

    def _deleted(self, attempts: list[int]) -> Iterator[Gap]:
        """A gap for these attempts: only the newest ones keep their lines."""
        first, last = attempts[0], attempts[-1]
        which = f"attempt {first}" if first == last else f"attempts {first} to {last}"
        if self.wanted.attempt is None or self.wanted.attempt in attempts:
            yield Gap(
                attempt=last,
                text=f"the lines of {which} were deleted: only the newest {KEPT_ATTEMPTS} attempts "
                "keep theirs",
            )


def stored_slots(run: RunStore) -> dict[int, list[int]]:
    """Slots that have stored lines, by attempt. Raises StoreError."""
    found: dict[int, list[int]] = defaultdict(list)
    for attempt, slot in stored_logs(run):
        found[attempt].append(slot)
    return dict(found)


def _lines(log: WorkerLog, rank: RankLog) -> Iterator[Line]:
    for line in rank.lines:
        time = _moment(log.begun, line.at)
        text = line.text
        yield Line(attempt=log.attempt, rank=rank.rank, text=text, worker=log.worker, time=time)


def _moment(begun: str, at: float) -> datetime | None:
    """The time `at` seconds after `begun`; None if `begun` is not a time."""
    try:
        moment = datetime.fromisoformat(begun)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        return moment + timedelta(seconds=at)
    except (ValueError, OverflowError):  # no moment, or one of the year 0
        return None


CHECK_EVERY = 0.2
"""Seconds between two reads of followed files."""
QUIET_CHECKS = 5
"""Reads without a new line after which a worker of an ended attempt counts as lost."""
MOST_LINES = 2000
"""Lines shown of each rank in each attempt without --follow, as many as a storage keeps."""
PIECE = 1 << 20
"""Bytes per read."""


@dataclass(slots=True, kw_only=True)
class _File:
    """The output of one worker so far."""

    path: Path
    output: WorkerOutput
    inode: int = 0
    offset: int = 0
    quiet: int = 0
    """Reads in a row without anything new."""
    _partial: bytes = b""

    def lines(self) -> Iterator[Line]:
        """New lines since the last call."""
        self.quiet += 1
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.offset:
                    self.inode, self.offset, self._partial = status.st_ino, 0, b""
                    self.output = WorkerOutput(worker=self.output.worker)
                file.seek(self.offset)
                while data := file.read(PIECE):
                    self.offset += len(data)
                    self.quiet = 0
                    *whole, self._partial = (self._partial + data).split(b"\n")
                    yield from self._of(whole)
        except FileNotFoundError:
            return

    def rest(self) -> Iterator[Line]:
        """The last line, if it has no line break; call it when the output has ended."""
        if self._partial:
            last, self._partial = self._partial, b""
            yield from self._of([last])

    def _of(self, lines: list[bytes]) -> Iterator[Line]:
        texts = (data.decode(errors="replace").rstrip("\r") for data in lines)
        return filter(None, map(self.output.line, texts))


@dataclass(slots=True, kw_only=True)
class LocalLines:
    """The lines of all local workers of one run."""

    nodes: Path
    """The folder with one folder per worker."""
    wanted: Wanted
    _files: dict[str, _File] = field(default_factory=dict)

    def new(self) -> Iterator[Line]:
        """Wanted lines of all workers since the last call."""
        for path in sorted(self.nodes.glob(f"*/{OUTPUT_FILE}")):
            worker = path.parent.name
            if worker not in self._files:
                self._files[worker] = _File(path=path, output=WorkerOutput(worker=worker))
        for file in self._files.values():
            yield from self.wanted.of(file.lines())

    def rest(self) -> Iterator[Line]:
        """Wanted last lines without a line break."""
        for file in self._files.values():
            yield from self.wanted.of(file.rest())

    def lost(self, *, over: bool) -> Iterator[Gap]:
        """Gaps for lost workers of ended attempts; `over`: the run has ended, too."""
        newest = max((file.output.attempt or 0 for file in self._files.values()), default=0)
        for file in self._files.values():
            if over or file.quiet >= QUIET_CHECKS:
                yield from file.output.lost(newest if over else newest - 1)

    def history(self) -> Iterator[LogItem]:
        """All wanted lines that exist now, by attempt."""
        tail = MOST_LINES if self.wanted.tail is None else min(self.wanted.tail, MOST_LINES)
        lines = replace(self.wanted, tail=tail).last(chain(self.new(), self.rest()))
        yield from sorted(lines, key=lambda line: line.attempt or 0)

    def follow(
        self, *, over: Callable[[], bool], pause: Callable[[float], None] = time.sleep
    ) -> Iterator[LogItem]:
        """Existing lines, then new ones, until the run is `over`."""
        # Without a tail, lines are yielded as they are read; a tail needs all of them first.
        yield from self.new() if self.wanted.tail is None else self.wanted.last(self.new())
        while True:
            ends = over()
            yield from self.new()
            if ends and all(file.quiet for file in self._files.values()):
                break
            yield from self.lost(over=False)
            pause(CHECK_EVERY)
        yield from self.rest()
        yield from self.lost(over=True)
