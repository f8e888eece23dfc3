"""A small network for handwritten digits; what it is to try says the sweep."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import trainrun

EPOCHS = 20

params = trainrun.get_params({"lr": 1e-3, "width": 32, "l2": 1e-4, "activation": "relu"})
images, digits = load_digits(return_X_y=True)
images, unseen, digits, wanted = train_test_split(images / 16, digits, random_state=0)

model, first = None, 1
if checkpoint := trainrun.get_checkpoint():
    with checkpoint.as_directory() as directory:
        model = pickle.loads(Path(directory, "model.pkl").read_bytes())
    first = checkpoint.step + 1
if model is None:
    model = MLPClassifier(
        hidden_layer_sizes=(int(params["width"]),),
        activation=params["activation"],
        alpha=params["l2"],
        learning_rate_init=params["lr"],
        random_state=0,
    )

for epoch in range(first, EPOCHS + 1):
    model.partial_fit(images, digits, classes=np.arange(10))
    error = 1 - model.score(unseen, wanted)
    directory = trainrun.staging_directory()
    (directory / "model.pkl").write_bytes(pickle.dumps(model))
    trainrun.report({"error": error}, step=epoch, checkpoint=directory)
