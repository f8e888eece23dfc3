"""A small network that a loop of Accelerate teaches to copy noise; run by the tests.

Dropout, batch normalization, AdamW, gradient accumulation, a learning rate that falls, data in
random order, evaluation behind each epoch. An epoch has eight batches, so that the accumulation of
three is cut off at its end. The loader is Accelerate's, with its usual or its seedable sampler.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from common import STEPS, hang_before, tell_weights, wait_after
from torch.utils.data import DataLoader, TensorDataset

from trainrun.accelerate import epochs


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    seedable = DataLoaderConfiguration(use_seedable_sampler="SEEDABLE" in os.environ)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, dataloader_config=seedable)
    data = TensorDataset(torch.randn(32, 8))
    net: Any = torch.nn.Sequential(
        torch.nn.Linear(8, 32),
        torch.nn.BatchNorm1d(32),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(32, 8),
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.8)
    loader = DataLoader(
        data, batch_size=2, shuffle=True, num_workers=int(os.environ.get("LOADERS", "0"))
    )
    model, optimizer, scheduler, loader = accelerator.prepare(net, optimizer, scheduler, loader)
    evaluation = accelerator.prepare(DataLoader(data, batch_size=8, shuffle=True))
    torch.manual_seed(accelerator.process_index)  # other dropout on every rank

    for epoch, run in epochs(accelerator, STEPS // 8, every=4):
        model.train()
        for step, (batch,) in run.batches(loader):
            hang_before(step)
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(batch), batch)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            run.metrics["loss"] = loss.item()
            wait_after(step)
        model.eval()
        with torch.no_grad():
            losses = [torch.nn.functional.mse_loss(model(b), b) for (b,) in evaluation]
        run.metrics |= {"epoch": epoch, "val_loss": torch.stack(losses).mean().item()}
    tell_weights(accelerator.unwrap_model(model))


if __name__ == "__main__":
    main()
