"""Deleting the checkpoints of a trial that is not needed any more.

Layer: rules over `RunStore`. Which trials these are is decided elsewhere; what else lies in their
folders stays, so that their stories can be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.rules.selection import deletion_order
from trainrun.contract import layout

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.run_store import RunStore


def clear_checkpoints(run: RunStore) -> None:
    """Delete all checkpoints of a folder that nobody uses. Raises StoreError.

    In the order of `deletion_order`: what is cut short leaves nothing that could be taken for
    complete.
    """
    for checkpoint, folder in run.folders().items():
        prefix = layout.folder(checkpoint)
        for names in deletion_order(folder):
            if names:
                run.delete(prefix + name for name in names)
