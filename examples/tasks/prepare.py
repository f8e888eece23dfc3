"""Prepare: each shard of handwritten digits is shifted and blurred by a task of its own."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from trainrun import tasks

DATA = Path(os.environ.get("DATA", "/tmp/trainrun-digits"))
SHARDS = 16


@tasks.task(max_retries=3, timeout="5m")
def augment(images: np.ndarray, digits: np.ndarray) -> dict[str, np.ndarray]:
    pictures = images.reshape(-1, 8, 8)
    shifted = [np.roll(pictures, by, axis=axis) for by in (-1, 1) for axis in (1, 2)]
    blurred = (pictures + sum(shifted)) / 5
    made = np.concatenate([pictures, *shifted, blurred]).reshape(-1, 64) / 16
    return {"images": made, "digits": np.tile(digits, 6)}


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    images, unseen, digits, wanted = train_test_split(images, digits, random_state=0)
    parts = zip(np.array_split(images, SHARDS), np.array_split(digits, SHARDS), strict=True)
    shards = [augment.remote(*part) for part in parts]
    DATA.mkdir(exist_ok=True)
    for number, shard in enumerate(tasks.get(shards)):
        (DATA / f"shard-{number:02d}.pkl").write_bytes(pickle.dumps(shard))
    (DATA / "unseen.pkl").write_bytes(pickle.dumps({"images": unseen / 16, "digits": wanted}))
    print(f"{len(shards)} shards are in {DATA}")


if __name__ == "__main__":
    tasks.run(main)
