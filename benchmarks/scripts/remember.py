"""Trains for as long as it is asked to, and remembers every step in what comes out.

`<JOURNAL>/last` holds the step to end with, once somebody has written it. Each rank writes where
its attempts begin and what comes out to `<JOURNAL>/rank-<r>.txt`, and how far it is to `at-<r>`.
With TORCH=1 it is a model under DistributedDataParallel, else a chain of hashes.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import trainrun

EVERY = 10
PAUSE = float(os.environ.get("PAUSE", "0.02"))
TORCH = os.environ.get("TORCH") == "1"
context = trainrun.get_context()
journal = Path(os.environ["JOURNAL"])
journal.mkdir(parents=True, exist_ok=True)
last = journal / "last"


class Chain:
    """What has come out so far is the hash of all steps."""

    def __init__(self) -> None:
        self.value = ""

    def step(self, number: int) -> None:
        text = f"{self.value} {context.rank} {number}"
        self.value = hashlib.sha256(text.encode()).hexdigest()

    def save(self, path: Path) -> None:
        path.write_text(self.value)

    def load(self, path: Path) -> None:
        self.value = path.read_text()


class Model:
    """The weights of a small model, and its optimizer's state."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - the other kind must not need it
        from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(0)
        self.torch, self.net = torch, torch.nn.Linear(16, 4)
        self.parallel = DistributedDataParallel(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)

    def step(self, number: int) -> None:
        made = self.torch.Generator().manual_seed(1000 * number + context.rank)
        inputs = self.torch.randn(8, 16, generator=made)
        self.parallel(inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def value(self) -> str:
        weights = [parameter.detach().numpy().tobytes() for parameter in self.net.parameters()]
        return hashlib.sha256(b"".join(weights)).hexdigest()

    def save(self, path: Path) -> None:
        parts: dict[str, Any] = {"net": self.net.state_dict()}
        self.torch.save({**parts, "optimizer": self.optimizer.state_dict()}, path)

    def load(self, path: Path) -> None:
        parts = self.torch.load(path)
        self.net.load_state_dict(parts["net"])
        self.optimizer.load_state_dict(parts["optimizer"])


def write(text: str) -> None:
    with (journal / f"rank-{context.rank}.txt").open("a") as file:
        file.write(f"{context.attempt} {text}\n")


work = Model() if TORCH else Chain()
checkpoint, step = trainrun.get_checkpoint(), 0
if checkpoint is not None:
    with checkpoint.as_directory() as directory:
        work.load(Path(directory, f"rank-{context.rank}"))
    step = checkpoint.step
write(f"{step} begin")
while not (last.exists() and (text := last.read_text()) and step >= int(text)):
    time.sleep(PAUSE)
    step += 1
    work.step(step)
    (journal / f"at-{context.rank}").write_text(str(step))
    if step % EVERY == 0 or trainrun.should_save():
        directory = trainrun.staging_directory()
        work.save(Path(directory, f"rank-{context.rank}"))
        trainrun.report({"step": step}, step=step, checkpoint=directory)
    else:
        trainrun.report({"step": step}, step=step)
write(f"{step} result {work.value}")
