"""SIGKILL at random moments of an upload: never a bad resume, never a lost commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, contents, materialize, read_directory
from tests.support.uploader import SIZE, WORKERS
from trainrun.checkpoint.retention import retain

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId

ROOT = Path(__file__).parents[2]


def upload_and_kill(bench: Bench, *, attempt: int, step: int, after: float) -> int:
    """Kill an uploader `after` seconds from its first commit; return its last acknowledged step."""
    command = [sys.executable, "-m", "tests.support.uploader", bench.run.store.uri]
    command += [str(bench.scratch / "uploader"), str(attempt), str(step)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        time.sleep(after)  # the random moment itself
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    return int(said.split()[-1])


def expected(checkpoint: CheckpointId) -> dict[str, bytes]:
    merged: dict[str, bytes] = {}
    for worker in range(WORKERS):
        merged |= contents(checkpoint.attempt, checkpoint.step, worker, SIZE)
    return merged


def kill_often(bench: Bench, *, times: int, seed: int, longest: float) -> None:
    chance = random.Random(seed)
    assert bench.resolve(1).outcome == "Resolved"
    step = 0
    for attempt in range(1, times + 1):
        acknowledged = upload_and_kill(
            bench, attempt=attempt, step=step, after=chance.uniform(0, longest)
        )
        answer = bench.resolve(attempt + 1)
        assert answer.outcome == "Resolved", f"seed {seed}, kill {attempt}: {answer.message}"
        assert answer.set_aside == ()
        resume = answer.resume
        assert resume is not None
        assert resume.attempt == attempt
        assert resume.step in (acknowledged, acknowledged + 1), f"seed {seed}, kill {attempt}"
        directory = materialize(bench.run, resume, cache_dir=bench.scratch / "cache")
        assert read_directory(directory) == expected(resume)
        step = resume.step + 1


@pytest.mark.case("storage", "An agent is killed in the middle of an upload")
@pytest.mark.slow
def test_50_kills_in_a_folder(bench: Bench) -> None:
    kill_often(bench, times=50, seed=random.randrange(10**6), longest=0.06)
    retain(bench.run, attempt=51, keep=2)
    assert not list(bench.scratch.parent.glob("store/digits/checkpoints/**/.trainrun-tmp-*"))


@pytest.mark.slow
def test_15_kills_on_a_real_s3_server(s3_bench: Bench) -> None:
    kill_often(s3_bench, times=15, seed=random.randrange(10**6), longest=0.3)
