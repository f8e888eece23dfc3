"""The last lines of a process are kept within bounds."""

from __future__ import annotations

from trainrun.agent.processes.log_tail import LONGEST, MOST_BYTES, MOST_LINES, LogTail


def a_tail(lines: int, line: str = "x") -> LogTail:
    tail = LogTail()
    for number in range(lines):
        tail.add(float(number), f"{number} {line}")
    return tail


def test_the_last_lines_are_kept_and_all_are_counted() -> None:
    tail = a_tail(MOST_LINES + 5)
    kept = tail.last(MOST_LINES)
    assert len(kept) == MOST_LINES
    assert kept[0] == (5.0, "5 x")
    assert tail.last(2) == kept[-2:]
    assert tail.last(0) == []
    assert tail.seen == MOST_LINES + 5


def test_long_lines_are_cut_and_fewer_of_them_are_kept() -> None:
    kept = a_tail(MOST_LINES, "y" * 100_000).last(MOST_LINES)
    assert {len(text) for _, text in kept} == {LONGEST}
    assert kept[-1][1].endswith("yyy ...")
    assert MOST_BYTES - 2 * LONGEST < sum(len(text) for _, text in kept) <= MOST_BYTES
