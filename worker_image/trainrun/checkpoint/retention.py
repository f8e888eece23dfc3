"""Deleting the checkpoints that are no longer needed.

Layer: rules over `RunStore`; what may go is decided by `selection.superfluous`. Used by slot 0's
agent of the newest attempt alone. Invariants: manifest first, then markers, then files; nothing is
deleted by an attempt that is no longer the newest; what the listing shows to be damaged does not
count among those that are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint import layout
from trainrun.checkpoint.choice import View, inspect, look
from trainrun.checkpoint.selection import deletion_order, newest_first, superfluous
from trainrun.errors import CheckpointDamaged

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.protocol import CheckpointId


def retain(run: RunStore, *, attempt: int, keep: int) -> tuple[CheckpointId, ...]:
    """Delete what retention allows and return it, oldest first.

    Keeps the `keep` (at least two) newest complete checkpoints and the resume points of the last
    two attempts; nothing happens when a higher attempt than `attempt` exists. Raises StoreError.
    """
    view = look(run)
    if view.highest != attempt:
        return ()
    if any(number not in view.resumes for number in view.attempts[-2:]):
        return ()  # a resume point that cannot be read cannot be protected
    bad = view.bad | _damaged(run, view, keep=max(keep, 2))
    doomed = superfluous(view.folders, attempt=attempt, keep=keep, bad=bad, resumes=view.resumes)
    deleted = []
    for checkpoint in doomed:
        # Re-read each time: a deletion may take long, and from the claim of the next attempt on
        # nothing may go that its resolver could be looking at.
        if run.attempts()[-1:] != [attempt]:
            break
        prefix = layout.folder(checkpoint)
        for names in deletion_order(view.folders[checkpoint]):
            if names:
                run.delete(prefix + name for name in names)
        deleted.append(checkpoint)
    return tuple(deleted)


def _damaged(run: RunStore, view: View, *, keep: int) -> set[CheckpointId]:
    """The damaged ones among the newest, as far down as it takes to find `keep` good ones."""
    damaged: set[CheckpointId] = set()
    good = 0
    for folder in newest_first(view.folders, view.resumes):
        if good == keep:
            break
        if not folder.has_manifest or folder.id in view.bad:
            continue
        try:
            inspect(run, folder)
        except CheckpointDamaged:
            damaged.add(folder.id)
        else:
            good += 1
    return damaged
