from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.programs import Programs

pytestmark = pytest.mark.slow


def test_get_wait_put_and_cancel_answer_as_promised(tmp_path: Path) -> None:
    program = Programs(tmp_path / "results", "results.py")
    assert program.run() == ["as promised"]


def test_wait_gives_values_before_errors_so_a_second_start_goes_on_like_the_first(
    tmp_path: Path,
) -> None:
    # The other one was cancelled, so its end is known as soon as the value of the first.
    program = Programs(tmp_path / "first", "first_of_two.py", {"TRAINRUN_TASKS_CPUS": "2"})
    assert program.run() == ["[0.0]"]
    assert program.run() == ["[0.0]"]


def test_one_process_may_run_its_program_again(tmp_path: Path) -> None:
    program = Programs(tmp_path / "twice", "twice.py")
    assert program.run() == ["1", "1"]
    assert program.count("Done").total() == 1
