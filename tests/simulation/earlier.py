"""What an earlier TrainRun of the same name has left in the storage, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tests.simulation.world.store import SimCheckpoint
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.world.simulation import Simulation

Before = Literal["Nothing", "Unfinished", "Finished"]

LAST = CheckpointId(attempt=3, step=6)
"""What it has saved."""


def leave_behind(world: Simulation, before: Before) -> None:
    """An earlier TrainRun has trained there, and is gone."""
    if before == "Nothing":
        return
    gang = world.config.replicas
    parts = SimCheckpoint(parts={*range(gang)}, workers=gang, manifest=True)
    world.store.checkpoints[LAST] = parts
    world.store.claims = {1: None, LAST.attempt: CheckpointId(attempt=1, step=3)}
    world.store.finished = before == "Finished"
    world.store.others = True


def mistakes_about_it(world: Simulation, before: Before) -> Iterator[str]:
    """Where the run did with it something else than storage.onExisting says."""
    asked, claims = world.config.on_existing, world.judge.claims
    first = claims[min(claims)][1] if claims else None
    failed = world.status.condition("Failed")
    not_empty = failed is not None and failed.reason == "StorageNotEmpty"
    if before == "Nothing":
        if not_empty:
            yield "failed with StorageNotEmpty, and the storage was empty"
    elif asked == "Fail":
        if claims:
            yield f"onExisting is Fail, and attempt {min(claims)} has begun in a used storage"
    elif not_empty:
        yield f"failed with StorageNotEmpty, and onExisting is {asked}"
    elif asked == "StartFresh":
        # One of its own may have the same attempt and step, in its own folder.
        own = LAST.attempt in claims
        taken = [attempt for attempt, (_, point) in claims.items() if point == LAST and not own]
        if first is not None or taken:
            yield f"onExisting is StartFresh, and attempts {taken} resume from {first or LAST}"
    elif before == "Finished":
        if claims:
            yield f"the run had finished before, and attempt {min(claims)} trains again"
    elif claims and first != LAST and LAST not in world.store.bad:
        yield f"the first attempt starts from {first}, and {LAST} was there"
