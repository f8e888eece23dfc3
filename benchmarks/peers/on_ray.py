"""The training as a driver for Ray Train V2, on a Ray cluster of three nodes of one worker each.

It saves on a preemption as Ray's documentation says: by `get_preemption_info()` in every step.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.torch import TorchConfig, TorchTrainer

HERE = str(Path(__file__).parent)
MEMORY = 80 * 1024 * 1024


def train() -> None:
    """What each worker runs."""
    sys.path.insert(0, HERE)
    from training import SAVE_EVERY, Training  # noqa: PLC0415 - on the worker

    training = Training()
    step, told = 0, False
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            training.load(Path(directory, "training.pt"))
            step = int(Path(directory, "step").read_text())
    training.began(step, node=ray.get_runtime_context().get_node_id())
    while True:
        step += 1
        training.step(step)
        notice = ray.train.get_preemption_info() is not None
        if step % SAVE_EVERY == 0 or (notice and not told):
            told = notice
            with tempfile.TemporaryDirectory() as folder:
                if training.rank == 0:
                    training.save(Path(folder, "training.pt"))
                    Path(folder, "step").write_text(str(step))
                saved = ray.train.Checkpoint.from_directory(folder) if training.rank == 0 else None
                ray.train.report({"step": step}, checkpoint=saved)


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    ray.init(address=cluster.address)
    Path(os.environ["STORE"], "address").write_text(cluster.address)
    TorchTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="peer",
            storage_path=os.environ["STORE"],
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
        torch_config=TorchConfig(backend="gloo"),
    ).fit()


if __name__ == "__main__":
    main()
