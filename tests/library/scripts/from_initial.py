"""Begins from pretrained weights and writes down what they are."""

from __future__ import annotations

import os
from pathlib import Path

import trainrun

initial = trainrun.get_initial_checkpoint()
assert initial is not None
assert trainrun.get_checkpoint() is None
with initial.as_directory() as directory:
    (Path(os.environ["OUT"]) / "seen").write_text((Path(directory) / "model").read_text())
