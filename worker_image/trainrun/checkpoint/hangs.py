"""Where ranks stood when a gang stood still: a record of each worker, written once.

Layer: rules over `RunStore`; written by agents, read by the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.rules.records import HangRecord
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.run_store import RunStore

MOST = 1024
"""Records of one hang that are read: of all workers that a gang may have."""


def write_hang(run: RunStore, record: HangRecord) -> bool:
    """Store a record; False where another one stands there already, which stays.

    Raises StoreError.
    """
    key = layout.hang_key(record.attempt, record.number, record.worker)
    return run.write_once(key, record)


def read_hang(run: RunStore, folder: str) -> list[HangRecord]:
    """The records in this folder (`hangs/000003-1/`), by worker; unreadable ones are left out.

    Raises StoreError.
    """
    if not folder.startswith(layout.HANGS):
        return []
    keys = [item.key for item in run.objects(folder) if layout.read_hang(item.key)]
    found = []
    for key in sorted(keys)[:MOST]:
        try:
            found.append(run.read(HangRecord, key))
        except (CheckpointDamaged, ObjectNotFound):
            continue
    return found
