"""The driver is killed at any moment, and the same command is run again."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.tasks.programs import Programs
from trainrun.tasks.records import Dispatched, Done, Failed

pytestmark = pytest.mark.slow

TASKS = 40


@pytest.fixture
def budgets(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path / "budgets", "budgets.py")
    yield made
    made.close()


def processes_of(folder: Path) -> list[int]:
    """Those that were started by a program with this folder."""
    mark = f"FOLDER={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.case("tasks", "`python prepare.py` is killed")
@pytest.mark.case(
    "tasks", "The driver of tasks dies (rank 0, its node, the command)", counted="its cause"
)
def test_no_committed_task_runs_again_and_budgets_go_on(budgets: Programs) -> None:
    dice = random.Random(7)
    for _ in range(4):
        killed = budgets.start(str(TASKS))
        log = budgets.folder / "tasks/log"
        eventually(lambda log=log: log.is_dir() and any(log.iterdir()), timeout=120)
        with contextlib.suppress(subprocess.TimeoutExpired):
            killed.wait(dice.uniform(0.1, 0.9))
        killed.kill()
        killed.wait()
        eventually(lambda: not processes_of(budgets.folder), what="tasks outlive their driver")
    said = budgets.run(str(TASKS))
    assert said[0] == str(sum(number * number for number in range(TASKS)))
    assert len(said) == 4
    records = budgets.records()
    committed: set[str] = set()
    for record in records:
        if isinstance(record, Done):
            assert record.key not in committed
            committed.add(record.key)
        assert not (isinstance(record, Dispatched) and record.key in committed)
    final = [it for it in records if isinstance(it, Failed) and it.final]
    counted = [it.key for it in records if isinstance(it, Failed) and it.counted]
    assert len(final) == 3
    assert all(counted.count(it.key) == 3 for it in final)
    # Each try stands in the log before it begins.
    tries = sum(isinstance(it, Dispatched) for it in records)
    assert len(budgets.ran) <= tries
