"""Handwritten digits with DistributedDataParallel, resuming exactly where it was.

Runs as a TrainRun (see trainrun.yaml), under torchrun, and as it is:

    trainrun run examples/ddp_digits/trainrun.yaml
    torchrun --nproc-per-node 4 examples/ddp_digits/train.py
    python examples/ddp_digits/train.py
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import time
from importlib.util import find_spec
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import trainrun
from trainrun.torch import ResumableLoader, State, warm_up


def main() -> None:
    options = parse_options()
    context = trainrun.get_context()
    torch.set_num_threads(1)  # another number of threads gives other results
    address = f"tcp://{context.master_addr}:{context.master_port}"
    dist.init_process_group(
        "gloo", init_method=address, rank=context.rank, world_size=context.world_size
    )
    train, test = load_digits(options.digits)

    torch.manual_seed(options.seed)  # the same first weights on every rank
    net = nn.Sequential(
        nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    loader = ResumableLoader(train, options.batch, shuffle=True, seed=options.seed)
    state = State(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, rng=True)
    torch.manual_seed(options.seed + context.rank)  # other dropout on every rank

    example = train[: options.batch]
    warm_up(model, lambda: cross_entropy(model(example[0]), example[1]))
    step = state.load()
    while step < options.steps:
        for images, labels in loader:
            time.sleep(options.pace)  # makes a small model slow enough to be watched
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1

            metrics: dict[str, float | str] = {"loss": loss.item()}
            if step == options.steps:
                metrics |= {"accuracy": accuracy(net, test), "weights": digest(net)}
            save_asked = trainrun.should_save()  # at every step, on every rank
            if save_asked or step % options.save_every == 0 or step == options.steps:
                state.save(step, metrics)
            else:
                trainrun.report(metrics, step=step)
            if step == options.steps:
                break

    if context.rank == 0:
        print(f"test accuracy {accuracy(net, test):.4f}, weights {digest(net)}", flush=True)
    dist.destroy_process_group()


def load_digits(path: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """Return 1,437 digits to train on and 360 to test on.

    They come with scikit-learn; importing it would cost each start some seconds, so the file is
    read as it lies there.
    """
    if path is None:
        package = find_spec("sklearn")
        assert package is not None, "the digits come with scikit-learn: pip install scikit-learn"
        path = Path(str(package.origin)).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path) as file:
        rows = numpy.loadtxt(file, delimiter=",", dtype=numpy.float32)
    images, labels = torch.from_numpy(rows[:, :64] / 16), torch.from_numpy(rows[:, 64]).long()
    return TensorDataset(images[:1437], labels[:1437]), TensorDataset(images[1437:], labels[1437:])


def accuracy(net: nn.Module, test: TensorDataset) -> float:
    """Return the part of the test digits that is recognized."""
    images, labels = test[:]
    net.eval()
    with torch.no_grad():
        right = (net(images).argmax(dim=1) == labels).float().mean().item()
    net.train()
    return right


def digest(net: nn.Module) -> str:
    """Return what tells two models apart that differ in a single bit of a weight."""
    sha = hashlib.sha256()
    for parameter in net.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()[:16]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=16, help="samples of each rank in a step")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep in each step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", type=Path, help="scikit-learn's digits.csv.gz, where it is not")
    return parser.parse_args()


if __name__ == "__main__":
    main()
