"""Launchers behind a shell or a wrapper: which would make several trainings instead of one."""

from __future__ import annotations

import shlex

import pytest

from trainrun.contract.hidden_launcher import hidden_launcher


def found(line: str, *variables: str) -> str:
    hidden = hidden_launcher(shlex.split(line), variables)
    return f"{hidden.launcher} behind {hidden.behind}" if hidden is not None else ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bash -c 'torchrun --nproc-per-node=2 train.py'", "torchrun behind bash"),
        ("/bin/sh -ec 'exec torchrun --standalone --nnodes 2 train.py'", "torchrun behind sh"),
        ("bash -euo pipefail -c 'torchrun t.py 2>&1 | tee log'", "torchrun behind bash"),
        (
            "bash -lc 'cd /app && export A=1 && A=2 nohup torchrun --nnodes=1:1 t.py &\nwait'",
            "torchrun behind bash",
        ),
        (
            "bash -c '# the training\nset -e\ntorchrun --nproc-per-node=$GPUS \\\n  t.py'",
            "torchrun behind bash",
        ),
        ("bash -c 'pip install x || true; torchrun t.py'", "torchrun behind bash"),
        ("env A=1 torchrun --nproc-per-node=2 t.py", "torchrun behind env"),
        ("uv run --with torch torchrun t.py", "torchrun behind uv"),
        ("conda run -n env bash -c 'torchrun t.py'", "torchrun behind conda"),
        ("time numactl -N 0 torchrun t.py", "torchrun behind time"),
        (
            "sh -c 'python3 -m torch.distributed.run t.py'",
            "torch.distributed.run behind sh",
        ),
        ("bash -c 'accelerate launch --multi_gpu t.py'", "accelerate launch behind bash"),
        ("bash -c 'deepspeed --num_gpus 2 t.py'", "deepspeed behind bash"),
        ("bash -c 'mpirun -np 4 python t.py'", "mpirun behind bash"),
        ("bash -c 'srun --ntasks=4 python t.py'", "srun behind bash"),
        ("fabric run --devices 2 t.py", "fabric run behind "),
        ("bash -c 'lightning run model --devices=2 t.py'", "fabric run behind bash"),
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
        "bash -c 'accelerate launch --multi_gpu --num_machines 2 t.py'",
        "bash -c 'accelerate launch t.py'",
        "bash -c 'deepspeed --no_ssh --node_rank 0 t.py'",
        "bash -c 'mpirun -np 1 python t.py'",
        "bash -c 'mpirun python t.py'",
        "fabric run --num-nodes 2 t.py",
        # which only a shell can tell
        "bash -c 'if true; then torchrun t.py; fi'",
        "bash -c '[ $RANK = 0 ] && torchrun t.py'",
        "bash -c 'test -f x && torchrun t.py'",
        "bash -c 'python t.py || torchrun t.py'",
        "bash -c 'export PET_NNODES=2; torchrun t.py'",
        "bash -c 'torchrun \"t.py'",
        "bash -c 'torchrun --what t.py'",
        "bash -c 'torchrun --nproc-per-node $(nproc) t.py'",
    ],
)
def test_what_may_be_one_training_is_left_to_what_agents_see(line: str) -> None:
    assert found(line) == ""


def test_torchrun_may_read_its_options_from_variables() -> None:
    assert found("bash -c 'torchrun t.py'", "PET_NNODES", "A") == ""
