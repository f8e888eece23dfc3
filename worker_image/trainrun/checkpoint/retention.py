"""Deleting the checkpoints that are no longer needed.

Layer: rules over `RunStore`; what may go is decided by `selection.superfluous`. Used by slot 0's
agent of the newest attempt alone. Invariants: manifest first, then markers, then files; nothing is
deleted by an attempt that is no longer the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint import layout
from trainrun.checkpoint.choice import look
from trainrun.checkpoint.selection import deletion_order, superfluous

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
    doomed = superfluous(
        view.folders, attempt=attempt, keep=keep, bad=view.bad, resumes=view.resumes
    )
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
