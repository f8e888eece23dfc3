"""The script of a TrainRun under other launchers, for debugging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from torch.distributed.run import get_args_parser

from trainrun.contract.launcher import OURS, OUTPUT, REFUSED

SCRIPT = """
import json, os
from pathlib import Path

from torch.distributed.run import get_args_parser

from trainrun.contract.launcher import OUTPUT, OURS, REFUSED
import trainrun

context = trainrun.get_context()
saved = trainrun.staging_directory()
(saved / "model").write_text("weights")
trainrun.report({"loss": 0.5}, step=1, checkpoint=saved)
seen = [context.rank, context.world_size, context.local_rank, context.node_rank, context.attempt]
seen += [trainrun.get_checkpoint(), bool(trainrun.should_save())]
seen += [(saved / "model").exists()]
Path(os.environ["OUT"], f"rank-{context.rank}").write_text(json.dumps(seen))
"""


def launch(tmp_path: Path, *launcher: str) -> list[list[object]]:
    (tmp_path / "train.py").write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRAINRUN_")}
    subprocess.run(
        [sys.executable, *launcher, str(tmp_path / "train.py")],
        env={**env, "OUT": str(tmp_path)},
        check=True,
        timeout=120,
    )
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("rank-*"))]


def test_under_plain_python_the_script_is_a_run_of_one(tmp_path: Path) -> None:
    assert launch(tmp_path) == [[0, 1, 0, 0, 1, None, False, False]]


def test_under_torchrun_it_is_a_run_of_all_its_processes(tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert launch(tmp_path, *torchrun) == [
        [0, 2, 0, 0, 1, None, False, False],
        [1, 2, 1, 0, 1, None, False, False],
    ]


def test_every_option_of_the_torchrun_that_is_installed_is_known() -> None:
    """What is unknown is refused, so that a script which ran under torchrun is told of it."""
    installed = {
        action.dest
        for action in get_args_parser()._actions
        if action.dest not in ("help", "training_script", "training_script_args")
    }
    known = {"nnodes", "nproc_per_node", "module", "no_python", *OURS, *OUTPUT, *REFUSED}
    assert installed <= known
