"""Forks trainings that save in the background by another library, and kills each at a later moment
than the last; run by the tests.

Arguments: the library, and the variables of each training. The weights of step n are all n.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import torch

import trainrun

LENGTH = 500_000
"""Weights; they fill 2 MB."""
APART = 0.01
"""Seconds by which a training is killed later than the one before it, counted from the begin of its
first save, or of every second one from the end of that save."""

Train = Callable[[], None]


def in_a_thread(save: Callable[[dict[str, torch.Tensor], Path], object]) -> None:
    with ThreadPoolExecutor() as pool:
        for step in count(1):
            directory = trainrun.staging_directory()
            weights = {"weights": torch.full((LENGTH,), float(step))}
            saving = pool.submit(save, weights, directory)
            trainrun.report(step=step, checkpoint=directory, after=saving)
            saving.result()


def by_torch() -> Train:
    return lambda: in_a_thread(lambda weights, to: torch.save(weights, to / "model.pt"))


def by_safetensors() -> Train:
    from safetensors.torch import save_file

    return lambda: in_a_thread(lambda weights, to: save_file(weights, to / "model.safetensors"))


def by_dcp() -> Train:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    def train() -> None:
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        for step in count(1):
            directory = trainrun.staging_directory()
            weights = {"weights": torch.full((LENGTH,), float(step))}
            writer = dcp.FileSystemWriter(directory)
            saving = dcp.async_save(weights, storage_writer=writer)
            weights["weights"].zero_()  # as the next step would
            trainrun.report(step=step, checkpoint=directory, after=saving)
            saving.result()

    return train


def by_orbax() -> Train:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    def train() -> None:
        checkpointer = ocp.StandardCheckpointer()
        for step in count(1):
            directory = trainrun.staging_directory()
            checkpointer.save(directory / "state", {"weights": jnp.full(LENGTH, float(step))})
            saved = checkpointer.wait_until_finished
            trainrun.report(step=step, checkpoint=directory, after=saved)
            saved()

    return train


def by_lightning() -> Train:
    import lean  # noqa: F401
    import lightning as L
    from lightning.pytorch.plugins.io import AsyncCheckpointIO
    from torch.utils.data import DataLoader

    from trainrun.lightning import TrainRunCallback
    from trainrun.torch import ResumableLoader

    class Counter(L.LightningModule):
        """Its gradient is -1 everywhere, and its learning rate 1."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.zeros(LENGTH))

        def training_step(self, _: Any) -> torch.Tensor:
            return -self.weights.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1.0)

    def train() -> None:
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            max_steps=1000,
            plugins=[AsyncCheckpointIO()],
            callbacks=[TrainRunCallback(every_n_steps=1)],
            enable_checkpointing=False,
        )
        trainer.fit(Counter(), ResumableLoader.of(DataLoader(torch.zeros(1000, 1))))

    return train


def by_transformers() -> Train:
    from transformers import Trainer, TrainingArguments

    from trainrun.transformers import TrainRunCallback

    class Summing(torch.nn.Module):
        """Likewise."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.zeros(LENGTH))

        def forward(self, inputs: Any) -> Any:
            return {"loss": -self.weights.sum() + 0 * inputs.sum()}

    def train() -> None:
        arguments = TrainingArguments(
            os.environ["OUT"],
            max_steps=1000,
            save_steps=1,
            save_total_limit=1,
            optim="sgd",
            learning_rate=1.0,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(Summing(), arguments, train_dataset=[{"inputs": torch.ones(1)}] * 8000)
        trainer.add_callback(TrainRunCallback())
        trainer.train()

    return train


BY: dict[str, Callable[[], Train]] = {
    "torch.save": by_torch,
    "safetensors": by_safetensors,
    "dcp": by_dcp,
    "orbax": by_orbax,
    "lightning": by_lightning,
    "transformers": by_transformers,
}


def main() -> None:
    train = BY[sys.argv[1]]()  # imports what it needs, once
    for number, env in enumerate(json.loads(sys.argv[2])):
        child = os.fork()
        if child == 0:
            os.environ.update(env, TRAINRUN_PROCESS=str(os.getpid()))
            torch.set_num_threads(1)
            train()
        awaited = "step-" if number % 2 else ""  # else in its first save
        while not any(awaited in name for name in os.listdir(env["TRAINRUN_STAGING"])):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the training has ended by itself"
            time.sleep(0.001)
        time.sleep(number * APART)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
