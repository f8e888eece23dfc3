"""Train on what prepare.py has made, resume where a failure struck; then evaluate by tasks."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from sklearn.neural_network import MLPClassifier

import trainrun
from trainrun import tasks

DATA = Path(os.environ.get("DATA", "/tmp/trainrun-digits"))
EPOCHS = 20


def load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def train() -> MLPClassifier:
    shards = [load(path) for path in sorted(DATA.glob("shard-*.pkl"))]
    model, first = MLPClassifier((64,), random_state=0), 1
    if checkpoint := trainrun.get_checkpoint():
        with checkpoint.as_directory() as directory:
            model = load(directory / "model.pkl")
        first = checkpoint.step + 1
    for epoch in range(first, EPOCHS + 1):
        for shard in shards:
            model.partial_fit(shard["images"], shard["digits"], classes=range(10))
        score = model.score(shards[0]["images"], shards[0]["digits"])
        directory = trainrun.staging_directory()
        (directory / "model.pkl").write_bytes(pickle.dumps(model))
        trainrun.report({"score": score}, step=epoch, checkpoint=directory)
    return model


@tasks.task
def hits(model: MLPClassifier, digit: int) -> tuple[int, int]:
    unseen = load(DATA / "unseen.pkl")
    mine = unseen["digits"] == digit
    return int((model.predict(unseen["images"][mine]) == digit).sum()), int(mine.sum())


def evaluate() -> None:
    model = tasks.put(train())
    found = tasks.get([hits.remote(model, digit) for digit in range(10)])
    right, all_of_them = map(sum, zip(*found, strict=True))
    print(f"{right} of {all_of_them} unseen digits are read right")


if __name__ == "__main__":
    tasks.run(evaluate)
