"""Lines for a reader who may be slower than the processes that print them, or who has gone."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

import pytest

from tests.support.eventually import eventually
from trainrun_operator.runtime.line_writers import (
    BACKLOG,
    LAST,
    MAX_SPARED,
    NonBlockingWriter,
    is_behind,
    left_out,
    lines_of_stdout,
    non_blocking,
    problem_of_output,
    source_of,
)

SOON = 60.0


class Reader:
    """The other end of a pipe, which reads when it is told to (Ctrl-S, Ctrl-Q)."""

    def __init__(self) -> None:
        self._end, writing = os.pipe()
        self.stream: TextIO = os.fdopen(writing, "w")
        self._text = b""
        self._thread = threading.Thread(target=self._read)

    def goes_on(self) -> None:
        self._thread.start()

    def goes_away(self) -> None:
        os.close(self._end)

    def shown(self, lines: NonBlockingWriter) -> list[str]:
        """All that was written, until its end."""
        lines.end(SOON)
        self.stream.close()
        self._thread.join()
        return self._text.decode().splitlines()

    def _read(self) -> None:
        while data := os.read(self._end, 1 << 20):
            self._text += data
        os.close(self._end)


def reading(told: Callable[[int], str] = left_out) -> tuple[Reader, NonBlockingWriter]:
    reader = Reader()
    return reader, NonBlockingWriter(reader.stream, left_out=told)


def test_a_reader_who_keeps_up_gets_every_line_in_order() -> None:
    reader, lines = reading()
    reader.goes_on()
    for number in range(1000):
        lines.line(f"line {number}", source="rank 0")
    assert reader.shown(lines) == [f"line {number}" for number in range(1000)]


@pytest.mark.case("script", "Processes print faster than their reader reads")
def test_who_reads_slowly_gets_the_last_lines_of_each_rank_and_is_told_how_many_are_missing() -> (
    None
):
    reader, lines = reading()
    size = 2000
    lines.line("an event")
    for number in range(size):
        lines.line(f"rank 0 {number} {'x' * 500}", source="rank 0")
    lines.line("another event")
    for number in range(4 * BACKLOG // 500):  # of another one, and long after
        lines.line(f"rank 1 {number} {'x' * 500}", source="rank 1")
    reader.goes_on()
    shown = reader.shown(lines)
    of_rank = {rank: [row for row in shown if row.startswith(f"rank {rank}")] for rank in (0, 1)}
    assert {"an event", "another event"} <= set(shown)
    assert [int(row.split()[2]) for row in of_rank[0][-LAST:]] == [*range(size - LAST, size)]
    assert int(of_rank[1][-1].split()[2]) == 4 * BACKLOG // 500 - 1
    gaps = [row.partition(" lines")[0] for row in shown if row.startswith("-- ")]
    missing = sum(int(re.sub(r"\D", "", gap)) for gap in gaps)
    assert missing > 0
    assert missing == size + 4 * BACKLOG // 500 - len(of_rank[0]) - len(of_rank[1])


@pytest.mark.slow
def test_a_reader_who_never_reads_takes_a_bounded_amount_of_memory() -> None:
    reader, lines = reading(str)
    for number in range(5 * MAX_SPARED):  # each a rank of its own, so one of its last lines
        lines.line("x" * 500, source=str(number))
    reader.goes_on()
    assert len(reader.shown(lines)) < 2 * MAX_SPARED + BACKLOG // 500 + 200


@pytest.mark.case("script", "The reader of `trainrun run` does not read at all")
def test_a_reader_who_never_reads_does_not_stop_the_end_for_ever() -> None:
    reader, lines = reading()
    lines.line("x" * (1 << 20))
    begun = time.monotonic()
    lines.end(0.2)
    assert time.monotonic() - begun < SOON
    assert lines.behind
    reader.goes_away()
    lines.end(SOON)
    reader.stream.close()


def test_a_reader_who_has_gone_does_no_harm_and_is_told_of_once() -> None:
    told: list[str] = []
    reader = Reader()
    reader.goes_away()
    lines = NonBlockingWriter(reader.stream, left_out=left_out, on_problem=told.append)
    for number in range(3):
        lines.line(f"nobody reads this: {number}")
        eventually(lambda: not lines.behind, timeout=SOON, what="it was tried")
    lines.end(SOON)
    assert (told, lines.problem) == (["Broken pipe"], "Broken pipe")
    reader.stream.close()


def test_a_reader_who_shares_its_terminal_with_one_that_does_not_block_gets_every_line() -> None:
    reader, lines = reading()
    os.set_blocking(reader.stream.fileno(), False)
    lines.line("x" * (1 << 20))
    lines.line("the end")
    reader.goes_on()
    assert [len(row) for row in reader.shown(lines)] == [1 << 20, 7]


def test_whatever_is_printed_does_not_wait_for_its_reader() -> None:
    before, reader = (sys.stdout, sys.stderr), Reader()
    sys.stdout = reader.stream
    try:
        with non_blocking():
            assert not is_behind()
            print("x" * (1 << 20))
            lines_of_stdout().line("a line")
            assert is_behind()
            assert problem_of_output() == ""
            reader.goes_away()
            eventually(problem_of_output, timeout=SOON, what="the problem")
            assert problem_of_output() == (
                "stdout cannot be written: Broken pipe. The training continues, and each worker's "
                "output.log has all its lines"
            )
        assert sys.stdout is reader.stream
    finally:
        reader.stream.close()
        sys.stdout, sys.stderr = before


def test_ranks_of_a_worker_are_different_sources() -> None:
    assert source_of("w-0", "[rank 0] a] b") == source_of("w-0", "[rank 0] c")
    assert len({source_of("w-0", line) for line in ("[rank 0] a", "[rank 1] a", "a")}) == 3
