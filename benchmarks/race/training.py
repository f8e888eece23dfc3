"""The training of the goodput race: 400 MB of state, saved every ten seconds.

Most of the weights are frozen, as in fine-tuning, and a step is mostly a pause, as a CPU has it
beside a GPU: what a side does meanwhile (uploads, preloads) costs it no more than it would there.
Rank 0 saves all of it by its own clock; the other rank waits in the next collective.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.peers.training import Training

FROZEN = int(os.environ.get("FROZEN", "400000000"))
"""Bytes of weights that are saved and never change."""
SAVE_SECONDS = 10.0
"""From the beginning of one save to that of the next."""


class LargeTraining(Training):
    """One rank's part of it."""

    def __init__(self) -> None:
        super().__init__()
        self._saved = time.monotonic()

    def parts(self) -> tuple[nn.Module, torch.Tensor]:
        """Those of the small training, and a frozen table."""
        net, batch = super().parts()
        table = nn.Parameter(torch.ones(FROZEN // 4), requires_grad=False)
        net.register_parameter("table", table)
        return net, batch

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """With a state of its own."""
        trained = [weights for weights in model.parameters() if weights.requires_grad]
        return torch.optim.AdamW(trained, lr=0.001)

    @property
    def save_is_due(self) -> bool:
        """Rank 0 alone saves."""
        return self.rank == 0 and time.monotonic() - self._saved >= SAVE_SECONDS

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around everything for which the training stands still to save."""
        self._saved = time.monotonic()
        yield
        self.tell({"stalled": time.monotonic() - self._saved})
