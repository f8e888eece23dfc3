"""Which generation of a run's folder is meant: that of the run's status, unless one is named.

Layer: cli. Where nothing is known of the run but its folder, it is the newest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.ownership import generations
from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import TrainRunError
from trainrun_operator.cli.sources import UnknownRun
from trainrun_operator.worlds.local.place import StatusUnreadable

if TYPE_CHECKING:
    from trainrun_operator.cli.sources import Source


class UnknownGeneration(TrainRunError):
    """The run has no such generation, or nothing says which one it is in."""


def generation_of(source: Source, number: int | None, *, certain: bool = False) -> RunStore:
    """That with this number; None: the run's own where its status tells it, else the newest.

    `certain`: the newest of several is not good enough. Raises UnknownGeneration, StoreError.
    """
    run = source.checkpoints()
    if number is not None:
        return _numbered(generations(run), number)
    own = own_generation(source)
    if own is not None:
        return replace(run, generation=own)
    begun = generations(run)
    if certain and len(begun) > 1:
        listed = ", ".join(f"{each.generation} in {each.uri}" for each in begun)
        raise UnknownGeneration(
            f"{begun[0].uri} has {len(begun)} generations ({listed}), and no status says which one "
            "is meant: give --generation N"
        )
    return begun[-1]


def own_generation(source: Source) -> int | None:
    """The one that the run is in; None: no status tells it, or nothing was claimed yet."""
    try:
        return source.state().status.storage_generation or None
    except (StatusUnreadable, UnknownRun):
        return None


def _numbered(begun: list[RunStore], number: int) -> RunStore:
    found = next((run for run in begun if run.generation == number), None)
    if found is None:
        noun = "generation" if len(begun) == 1 else "generations"
        raise UnknownGeneration(
            f"{begun[0].uri} has {len(begun)} {noun}, and none with the number {number}"
        )
    return found
