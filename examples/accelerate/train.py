"""A loop of Accelerate that goes on exactly where it was.

Runs as a TrainRun (see trainrun.yaml) and under torchrun:

    trainrun run examples/accelerate/trainrun.yaml
    torchrun --nproc-per-node 2 examples/accelerate/train.py
"""

from __future__ import annotations

import argparse
import hashlib
import time

import torch
from accelerate import Accelerator
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from trainrun.accelerate import epochs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="a multiple of the 25 in an epoch")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep in each batch")
    options = parser.parse_args()

    torch.set_num_threads(1)  # another number of threads gives other results
    torch.manual_seed(0)  # the same data and first weights on every rank
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    inputs = torch.randn(800, 16)
    data = TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(64, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    torch.manual_seed(accelerator.process_index)  # other dropout on every rank

    for _, run in epochs(accelerator, options.steps // len(loader), every=10):
        for _, (x, y) in run.batches(loader):
            time.sleep(options.pace)  # makes a small model slow enough to be watched
            with accelerator.accumulate(model):
                loss = mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            run.metrics["loss"] = loss.item()

    weights = digest(accelerator.unwrap_model(model))
    print(f"rank {accelerator.process_index}: weights {weights}", flush=True)
    accelerator.end_training()


def digest(model: torch.nn.Module) -> str:
    """Return what tells two models apart that differ in a single bit."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()[:16]


if __name__ == "__main__":
    main()
