"""DDP over gloo, or NCCL on a GPU; marks the stages of each start, and the times of its steps.

Runs unchanged under `trainrun run` and under torchrun.
"""

from __future__ import annotations

import time

FIRST_LINE = time.time()

import json  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trainrun  # noqa: E402

IMPORTED = time.time()
WIDTH = int(os.environ.get("WIDTH", "64"))
WARM, SECONDS = int(os.environ.get("WARM", "1")), float(os.environ.get("SECONDS", "600"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "0"))
DEVICE, BACKEND = os.environ.get("DEVICE", "cpu"), os.environ.get("BACKEND", "gloo")

rank = int(os.environ["RANK"])
marks = Path(os.environ["MARKS"])
start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def mark(event: str, value: object) -> None:
    """Written whole: whoever sees the file can read it."""
    path = marks / f"{event}-{start}-{rank}"
    path.with_suffix(".new").write_text(str(value))
    path.with_suffix(".new").rename(path)


mark("pid", os.getpid())
mark("line", FIRST_LINE)
mark("import", IMPORTED)
torch.set_num_threads(1)
dist.init_process_group(BACKEND)
mark("group", time.time())
net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
if DEVICE == "cuda":  # a step with cuDNN, too
    net = nn.Sequential(net, nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 1, 3, padding=1))
net = net.to(DEVICE)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(WIDTH, WIDTH, device=DEVICE)
durations = []
"""Of each step: when it ended, and its seconds."""
warm_at, step = time.monotonic(), 0
enough = marks / "enough"


def measured() -> bool:
    """Whether there are steps enough, by the clock or as whoever measures says."""
    return step > WARM and (time.monotonic() - warm_at >= SECONDS or enough.exists())


# Rank 0 alone ends the measurement; the other then waits in its next collective to be stopped.
while rank != 0 or not measured():
    step += 1
    began = time.perf_counter()
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    if trainrun.should_save() or (SAVE_EVERY and step % SAVE_EVERY == 0):
        folder = trainrun.staging_directory()
        if rank == 0:
            torch.save(net.state_dict(), folder / "model.pt")
            trainrun.report({"loss": 0.5}, step=step, checkpoint=folder, whole=True)
        else:
            trainrun.report({"loss": 0.5}, step=step)
    else:
        trainrun.report({"loss": 0.5}, step=step)
    if step == 1:
        mark("step", time.time())
    if step == WARM:
        warm_at = time.monotonic()
        mark("warm", time.time())
    if step > WARM:
        durations.append((time.time(), time.perf_counter() - began))
    if WIDTH == 64:
        time.sleep(0.02)
(marks / f"durations-{rank}.json").write_text(json.dumps(durations))
mark("end", time.time())
time.sleep(600)
