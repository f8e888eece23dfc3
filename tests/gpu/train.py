"""Trains on a GPU: convolutions, dropout, mixed precision, loading workers, checkpoints.

WRAP: "DDP", "FSDP2" or "compile". HELD: the part of the GPU's memory that it takes first. RESULT:
the file for the digest of all that came out. END: how its first attempt ends in step 6, with a
kernel of it that still runs; see `ENDS`. UNTIL: a file that it waits for before that.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import trainrun
from trainrun.torch import ResumableLoader, State, warm_up

STEPS, SAVE_EVERY, END_AT = 12, 2, 6
LONG = 200_000_000_000
"""Cycles of a kernel that is to be running when its process ends: 100 s."""
ILLEGAL = 'extern "C" __global__ void illegal(float* p) { p[1LL << 40] = 1.0f; }'


def die_by(number: int) -> Callable[[], None]:
    def die() -> None:
        os.kill(os.getpid(), number)

    return die


def look_up_what_is_not_there() -> None:
    nn.functional.embedding(torch.tensor([99], device="cuda"), torch.ones(3, 3, device="cuda"))
    torch.cuda.synchronize()


def write_elsewhere() -> None:
    kernel = torch.cuda._compile_kernel(ILLEGAL, "illegal")  # type: ignore[attr-defined]
    kernel((1, 1, 1), (1, 1, 1), (torch.ones(1, device="cuda"),))
    torch.cuda.synchronize()


def want_too_much() -> None:
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.empty(2 * whole, dtype=torch.uint8, device="cuda")


ENDS: dict[str, Callable[[], None]] = {
    "killed": die_by(signal.SIGKILL),
    "crashed": die_by(signal.SIGSEGV),
    "exited": lambda: os._exit(3),
    "asserted": look_up_what_is_not_there,
    "illegal": write_elsewhere,
    "full": want_too_much,
    "hung": torch.cuda.synchronize,
}


def wrapped(net: nn.Module) -> nn.Module:
    match os.environ.get("WRAP"):
        case "DDP":
            return DistributedDataParallel(net)
        case "FSDP2":
            return fully_shard(net)
        case "compile":
            return torch.compile(net)  # type: ignore[return-value]
    return net


def digest(net: nn.Module) -> str:
    sha = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        sha.update(name.encode() + whole.cpu().numpy().tobytes())
    sha.update(torch.rand(4, device="cuda").cpu().numpy().tobytes())
    return sha.hexdigest()


torch.use_deterministic_algorithms(True)
rank, attempt = trainrun.get_context().rank, trainrun.get_context().attempt
held = float(os.environ.get("HELD", "0")) * torch.cuda.get_device_properties(0).total_memory
memory = torch.empty(int(held), dtype=torch.uint8, device="cuda")
dist.init_process_group(os.environ.get("BACKEND", "nccl"))
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(4, (64,)))
net = nn.Sequential(
    nn.Conv2d(3, 16, 3),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Dropout(0.2),
    nn.Flatten(),
    nn.Linear(16 * 14 * 14, 4),
).cuda()
model = wrapped(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")  # type: ignore[attr-defined]
loader = ResumableLoader(data, batch_size=8, shuffle=True, num_workers=1)
state = State(model=model, optimizer=optimizer, scaler=scaler, loader=loader, rng=True)
torch.manual_seed(rank)


def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda"):
        return nn.functional.cross_entropy(model(inputs.cuda()), labels.cuda())


if os.environ.get("WRAP") == "DDP":
    warm_up(model, lambda: loss_of(*data[:8]))
step = state.load()
while step < STEPS:
    for inputs, labels in loader:
        loss = loss_of(inputs, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        step += 1
        while step == END_AT and attempt == 1 and not Path(os.environ.get("UNTIL", "/")).exists():
            time.sleep(0.05)
        if step == END_AT and attempt == 1 and rank == 0 and (end := os.environ.get("END")):
            if end not in ("asserted", "illegal", "full"):  # told only after that kernel
                torch.cuda._sleep(LONG)  # type: ignore[no-untyped-call]
            ENDS[end]()
        if step % SAVE_EVERY == 0:
            state.save(step, {"loss": loss.item()})
        else:
            trainrun.report({"loss": loss.item()}, step=step)
        if step == STEPS:
            break
if rank == 0:
    Path(os.environ["RESULT"]).write_text(digest(net))
dist.destroy_process_group()
