"""Generations of a run's folder: with `onExisting: StartFresh` a TrainRun begins a new one.

Layer: rules over `RunStore`. The first lies in the run's folder itself, each later one in a folder
of its own below, with its own claims, records and checkpoints: so no rule about these knows that
there are others, and nothing of one is read, fenced or deleted for another. Invariants: a number is
given once, to the TrainRun that its write-once record names; a TrainRun begins at most one, and
stays in the one that it has begun or claimed; what a listing does not show yet is asked for by its
name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.ownership import CLAIM_TRIES, has_claimed, is_used
from trainrun.checkpoint.rules.records import GenerationRecord
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreUnavailable

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.run_store import RunStore


def generations(run: RunStore) -> list[RunStore]:
    """All that were begun, oldest first; the first one, used or not, is always among them.

    Raises StoreError.
    """
    first = replace(run, generation=1)
    return [replace(run, generation=number) for number in range(1, _newest(first) + 1)]


def enter(run: RunStore, *, uid: str, fresh: bool) -> RunStore:
    """The generation of the TrainRun `uid`: its own, else the newest, or with `fresh` a new one.

    Repeating it gives the same one. Raises StoreError.
    """
    begun = generations(run)
    if len(begun) == 1 and not fresh:
        return begun[0]
    for generation in reversed(begun):
        if _began(generation) == uid or has_claimed(generation, uid=uid):
            return generation
    return _begin(begun[-1], uid=uid) if fresh else begun[-1]


def _newest(first: RunStore) -> int:
    listed = (layout.read_number(item.key) for item in first.objects(layout.GENERATIONS))
    newest = max((number for number in listed if number is not None), default=1)
    while True:
        key = layout.generation_key(newest + 1)
        try:
            first.read(GenerationRecord, key)
        except ObjectNotFound:
            return newest
        except CheckpointDamaged as error:
            # Whatever answers every question, a proxy perhaps, would make an endless row of them.
            raise StoreUnavailable(
                f"{first.uri}/{key} is not believed: {error}, and the listing does not show it"
            ) from error
        newest += 1


def _began(run: RunStore) -> str:
    """Who began a later generation; empty for the first, and where that cannot be read."""
    if run.generation == 1:
        return ""
    try:
        record = replace(run, generation=1).read(
            GenerationRecord, layout.generation_key(run.generation)
        )
    except (CheckpointDamaged, ObjectNotFound):
        return ""
    return record.uid


def _begin(newest: RunStore, *, uid: str) -> RunStore:
    first = replace(newest, generation=1)
    if newest == first and not is_used(first):
        return first
    for number in range(newest.generation + 1, newest.generation + 1 + CLAIM_TRIES):
        record = GenerationRecord(number=number, uid=uid)
        if first.write_once(layout.generation_key(number), record):
            return replace(first, generation=number)
    raise StoreUnavailable(f"{first.uri}: others keep beginning generations of this folder")
