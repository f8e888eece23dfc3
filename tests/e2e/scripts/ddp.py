"""A small network with DistributedDataParallel over gloo, which resumes bit for bit.

The digest of the weights after the last step tells whether a disturbed run has learned the same as
an undisturbed one. In each attempt before the last it lingers after some steps, so that there is
time to disturb it; what it learns does not depend on that.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import lean_torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import trainrun
from trainrun.torch import ResumableLoader, State, warm_up

BATCH = 8
STRETCH = 8
"""Steps of an attempt before it lingers."""
LINGERING = 5.0
"""Seconds per step then."""


def main() -> None:
    options = parse_options()
    lean_torch.install()
    context = trainrun.get_context()
    torch.set_num_threads(1)  # another number of threads gives other results
    dist.init_process_group("gloo")
    print(f"rank {context.rank} of {context.world_size} in attempt {context.attempt}", flush=True)

    torch.manual_seed(0)  # the same data and first weights on every rank
    data = TensorDataset(torch.randn(480, 32), torch.randint(0, 10, (480,)))
    net = nn.Sequential(
        nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = ResumableLoader(data, BATCH, shuffle=True)
    state = State(model=model, optimizer=optimizer, loader=loader, rng=True)
    torch.manual_seed(context.rank)  # other dropout on every rank

    example = data[:BATCH]
    warm_up(model, lambda: cross_entropy(model(example[0]), example[1]))
    step = first = state.load()

    while step < options.steps:
        for inputs, labels in loader:
            lingers = context.attempt < options.attempts and step >= first + STRETCH
            time.sleep(LINGERING if lingers else options.pace)
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            metrics: dict[str, float | str] = {"loss": loss.item()}
            if step == options.steps:
                metrics["weights"] = digest(net)
            if trainrun.should_save() or step % options.save_every == 0 or step == options.steps:
                state.save(step, metrics)
            else:
                trainrun.report(metrics, step=step)
            if step == options.steps:
                break
    dist.destroy_process_group()


def digest(net: nn.Module) -> str:
    sha = hashlib.sha256()
    for tensor in net.state_dict().values():
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()[:16]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds per step")
    parser.add_argument("--save-every", type=int, default=4)
    parser.add_argument("--attempts", type=int, default=1, help="linger until this attempt")
    return parser.parse_args()


main()
