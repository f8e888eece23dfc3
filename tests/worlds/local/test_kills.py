"""A small share of `make kills`: kills at random moments are counted once, and resumed right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.killed_run import Kill, Trial

pytestmark = [pytest.mark.slow, pytest.mark.whole_runs]
INCIDENT = {"attempt": 1, "cause": "AppError", "counted": True, "budget": "failures", "message": ""}


def test_whatever_is_killed_is_counted_once_and_the_result_is_the_same(tmp_path: Path) -> None:
    trial = Trial(tmp_path, torch=False, dice=random.Random(3))
    assert trial.live(3) == []
    assert len(trial.kills) == 3


def test_a_kill_that_was_forgotten_or_charged_wrongly_is_noticed(tmp_path: Path) -> None:
    trial = Trial(tmp_path, torch=False, dice=random.Random(3))
    kill = Kill(targets=("driver",), attempt=1, trains=True, committed=0)
    assert trial.of(kill, None) == [f"{kill} made no incident"]
    assert trial.of(kill, INCIDENT)
    assert trial.of(kill, {**INCIDENT, "cause": "Interrupted"})
    assert not trial.of(kill, {**INCIDENT, "cause": "Interrupted", "counted": False})


def test_ranks_that_begin_apart_or_too_early_are_noticed(tmp_path: Path) -> None:
    trial = Trial(tmp_path, torch=False, dice=random.Random(3))
    trial.kills.append(Kill(targets=("rank",), attempt=1, trains=True, committed=20))
    trial.runs.journal.mkdir()
    for rank, step in ((0, 10), (1, 10)):
        (trial.runs.journal / f"rank-{rank}.txt").write_text(f"1 0 begin\n2 {step} begin\n")
    assert trial.resumes() == ["attempt 2 begins at {10}; 20 was committed"]
