"""Command lines that begin with a launcher: what they start, and which are refused."""

from __future__ import annotations

import re
import shlex

import pytest

from trainrun.contract.launcher import LauncherRefused, hidden_launcher, torch_launch


def read(line: str) -> tuple[object, ...]:
    launch = torch_launch(line.split())
    assert launch is not None
    return launch.processes, launch.nodes, launch.kind, launch.script, launch.arguments


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("torchrun train.py", (None, None, "script", "train.py", ())),
        (
            "torchrun --standalone --nproc-per-node=gpu train.py --nnodes 9 -m x",
            ("gpu", None, "script", "train.py", ("--nnodes", "9", "-m", "x")),
        ),
        (
            "/opt/venv/bin/torchrun --nnodes 1:4 --nproc_per_node 2 -m pkg.train --lr 1",
            ("2", (1, 4), "module", "pkg.train", ("--lr", "1")),
        ),
        ("torchrun --no-python ./prog x", (None, None, "program", "./prog", ("x",))),
        ("torchrun --nproc-per 8 t.py", ("8", None, "script", "t.py", ())),
        ("torchrun --nproc-per-node auto -- t.py", ("auto", None, "script", "t.py", ())),
        (
            "python3.11 -u -X dev -m torch.distributed.run --nnodes=2 t.py",
            (None, (2, 2), "script", "t.py", ()),
        ),
        ("python -m torch.distributed.launch t.py a", (None, None, "script", "t.py", ("a",))),
    ],
)
def test_what_torchrun_would_start_is_read_as_torchrun_reads_it(
    line: str, meant: tuple[object, ...]
) -> None:
    assert read(line) == meant


@pytest.mark.parametrize(
    "line",
    [
        "python train.py",
        "python -m torch.utils.collect_env",
        "python -c torchrun",
        "bash -c torchrun\ttrain.py",
        "./torchrun.sh train.py",
        "train --launcher torchrun",
        "accelerate config",
        "",
    ],
)
def test_other_commands_begin_with_no_launcher(line: str) -> None:
    assert torch_launch(line.split(" ") if line else []) is None


def test_only_the_old_launcher_hands_over_the_local_rank_as_an_argument() -> None:
    def hands_over(line: str) -> bool:
        launch = torch_launch(line.split())
        return launch is not None and launch.local_rank_argument

    assert hands_over("python -m torch.distributed.launch t.py")
    assert not hands_over("python -m torch.distributed.launch --use_env t.py")
    assert not hands_over("python -m torch.distributed.run t.py")
    assert not hands_over("torchrun t.py")


def test_options_without_effect_are_named_in_one_line() -> None:
    words = "--rdzv_backend c10d --rdzv-endpoint h:1 --max-restarts 3 -r 3 t.py"
    launch = torch_launch(["torchrun", *words.split()])
    assert launch is not None
    assert launch.note == (
        "torchrun: --rdzv-backend, --rdzv-endpoint, --max-restarts, --redirects: ignored, since "
        "TrainRun does rendezvous, restarts and output"
    )
    silent = torch_launch(["torchrun", "--nnodes", "2", "t.py"])
    assert silent is not None
    assert silent.note == ""


@pytest.mark.case(
    "nodes", "The command starts a launcher that TrainRun cannot replace", counted="a new run fails"
)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torchrun", "torchrun: the command names no script to start"),
        ("torchrun --lr 3 t.py", "torchrun: unrecognized arguments: --lr"),
        ("torchrun --r c10d t.py", "torchrun: ambiguous option: --r could match"),
        (
            "torchrun --virtual-local-rank t.py",
            "torchrun: --virtual-local-rank is not supported here; remove it",
        ),
        (
            "torchrun --nproc-per-node cpu t.py",
            "torchrun: --nproc-per-node is 'cpu'; it must be a number, gpu or auto",
        ),
        (
            "torchrun --nproc-per-node 0 t.py",
            "torchrun: --nproc-per-node is '0'; it must be a number",
        ),
        ("torchrun --nnodes 4:2 t.py", "torchrun: --nnodes is '4:2': min is greater than max"),
        ("torchrun --nnodes x t.py", "torchrun: --nnodes is 'x'; it must be a number or min:max"),
        (
            "torchrun --no-python -m t.py",
            "torchrun: --no-python and --module are mutually exclusive",
        ),
        ("accelerate launch t.py", "accelerate launch starts processes itself"),
        ("python -m accelerate.commands.launch t.py", "accelerate launch starts processes"),
        ("/usr/bin/deepspeed t.py", "deepspeed starts processes itself"),
        ("mpiexec -n 4 t", "mpirun starts processes itself"),
        ("accelerate-launch t.py", "accelerate launch starts processes itself"),
        (
            "srun t",
            "write command: [python, train.py] if the script makes its group with "
            "torch.distributed's env:// (mpi4py would make each process rank 0 of 1), and set ",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(line: str, message: str) -> None:
    with pytest.raises(LauncherRefused) as refused:
        torch_launch(line.split())
    assert message in str(refused.value)


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
        ("litgpt finetune_lora EleutherAI/pythia-14m --data Alpaca", "litgpt"),
    ],
)
def test_a_launcher_that_each_process_would_start_for_itself_is_found(line: str, told: str) -> None:
    assert found(line) == told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("trl sft --model_name_or_path x", "trl"),
        ("bash -c 'llamafactory-cli train sft.yaml'", "llamafactory-cli"),
        ("uv run /opt/bin/axolotl train x.yaml", "axolotl"),
        ("trl sft --num_machines 2", ""),
        ("lerobot-train --steps 10", ""),  # joins the others, as any script of Accelerate
    ],
)
def test_a_program_that_starts_a_process_for_each_gpu_is_found_where_it_sees_several(
    line: str, told: str
) -> None:
    assert hidden_launcher(shlex.split(line), several_gpus=True) == told
    assert found(line) == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            "--mixed_precision bf16 --num_processes=2 train.py --mixed_precision fp16",
            "would silently be off: set ACCELERATE_MIXED_PRECISION=bf16 in env, and pass the "
            "settings of --use_fsdp, --use_deepspeed or a config file to Accelerator()",
        ),
        (
            "--mixed-precision=fp16 --dynamo_mode reduce-overhead --use_fsdp -m train",
            "set ACCELERATE_MIXED_PRECISION=fp16 and ACCELERATE_DYNAMO_MODE=reduce-overhead in env",
        ),
        ("train.py", "set for instance ACCELERATE_MIXED_PRECISION=bf16 in env, and pass the"),
    ],
)
def test_what_accelerate_launch_says_is_not_lost_silently(options: str, says: str) -> None:
    """Done as the refusal said, mixed precision was off and nothing told it."""
    with pytest.raises(LauncherRefused, match=re.escape(says)):
        torch_launch(["accelerate", "launch", *options.split()])


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
        "litgpt finetune x --devices 2",
        "litgpt pretrain x",
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
