"""The last lines of a process, and the exception that they tell of."""

from __future__ import annotations

import pytest

from trainrun.agent.processes.output import LONGEST_KEPT, MOST_BYTES, MOST_LINES, Tail


def find_exception(lines: list[str]) -> str:
    tail = Tail()
    for line in lines:
        tail.add(0.0, line)
    return tail.exception


def test_the_last_exception_of_several_tracebacks_is_found() -> None:
    lines = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    raise my.pkg.Odd("b")
my.pkg.Odd: b
some noise: after it""".splitlines()
    assert find_exception(lines) == "my.pkg.Odd: b"


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/python3: can't open file '/x/train.py': [Errno 2] No such file or directory",
        "/usr/bin/python3.11: No module named train",
        "python: can't find '__main__' module in '/x'",
    ],
)
def test_what_python_says_when_it_has_no_program_is_a_failed_start(line: str) -> None:
    assert find_exception(["noise", line]) == f"StartFailed: {line}"


def test_ordinary_output_tells_of_no_exception() -> None:
    assert find_exception(["epoch 1: loss 0.3", "ValueError: only printed"]) == ""


def test_the_tail_is_bounded_in_lines_and_width() -> None:
    tail = Tail()
    for number in range(MOST_LINES + 5):
        tail.add(0.0, f"{number} " + "x" * 1000)
    assert len(tail.last_lines) == 20
    assert tail.last_lines[-1].startswith(f"{MOST_LINES + 4} ")
    assert {len(line) for line in tail.last_lines} == {400}


def a_tail(lines: int, line: str = "x") -> Tail:
    tail = Tail()
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
    assert {len(text) for _, text in kept} == {LONGEST_KEPT}
    assert kept[-1][1].endswith("yyy ...")
    assert MOST_BYTES - 2 * LONGEST_KEPT < sum(len(text) for _, text in kept) <= MOST_BYTES
