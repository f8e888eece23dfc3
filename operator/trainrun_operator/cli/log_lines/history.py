"""The lines of a run: from its storage, and from the files of its workers on this machine, also
while they grow.

Layer: cli. In the order of attempts, of which one is read at a time: the lines of a large gang are
many. What a worker that was lost had not stored is named. A file is read once, from its beginning,
so no line is shown twice or left out, whoever restarts; a worker that was made anew under its old
name has a new file.
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
    """Of one run."""

    run: RunStore | None
    """Its folder; None: the storage cannot be read."""
    slots: Mapping[int, Sequence[int]]
    """By attempt: which workers have stored something."""
    live: Iterable[Line]
    """What the workers that are still there have printed."""
    claimed: tuple[int, ...] = ()
    """Attempts that were begun, as far as the storage tells."""
    running: int | None = None
    """The attempt that is under way; None: none is."""
    wanted: Wanted
    size: int = 0
    """Ranks, as far as what was read tells; 0: not known."""
    _live: dict[int | None, list[Line]] = field(default_factory=lambda: defaultdict(list))
    _complete: set[tuple[int, int]] = field(default_factory=set)
    """Attempt and rank of which all that is stored was shown."""

    def items(self) -> Iterator[LogItem]:
        """Everything. Raises StoreError."""
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
        """In the order of time, what is missing first."""
        slots = self.slots.get(attempt, ())
        lines: list[Line] = []
        logs = read_logs(run, [(attempt, slot) for slot in slots])
        for slot, log in zip(slots, logs, strict=True):
            if log is None:
                yield Gap(attempt=attempt, text=f"what slot {slot} has stored cannot be read")
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
                text=f"{count} of rank {rank.rank} were not kept: the last {len(rank.lines):,} are",
            )

    def _lost(self, run: RunStore, attempt: int, seen: set[int]) -> Iterator[str]:
        """What nobody has stored of an attempt, and no worker that is still there has printed."""
        there = self.slots.get(attempt, ())
        if not there and not seen:
            yield (
                "nothing is stored of it: its workers were lost before they could store their last "
                "lines, or it never ran"
            )
        # How many there are is known as far as what the others have stored tells.
        for log in filter(None, read_logs(run, [(attempt, slot) for slot in there[:1]])):
            each = len(log.ranks)
            for slot in sorted({*range(log.workers)} - {*there}):
                ranks = set(range(slot * each, slot * each + each))
                if not ranks & seen and self.wanted.has(attempt, ranks):
                    yield (
                        f"nothing is stored of slot {slot} ({named(ranks)}): its worker was lost "
                        "before it could store its last lines"
                    )

    def _deleted(self, attempts: list[int]) -> Iterator[Gap]:
        """Only the newest attempts keep their lines."""
        first, last = attempts[0], attempts[-1]
        which = f"attempt {first}" if first == last else f"attempts {first} to {last}"
        if self.wanted.attempt is None or self.wanted.attempt in attempts:
            yield Gap(
                attempt=last,
                text=f"the lines of {which} were deleted: the newest {KEPT_ATTEMPTS} attempts keep "
                "theirs",
            )


def stored_slots(run: RunStore) -> dict[int, list[int]]:
    """By attempt: which workers have stored something. Raises StoreError."""
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
    """So many seconds after its worker had begun."""
    try:
        moment = datetime.fromisoformat(begun)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        return moment + timedelta(seconds=at)
    except (ValueError, OverflowError):  # no moment, or one of the year 0
        return None


CHECK_EVERY = 0.2
"""Seconds between two looks at files that are followed."""
QUIET_CHECKS = 5
"""Looks without a new line after which a worker of an attempt that is over counts as lost."""
MOST_LINES = 2000
"""Of each rank in each attempt that are shown where nobody follows, as many as a storage has."""
PIECE = 1 << 20
"""Bytes that are read at once."""


@dataclass(slots=True, kw_only=True)
class _File:
    """The output of one worker so far."""

    path: Path
    output: WorkerOutput
    inode: int = 0
    offset: int = 0
    quiet: int = 0
    """Looks without anything new."""
    _partial: bytes = b""

    def lines(self) -> Iterator[Line]:
        """What has come since the last time."""
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
        """The end of the output, where nothing more comes."""
        if self._partial:
            last, self._partial = self._partial, b""
            yield from self._of([last])

    def _of(self, lines: list[bytes]) -> Iterator[Line]:
        texts = (data.decode(errors="replace").rstrip("\r") for data in lines)
        return filter(None, map(self.output.line, texts))


@dataclass(slots=True, kw_only=True)
class LocalLines:
    """Those of all workers of one run."""

    nodes: Path
    """Its folder with one folder per worker."""
    wanted: Wanted
    _files: dict[str, _File] = field(default_factory=dict)

    def new(self) -> Iterator[Line]:
        """What has come since the last time, of all workers, as far as it is wanted."""
        for path in sorted(self.nodes.glob(f"*/{OUTPUT_FILE}")):
            worker = path.parent.name
            if worker not in self._files:
                self._files[worker] = _File(path=path, output=WorkerOutput(worker=worker))
        for file in self._files.values():
            yield from self.wanted.of(file.lines())

    def rest(self) -> Iterator[Line]:
        """Lines that were never ended."""
        for file in self._files.values():
            yield from self.wanted.of(file.rest())

    def lost(self, *, over: bool) -> Iterator[Gap]:
        """Workers that an attempt which is over has lost; `over`: so is the run."""
        newest = max((file.output.attempt or 0 for file in self._files.values()), default=0)
        for file in self._files.values():
            if over or file.quiet >= QUIET_CHECKS:
                yield from file.output.lost(newest if over else newest - 1)

    def history(self) -> Iterator[LogItem]:
        """All that there is now: the wanted lines of each rank, by attempt."""
        tail = MOST_LINES if self.wanted.tail is None else min(self.wanted.tail, MOST_LINES)
        lines = replace(self.wanted, tail=tail).last(chain(self.new(), self.rest()))
        yield from sorted(lines, key=lambda line: line.attempt or 0)

    def follow(
        self, *, over: Callable[[], bool], pause: Callable[[float], None] = time.sleep
    ) -> Iterator[LogItem]:
        """What there is, and what comes, until the run is `over`."""
        # All of it goes through as it is read; an end of it has to be looked for first.
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
