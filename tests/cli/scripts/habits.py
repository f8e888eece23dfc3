"""A training without torch that is written as many people do: it pickles its state, reports what
they report, and is well or broken in ways that show only beside that. MODE says how.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import trainrun

MODE = os.environ.get("MODE", "").split()
STEPS, EVERY = int(os.environ.get("STEPS", "60")), 10
OWN = Path("out", "last.pkl")

context = trainrun.get_context()
began = time.monotonic()
drawn = random.Random(None if "unseeded" in MODE else 7)
state: dict[str, Any] = {"step": 0, "weights": [2.0, 1.0], "momentum": 0.0, "place": 0}
words = {f"word-{n}" for n in range(20)}


def load() -> None:
    if "own-folder" in MODE:
        if OWN.exists():
            restore(pickle.loads(OWN.read_bytes()))
        return
    checkpoint = trainrun.get_checkpoint()
    if checkpoint is None:
        return
    if "loads-nothing" in MODE:
        state["step"] = state["place"] = checkpoint.step
        return
    with checkpoint.as_directory() as folder:
        restore(pickle.loads(Path(folder, "state.pkl").read_bytes()))


def restore(saved: dict[str, Any]) -> None:
    global state, words
    state, words = saved["state"], saved["words"]
    if "forgets-place" in MODE:
        state["place"] = 0
    if "forgets-random" not in MODE:
        drawn.setstate(saved["random"])


def save() -> Path:
    folder = trainrun.staging_directory()
    if context.rank == 0 or "each-rank" in MODE:
        data = pickle.dumps(
            {"state": state, "words": words, "random": drawn.getstate(), "at": time.time()}
        )
        name = f"rank-{context.rank}.pkl" if context.rank else "state.pkl"
        if "threads" in MODE:
            writer = threading.Thread(target=(folder / name).write_bytes, args=(data,))
            writer.start()
            writer.join()
        else:
            (folder / name).write_bytes(data)
        if "own-folder" in MODE:
            OWN.parent.mkdir(exist_ok=True)
            OWN.write_bytes(data)
    return folder


def train_step() -> float:
    place = state["place"]
    batch = int(hashlib.sha256(b"%d" % place).hexdigest()[:4], 16) / 0xFFFF
    first, second = state["weights"]
    noise = drawn.gauss(0, 3.0 if "unseeded" in MODE else 0.02)
    loss = first * first + 0.3 * second * batch + noise
    state["momentum"] = 0.8 * state["momentum"] + first + 0.1 * batch + noise
    state["weights"] = [first - 0.01 * state["momentum"], second]
    state["place"] = place + 1
    return float(loss)


def told(loss: float) -> dict[str, Any]:
    return {
        "loss": loss,
        "wall": time.time(),
        "since": time.monotonic() - began,
        "host": f"{socket.gethostname()}-{os.getpid()}",
        "attempt": context.attempt,
        "world": context.world_size,
    }


load()
time.sleep(float(os.environ.get("LATE", "0")))
while state["step"] < STEPS:
    time.sleep(0.03)
    due = state["step"] % EVERY == 0 and state["step"] > 0
    if "saves-before" in MODE and due:
        trainrun.report(step=state["step"], checkpoint=save())
    step = state["step"]
    loss = train_step()
    state["step"] += 1
    if "saves-before" in MODE:
        trainrun.report(told(loss), step=step)
        continue
    last = state["step"]
    if last % EVERY == 0 or trainrun.should_save():
        trainrun.report(told(loss), step=last, checkpoint=save())
    elif "epochs" not in MODE:
        trainrun.report(told(loss), step=last)
if "empty-at-the-end" in MODE:
    print("last loss:", loss)
