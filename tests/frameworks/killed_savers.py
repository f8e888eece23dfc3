"""Forks trainings that save in the background by another library, and kills each at a later moment
than the last; run by the tests.

Arguments: the library, the variables of each training, and `after` if reports say when their save
ends; without it a training writes down what it is refused, and goes on. The weights of step n are
all n.
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

PAUSE = 0.03
"""Seconds before the next save, without `after=`: what was begun may come to its end."""

UNKILLED = 3.0
"""Seconds after which the first training without `after=` is killed, not in its first saves."""

Train = Callable[[], None]
AFTER = sys.argv[3:] == ["after"]


def report(step: int, directory: Path, saving: Any) -> None:
    if AFTER:
        trainrun.report(step=step, checkpoint=directory, after=saving)
        getattr(saving, "result", saving)()
    else:
        trainrun.report(step=step, checkpoint=directory)


def tried(save: Callable[[int], None], step: int) -> None:
    try:
        save(step)
    except Exception as error:
        if AFTER:
            raise
        with Path(os.environ["OUT"]).open("a") as file:
            print(type(error).__name__, " ".join(str(error).split()), file=file)
    if not AFTER:
        time.sleep(PAUSE)


def each_step(save: Callable[[int], None]) -> None:
    for step in count(1):
        tried(save, step)


def in_a_thread(save: Callable[[dict[str, torch.Tensor], Path], object]) -> None:
    pool = ThreadPoolExecutor()

    def one(step: int) -> None:
        directory = trainrun.staging_directory()
        weights = {"weights": torch.full((LENGTH,), float(step))}
        report(step, directory, pool.submit(save, weights, directory))

    each_step(one)


def by_torch() -> Train:
    return lambda: in_a_thread(lambda weights, to: torch.save(weights, to / "model.pt"))


def by_safetensors() -> Train:
    from safetensors.torch import save_file

    return lambda: in_a_thread(lambda weights, to: save_file(weights, to / "model.safetensors"))


def by_dcp() -> Train:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    def one(step: int) -> None:
        directory = trainrun.staging_directory()
        weights = {"weights": torch.full((LENGTH,), float(step))}
        writer = dcp.FileSystemWriter(directory)
        saving = dcp.async_save(weights, storage_writer=writer)
        weights["weights"].zero_()  # as the next step would
        report(step, directory, saving)

    def train() -> None:
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        each_step(one)

    return train


def by_orbax() -> Train:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    def train() -> None:
        checkpointer = ocp.StandardCheckpointer()

        def one(step: int) -> None:
            directory = trainrun.staging_directory()
            checkpointer.save(directory / "state", {"weights": jnp.full(LENGTH, float(step))})
            report(step, directory, checkpointer.wait_until_finished)

        each_step(one)

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

    class Saver(L.Callback):
        """Without `after=`, which TrainRunCallback gives."""

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            def one(step: int) -> None:
                directory = trainrun.staging_directory()
                trainer.save_checkpoint(directory / "lightning.ckpt")
                report(step, directory, None)

            tried(one, trainer.global_step)

    def train() -> None:
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            max_steps=1000,
            plugins=[AsyncCheckpointIO()],
            callbacks=[TrainRunCallback(every_n_steps=1) if AFTER else Saver()],
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
        awaited = "step-" if AFTER and number % 2 else ""  # else in its first save
        while not any(awaited in name for name in os.listdir(env["TRAINRUN_STAGING"])):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the training has ended by itself"
            time.sleep(0.001)
        time.sleep(number * APART if AFTER or number else UNKILLED)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
