"""The output of the workers of a run on this machine: files that are read while they grow.

Layer: cli. Each is read once, from its beginning, so no line is shown twice or left out, whoever
restarts. A worker that was made anew under its old name has a new file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from trainrun_operator.cli.log_lines.line import Gap, Line, Shown, Wanted
from trainrun_operator.cli.log_lines.output import WorkerOutput
from trainrun_operator.worlds.local.worker import OUTPUT_FILE

LOOK = 0.2
"""Seconds between two looks at files that are followed."""
QUIET_LOOKS = 5
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
                self._is(file.fileno())
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

    def _is(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_ino != self.inode or status.st_size < self.offset:
            self.inode, self.offset, self._partial = status.st_ino, 0, b""
            self.output = WorkerOutput(worker=self.output.worker)

    def _of(self, lines: list[bytes]) -> Iterator[Line]:
        for data in lines:
            line = self.output.line(data.decode(errors="replace").rstrip("\r"))
            if line is not None:
                yield line


@dataclass(slots=True, kw_only=True)
class LocalLines:
    """Those of all workers of one run."""

    nodes: Path
    """Its folder with one folder per worker."""
    wanted: Wanted
    _files: dict[str, _File] = field(default_factory=dict)

    def new(self) -> Iterator[Line]:
        """What has come since the last time, of all workers."""
        for path in sorted(self.nodes.glob(f"*/{OUTPUT_FILE}")):
            worker = path.parent.name
            if worker not in self._files:
                self._files[worker] = _File(path=path, output=WorkerOutput(worker=worker))
        for file in self._files.values():
            yield from file.lines()

    def rest(self) -> Iterator[Line]:
        """Lines that were never ended."""
        for file in self._files.values():
            yield from file.rest()

    def lost(self, *, over: bool) -> Iterator[Gap]:
        """Workers that an attempt which is over has lost; `over`: so is the run."""
        newest = max((file.output.attempt or 0 for file in self._files.values()), default=0)
        for file in self._files.values():
            if over or file.quiet >= QUIET_LOOKS:
                yield from file.output.lost(newest if over else newest - 1)

    def history(self) -> Iterator[Shown]:
        """All that there is now: the wanted lines of each rank, by attempt."""
        lines = self.wanted.within(MOST_LINES).last(chain(self.new(), self.rest()))
        yield from sorted(lines, key=lambda line: line.attempt or 0)

    def follow(
        self, *, over: Callable[[], bool], pause: Callable[[float], None] = time.sleep
    ) -> Iterator[Shown]:
        """What there is, and what comes, until the run is `over`."""
        # All of it goes through as it is read; an end of it has to be looked for first.
        first = self.new() if self.wanted.tail is None else self.wanted.last(self.new())
        yield from (line for line in first if self.wanted.has(line.attempt, [line.rank]))
        while True:
            ends = over()
            came = False
            for line in self.new():
                came = True
                if self.wanted.has(line.attempt, [line.rank]):
                    yield line
            if ends and not came:
                break
            yield from self.lost(over=False)
            pause(LOOK)
        yield from (line for line in self.rest() if self.wanted.has(line.attempt, [line.rank]))
        yield from self.lost(over=True)
