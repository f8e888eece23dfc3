from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.api.loading import load_trainrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "torchrun-unchanged"
LEAN = Path(__file__).parents[1] / "support" / "lean_torch"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[LocalRuns]:
    path = EXAMPLE / "trainrun.yaml"
    spec = load_trainrun(path.read_text(), source=str(path)).spec
    words, progress = spec.workers.template.spec.training, spec.progress
    script = words.command.index("train.py")
    made = LocalRuns(
        folder=tmp_path,
        script=str(EXAMPLE / "train.py"),
        launcher=words.command[:script],
        env={"PYTHONPATH": str(LEAN)},
        arguments=("--snapshot", str(tmp_path / "snapshot.pt"), "--pace=0.3"),
        spec={
            "failurePolicy": {"maxFailures": 1},
            "progress": progress.model_dump(mode="json", by_alias=True),
        },
    )
    yield made
    made.close()


def epoch_in(snapshot: Path) -> int:
    return int(torch.load(snapshot, weights_only=True)["epoch"]) if snapshot.exists() else -1


def process_of(runs: LocalRuns, rank: int) -> int:
    def is_it(pid: int) -> bool:
        return f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")

    return next(pid for pid in runs.our_processes() if is_it(pid))


def test_it_goes_on_from_its_own_snapshot_after_the_loss_of_a_rank(runs: LocalRuns) -> None:
    driver = runs.start(json_lines=False)
    eventually(lambda: epoch_in(runs.folder / "snapshot.pt") >= 2, timeout=240)
    os.kill(process_of(runs, rank=3), signal.SIGKILL)
    ended = driver.end()
    assert ended.code == 0, ended.out[-3000:]
    first, second = (
        int(line.rpartition(" ")[2]) for line in ended.out.splitlines() if "begins at" in line
    )
    assert (first, second > 2) == (0, True)
    assert "attempt 1 ended: AppError: rank 3 was killed by SIGKILL" in ended.out
    assert epoch_in(runs.folder / "snapshot.pt") == 19
    assert "steps        none reported, 19 from output  loss=" in ended.out
    assert f'read from output, form pattern 1, line "epoch {second}: loss ' in ended.out
    assert "no step was ever reported: unless the script resumes from its own folder" in ended.out
