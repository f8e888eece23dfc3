"""The training as a script for torchrun: it saves and loads its checkpoints by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))

from training import SAVE_EVERY, Training

store = Path(os.environ["STORE"])
dist.init_process_group("gloo")
training = Training()
step = 0
if saved := sorted(store.glob("step-*.pt")):
    training.load(saved[-1])
    step = int(saved[-1].stem.removeprefix("step-"))
training.began(step, restarts=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
while True:
    step += 1
    training.step(step)
    if step % SAVE_EVERY == 0 and training.rank == 0:
        file = store / f"step-{step:09d}.pt"
        training.save(file.with_suffix(".new"))
        file.with_suffix(".new").rename(file)
