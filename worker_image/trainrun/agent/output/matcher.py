"""The process that reads steps from output: a hostile pattern or a flood of lines stops only this.

Layer: agent; standard library only. The agent sends pieces of output over a socket, as they come,
and gets one message in JSON for each piece that says something. A line for which a user's pattern
takes more than a second of CPU is skipped; the third time that pattern is given up. Whatever takes
ten seconds of CPU for one line ends the process, and the agent starts another.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainrun.agent.output.forms import OutputReader

HEAD = struct.Struct("!Ii?")
"""Before each piece: its bytes, its rank, and whether output before it was dropped."""
LONGEST_LINE = 4096
"""Bytes kept of a line."""
LONGEST_MATCH, LONGEST_WORK = 1.0, 10.0
"""Seconds of CPU for one pattern, and for all that one line takes, in this process."""
TRIES = 3
"""Lines that a pattern may take too long for."""
NICENESS = 10
"""The training comes first."""
PAUSE = 0.2
"""Seconds without output after which the state of a bar counts, although its line goes on."""


class TooSlow(Exception):
    """A pattern took too long."""


@dataclass(slots=True, kw_only=True)
class LimitedReader(OutputReader):
    """A reader whose patterns cannot stop it."""

    limit: float = LONGEST_MATCH
    """Seconds of CPU for a pattern."""
    slow: Counter[int] = field(default_factory=Counter)
    """By number of the pattern, the lines that it took too long for."""

    def search(self, number: int, text: str) -> re.Match[str] | None:
        """Where the pattern occurs; None also if that takes too long."""
        if self.slow[number] >= TRIES:
            return None
        try:  # `re` looks for signals while it matches
            signal.setitimer(signal.ITIMER_VIRTUAL, self.limit)
            found = self.patterns[number].search(text)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        except TooSlow:
            self.slow[number] += 1
            return None
        return found


@dataclass(slots=True, kw_only=True)
class LineSplitter:
    """Splits the output of one rank into lines and states of bars."""

    _partial: bytes = b""
    _skips: bool = False
    """Until its end, the rest of a line that was cut, or whose beginning was dropped."""

    def split(self, piece: bytes, *, dropped: bool) -> Iterator[str]:
        """The lines that end in this piece."""
        if dropped:
            self._partial, self._skips = b"", True
        *lines, self._partial = re.split(rb"[\r\n]+", self._partial + piece)
        for line in lines:
            if line and not self._skips:
                yield line[:LONGEST_LINE].decode(errors="replace")
            self._skips = False
        if len(self._partial) > LONGEST_LINE:
            if not self._skips:
                yield self._partial[:LONGEST_LINE].decode(errors="replace")
            self._partial, self._skips = b"", True

    @property
    def bar(self) -> str:
        """The state of a bar that is not replaced yet; empty: there is none."""
        is_bar = b"%|" in self._partial and not self._skips
        return self._partial.decode(errors="replace") if is_bar else ""


@dataclass(slots=True, kw_only=True)
class RankOutput:
    """The output of one rank."""

    rank: int
    reader: LimitedReader
    lines: LineSplitter = field(default_factory=LineSplitter)
    _sent: tuple[object, ...] = ()

    def take(self, piece: bytes, *, dropped: bool) -> None:
        """Read the lines of a piece."""
        for line in self.lines.split(piece, dropped=dropped):
            self._read(line)

    def pause(self) -> None:
        """Read the state of a bar that is not replaced yet."""
        if self.lines.bar:
            self._read(self.lines.bar)

    def news(self) -> bytes:
        """A message; empty if nothing has changed."""
        records, found = self.reader.taken(), self.reader.training
        given_up = [number for number, lines in self.reader.slow.items() if lines >= TRIES]
        now = (self.reader.moves, found and (found.line, found.step, found.form), given_up)
        if not records and now == self._sent:
            return b""
        self._sent = now
        message: dict[str, object] = {"rank": self.rank, "moves": self.reader.moves}
        if found is not None:
            names = ("form", "line", "metrics", "first", "step")
            series = {name: getattr(found, name) for name in names}
            message["series"] = {**series, "total": found.last.total}
        message |= {"records": records, "givenUp": given_up}
        return json.dumps(message).encode() + b"\n"

    def _read(self, line: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, LONGEST_WORK)
        self.reader.read(line, time.monotonic())


def main() -> None:
    """Serve the agent on the socket whose descriptor is the first argument, until it closes it.

    The second one is a JSON object: whether the known forms are tried, the limit of a pattern, and
    by rank its patterns by number.
    """
    os.nice(NICENESS)
    signal.signal(signal.SIGVTALRM, _too_slow)
    channel, rules = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    ranks = {}
    for rank, patterns in rules["patterns"].items():
        compiled = {int(number): re.compile(pattern) for number, pattern in patterns.items()}
        reader = LimitedReader(patterns=compiled, forms=rules["forms"], limit=rules["limit"])
        ranks[int(rank)] = RankOutput(rank=int(rank), reader=reader)
    buffer = b""
    while True:
        if select.select([channel], [], [], PAUSE)[0]:
            data = channel.recv(1 << 18)
            buffer = _taken(ranks, buffer + data) if data else buffer
        else:
            data = b"-"
            for output in ranks.values():
                output.pause()
        if not data:
            for output in ranks.values():
                output.take(b"\n", dropped=False)
        channel.sendall(b"".join(output.news() for output in ranks.values()))
        if not data:
            return


def _taken(ranks: dict[int, RankOutput], buffer: bytes) -> bytes:
    """Read the whole pieces in the buffer; returns the rest."""
    while len(buffer) >= HEAD.size:
        size, rank, dropped = HEAD.unpack_from(buffer)
        if len(buffer) < HEAD.size + size:
            break
        ranks[rank].take(buffer[HEAD.size : HEAD.size + size], dropped=dropped)
        buffer = buffer[HEAD.size + size :]
    return buffer


def _too_slow(_signal: int, _frame: object) -> None:
    raise TooSlow


if __name__ == "__main__":
    main()
