"""The last lines of a process, and the exception that they tell of."""

from __future__ import annotations

import pytest

from trainrun.agent.processes.tail import KEPT_LINES, Tail


def find_exception(lines: list[str]) -> str:
    tail = Tail()
    for line in lines:
        tail.add(line)
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
    for number in range(KEPT_LINES + 5):
        tail.add(f"{number} " + "x" * 1000)
    assert len(tail.last_lines) == 20
    assert tail.last_lines[-1].startswith(f"{KEPT_LINES + 4} ")
    assert {len(line) for line in tail.last_lines} == {400}
