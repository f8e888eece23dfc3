"""Deletes checkpoints that are no longer needed.

Layer: rules over `RunStore`; `selection.superfluous` decides what to delete. Used only by slot 0's
agent of the newest attempt, and for trials that are no longer needed. Invariants: manifest first,
then markers, then files; an attempt that is no longer the newest deletes nothing; checkpoints that
the listing shows as damaged do not count among the kept ones.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.checkpoint.choice import StoreView, inspect, look
from trainrun.checkpoint.selection import Folder, deletion_order, newest_first, superfluous
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trainrun.checkpoint.run_store import RunStore
    from trainrun.checkpoint.selection import Score

PROTECTED = 2
"""Number of newest attempts whose resume points and votes are kept."""


def retain(
    run: RunStore, *, attempt: int, keep: int, score: Score | None = None
) -> tuple[CheckpointId, ...]:
    """Delete the checkpoints that retention allows to delete and return them, oldest first.

    Keeps the `keep` (at least two) newest complete checkpoints, or the `keep` best ones by `score`
    and the two newest, and the resume points of the last two attempts; also deletes ballots of
    earlier attempts. Does nothing when an attempt higher than `attempt` exists. Raises StoreError.
    """
    view = look(run)
    if view.highest != attempt:
        return ()
    if any(number not in view.resumes for number in view.attempts[-PROTECTED:]):
        return ()  # a resume point that cannot be read cannot be protected
    started = {claim.resume for claim in view.claims if claim.attempt in view.attempts[-PROTECTED:]}
    stored = {checkpoint for checkpoint, folder in view.folders.items() if folder.has_manifest}
    _abort_uploads(run, attempt=attempt, spared=started - stored)
    _delete_votes(run, view.attempts)
    judged = _judge(run, view, enough=max(keep, 2) if score is None else None, score=score)
    deletable = superfluous(
        view.folders,
        attempt=attempt,
        keep=keep,
        bad=view.bad | judged.damaged,
        resumes=view.resumes,
        started=started,
        unread=judged.unread,
        score=score,
        values=judged.values,
    )
    deleted = []
    for checkpoint in deletable:
        # Check each time: a deletion may take long, and once the next attempt is claimed, nothing
        # may be deleted that its agent could be reading.
        if run.attempts()[-1:] != [attempt]:
            break
        _delete(run, view.folders[checkpoint])
        deleted.append(checkpoint)
    return tuple(deleted)


def _abort_uploads(run: RunStore, *, attempt: int, spared: Collection[CheckpointId | None]) -> None:
    """Abort unfinished uploads of lower attempts: their agents were killed. `spared`: resume points
    that started from the workers' disks and are stored meanwhile."""

    def is_lower(key: str) -> bool:
        checkpoint = CheckpointId.named(key.removeprefix(prefix).partition("/")[0])
        return checkpoint is not None and checkpoint.attempt < attempt and checkpoint not in spared

    prefix = run.key(layout.CHECKPOINTS)
    # Some servers and accounts cannot list uploads; what is left only takes up space.
    with contextlib.suppress(StoreError):
        run.store.abort_uploads(prefix, of=is_lower)


def _delete_votes(run: RunStore, attempts: Sequence[int]) -> None:
    """Delete the votes of agents of all attempts before the last two: they are not counted."""
    if len(attempts) <= PROTECTED:
        return
    first = attempts[-PROTECTED]
    numbers = ((item.key, layout.vote_attempt(item.key)) for item in run.objects(layout.SAVES))
    run.delete([key for key, number in numbers if number is not None and number < first])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """The content of the manifests, as far as they were read."""

    damaged: set[CheckpointId] = field(default_factory=set)
    unread: set[CheckpointId] = field(default_factory=set)
    """Checkpoints whose manifest this node cannot read; another may, so they are kept as well."""
    values: dict[CheckpointId, float] = field(default_factory=dict)
    """Values of the score's metric, where it is a number."""


def _judge(run: RunStore, view: StoreView, *, enough: int | None, score: Score | None) -> _Judged:
    """Read the manifests, newest first, until `enough` good ones are found (None: all)."""
    judged, good = _Judged(), 0
    for folder in newest_first(view.folders, view.resumes):
        if good == enough:
            break
        if not folder.has_manifest or folder.id in view.bad:
            continue
        try:
            manifest = inspect(run, folder)
        except CheckpointDamaged as error:
            (judged.unread if error.file else judged.damaged).add(folder.id)
            continue
        good += 1
        if score is not None and (value := score.of(manifest.metrics)) is not None:
            judged.values[folder.id] = value
    return judged


def clear_checkpoints(run: RunStore) -> None:
    """Delete all checkpoints of a folder that is not in use. Raises StoreError.

    Uses `deletion_order`: the rest of an interrupted deletion never looks complete.
    """
    for folder in run.folders().values():
        _delete(run, folder)


def _delete(run: RunStore, folder: Folder) -> None:
    for names in deletion_order(folder):
        if names:
            run.delete(layout.folder(folder.id) + name for name in names)
