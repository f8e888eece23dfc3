"""Launchers behind a shell or a wrapper: which would make several trainings instead of one."""

from __future__ import annotations

import shlex

import pytest

from trainrun.contract.hidden_launcher import hidden_launcher


def found(line: str) -> str:
    return hidden_launcher(shlex.split(line))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bash -c 'torchrun --nproc-per-node=2 train.py'", "torchrun"),
        ("/bin/sh -ec 'exec torchrun --standalone --nnodes 2 train.py'", "torchrun"),
        ("bash -euo pipefail -c 'torchrun t.py 2>&1 | tee log'", "torchrun"),
        (
            "bash -lc 'cd /app && export A=1 && A=2 nohup torchrun --nnodes=1:1 t.py &\nwait'",
            "torchrun",
        ),
        (
            "bash -c '# the training\nset -e\ntorchrun --nproc-per-node=$GPUS \\\n  t.py'",
            "torchrun",
        ),
        ("env A=1 torchrun --nproc-per-node=2 t.py", "torchrun"),
        ("uv run --with torch torchrun t.py", "torchrun"),
        ("conda run -n env bash -c 'torchrun t.py'", "torchrun"),
        ("time numactl -N 0 torchrun t.py", "torchrun"),
        (
            "sh -c 'python3 -m torch.distributed.run t.py'",
            "torch.distributed.run",
        ),
        ("fabric run --devices 2 t.py", "fabric run"),
        ("bash -c 'lightning run model --devices=2 t.py'", "fabric run"),
    ],
)
def test_a_launcher_that_each_process_would_start_for_itself_is_found(line: str, told: str) -> None:
    assert found(line) == told


@pytest.mark.parametrize(
    "line",
    [
        "",
        "bash",
        "bash train.sh",
        "bash -c 'python t.py --launcher torchrun'",
        "bash -c 'echo torchrun t.py'",
        "bash -c 'python -c \"print(1)\"'",
        "env A=1 python t.py torchrun",
        "uv run t.py torchrun x.py",
        # groups that may span the workers
        "bash -c 'torchrun --nnodes 2 --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT t.py'",
        "bash -c 'torchrun --nnodes=$NODES --rdzv-endpoint head:1 t.py'",
        "bash -c 'torchrun --nnodes 1:4 --rdzv-endpoint head:1 t.py'",
        "fabric run --num-nodes 2 t.py",
        # which only a shell can tell
        "bash -c 'if true; then torchrun t.py; fi'",
        "bash -c '[ $RANK = 0 ] && torchrun t.py'",
        "bash -c 'test -f x && torchrun t.py'",
        "bash -c 'python t.py || torchrun t.py'",
        "bash -c 'mpirun -np 2 python t.py'",
        "env A=1",
        "bash -c 'export PET_NNODES=2; torchrun t.py'",
        "bash -c 'torchrun \"t.py'",
        "bash -c 'torchrun --what t.py'",
        "bash -c 'torchrun --nproc-per-node $(nproc) t.py'",
    ],
)
def test_what_may_be_one_training_is_left_to_what_agents_see(line: str) -> None:
    assert found(line) == ""
