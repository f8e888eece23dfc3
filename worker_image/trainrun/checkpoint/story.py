"""The story of a run in its folder: numbered chapters, each written once.

Layer: rules over `RunStore`; written by an agent, read by the command line. Invariant: a chapter is
never changed, and writing it again is harmless, whoever does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from trainrun.checkpoint.rules.records import AttemptRecord, StoryRecord
from trainrun.checkpoint.stores.run_store import READERS
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.run_store import RunStore

T = TypeVar("T")

MOST = 10_000
"""Chapters that are read: the newest of so many."""


def write_story(run: RunStore, record: StoryRecord) -> bool:
    """Store a chapter; False where another one stands there already, which stays.

    Raises StoreError.
    """
    return run.write_once(layout.story_key(record.number, record.uid), record)


def read_story(run: RunStore) -> list[StoryRecord]:
    """The chapters of all TrainRuns that have used the folder; unreadable ones are left out.

    Raises StoreError.
    """
    keys = [item.key for item in run.objects(layout.STORY) if layout.is_story(item.key)]
    return _all(run, StoryRecord, keys[-MOST:])


def read_attempts(run: RunStore) -> list[AttemptRecord]:
    """What each attempt was claimed with, oldest first; unreadable records are left out.

    Raises StoreError.
    """
    return _all(run, AttemptRecord, [layout.attempt_key(n) for n in run.attempts()[-MOST:]])


def _all(run: RunStore, cls: type[T], keys: list[str]) -> list[T]:
    def read(key: str) -> T | None:
        try:
            return run.read(cls, key)
        except (CheckpointDamaged, ObjectNotFound):
            return None

    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(read, keys))
    return [record for record in found if record is not None]
