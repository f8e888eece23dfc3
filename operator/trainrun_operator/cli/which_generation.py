"""Which generation of a run's folder is meant: the newest, unless one is named.

Layer: cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint import RunStore, generations
from trainrun.errors import TrainRunError

if TYPE_CHECKING:
    from trainrun_operator.cli.sources import Source


class UnknownGeneration(TrainRunError):
    """The run has no such generation."""


def generation_of(source: Source, number: int | None) -> RunStore:
    """That with this number; None: the newest. Raises UnknownGeneration, StoreError."""
    begun = generations(source.checkpoints())
    if number is None:
        return begun[-1]
    found = next((run for run in begun if run.generation == number), None)
    if found is None:
        noun = "generation" if len(begun) == 1 else "generations"
        raise UnknownGeneration(
            f"{begun[0].uri} has {len(begun)} {noun}, and none with the number {number}"
        )
    return found
