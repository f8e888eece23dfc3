"""Lines for a reader who may be slower than the processes that print them."""

from __future__ import annotations

import io
import os
import re
import threading
from typing import TextIO

from trainrun_operator.cli.written_lines import (
    BACKLOG,
    LAST,
    MOST_SPARED,
    UnhurriedLines,
    left_out,
    source_of,
)


class Stopped(io.StringIO):
    """A terminal that shows nothing until it goes on (Ctrl-S, Ctrl-Q)."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        self.goes_on.wait(20)
        return super().write(text)


def test_a_reader_who_keeps_up_gets_every_line_in_order() -> None:
    out = io.StringIO()
    with UnhurriedLines(out, left_out=left_out) as lines:
        for number in range(1000):
            lines.line(f"line {number}", source="rank 0")
    assert out.getvalue().splitlines() == [f"line {number}" for number in range(1000)]


def test_who_reads_slowly_gets_the_last_lines_of_each_rank_and_is_told_how_many_are_missing() -> (
    None
):
    out, size = Stopped(), 2000
    with UnhurriedLines(out, left_out=left_out) as lines:
        lines.line("an event")
        for number in range(size):
            lines.line(f"rank 0 {number} {'x' * 500}", source="rank 0")
        lines.line("another event")
        for number in range(4 * BACKLOG // 500):  # of another one, and long after
            lines.line(f"rank 1 {number} {'x' * 500}", source="rank 1")
        out.goes_on.set()
    shown = out.getvalue().splitlines()
    of_rank = {rank: [row for row in shown if row.startswith(f"rank {rank}")] for rank in (0, 1)}
    assert {"an event", "another event"} <= set(shown)
    assert [int(row.split()[2]) for row in of_rank[0][-LAST:]] == [*range(size - LAST, size)]
    assert int(of_rank[1][-1].split()[2]) == 4 * BACKLOG // 500 - 1
    gaps = [row.partition(" lines")[0] for row in shown if row.startswith("-- ")]
    missing = sum(int(re.sub(r"\D", "", gap)) for gap in gaps)
    assert missing > 0
    assert missing == size + 4 * BACKLOG // 500 - len(of_rank[0]) - len(of_rank[1])


def test_a_reader_who_never_reads_takes_a_bounded_amount_of_memory() -> None:
    out = Stopped()
    with UnhurriedLines(out, left_out=str) as lines:
        for number in range(5 * MOST_SPARED):  # each a rank of its own, so one of its last lines
            lines.line("x" * 500, source=str(number))
        out.goes_on.set()
    assert len(out.getvalue().splitlines()) < 2 * MOST_SPARED + BACKLOG // 500 + 200


def test_a_reader_who_has_gone_does_no_harm() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream: TextIO = os.fdopen(writing, "w")
    with UnhurriedLines(stream, left_out=left_out) as lines:
        lines.line("nobody reads this")
    try:
        stream.close()
    except BrokenPipeError:
        pass


def test_ranks_of_a_worker_are_different_sources() -> None:
    assert source_of("w-0", "[rank 0] a] b") == source_of("w-0", "[rank 0] c")
    assert len({source_of("w-0", line) for line in ("[rank 0] a", "[rank 1] a", "a")}) == 3
