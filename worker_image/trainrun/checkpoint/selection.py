"""Which checkpoints are complete, fenced, newest, best or superfluous.

Layer: pure functions over a listing and parsed records; callers do the reading. The rules are those
of docs/checkpoints.md: an id orders by (attempt, step); a checkpoint is *fenced* when a later
attempt started from an older one; retention never deletes the two newest complete checkpoints or
the resume points of the last two attempts, whatever their score. A checkpoint without a number for
the score's metric (not reported, NaN, a string or a boolean) ranks below all that have one; of
equal ones the newer ranks higher.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainrun.contract import layout
from trainrun.contract import metrics as contract_metrics
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from trainrun.checkpoint.records import AttemptRecord, DoneMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One row of a listing."""

    key: str
    """Relative to the store's URI."""
    size: int
    """Bytes."""
    modified: float
    """Seconds since the epoch by the store's clock: for display, never for decisions."""
    tag: str = ""
    """Changes with the content (S3: ETag); shows that a cached copy of a foreign file is stale."""


Order = Literal["Max", "Min"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A metric, and whether its highest or lowest value is best."""

    metric: str
    order: Order

    def of(self, metrics: Mapping[str, Any]) -> float | None:
        """The metric's value in the metrics of a manifest; None if it is not a number."""
        raw = metrics.get(self.metric)
        value = contract_metrics.decode({self.metric: raw}).get(self.metric)
        if isinstance(value, (bool, str)) or value is None or math.isnan(value):
            return None
        return float(value)

    def best_first(
        self, values: Mapping[CheckpointId, float], among: Iterable[CheckpointId]
    ) -> list[CheckpointId]:
        """Sort checkpoints; those without an entry in `values` come last."""

        def goodness(checkpoint: CheckpointId) -> tuple[bool, float, CheckpointId]:
            value = values.get(checkpoint, 0.0)
            return checkpoint in values, value if self.order == "Max" else -value, checkpoint

        return sorted(among, key=goodness, reverse=True)


Resumes = Mapping[int, "CheckpointId | None"]
"""The checkpoint that each attempt started from; None: from scratch. Unreadable records are left
out. For fences, a trial counts with the newer checkpoint that it skips until it has committed one
of its own (`left_behind`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One checkpoint as the listing shows it."""

    id: CheckpointId
    sizes: Mapping[str, int]
    """Bytes of each object, by its name within the checkpoint's folder."""
    modified: float
    """When its manifest (or else its newest object) was written; for display."""

    @property
    def has_manifest(self) -> bool:
        """Whether it was committed."""
        return layout.MANIFEST in self.sizes

    @property
    def done(self) -> frozenset[int]:
        """Workers with a done marker."""
        markers = (layout.read_marker(name) for name in self.sizes)
        return frozenset(worker for worker in markers if worker is not None)

    @property
    def described(self) -> frozenset[int]:
        """Workers that have described their part."""
        found = (layout.read_described(name) for name in self.sizes)
        return frozenset(worker for worker in found if worker is not None)


def group(listing: Iterable[ObjectInfo]) -> dict[CheckpointId, Folder]:
    """Group a listing of `checkpoints/` (keys relative to the run) by checkpoint."""
    found: dict[CheckpointId, dict[str, ObjectInfo]] = {}
    for item in listing:
        name, _, rest = item.key.removeprefix(layout.CHECKPOINTS).partition("/")
        checkpoint = CheckpointId.named(name)
        if checkpoint is not None and rest:
            found.setdefault(checkpoint, {})[rest] = item
    return {
        checkpoint: Folder(
            id=checkpoint,
            sizes={name: item.size for name, item in items.items()},
            modified=_modified(items),
        )
        for checkpoint, items in found.items()
    }


def _modified(items: Mapping[str, ObjectInfo]) -> float:
    manifest = items.get(layout.MANIFEST)
    return manifest.modified if manifest else max(item.modified for item in items.values())


def left_behind(
    records: Iterable[AttemptRecord], folders: Mapping[CheckpointId, Folder]
) -> Resumes:
    """By attempt, the checkpoint above which it fences."""
    records = tuple(records)
    started = {record.attempt: record.resume for record in records}
    committed = {folder.id.attempt for folder in folders.values() if folder.has_manifest}
    committed |= {
        record.resume.attempt
        for record in records
        if record.resume is not None and not record.staged
    }
    trials = {record.attempt: record.trial_of for record in records if record.trial_of is not None}
    return started | {
        number: trial_of for number, trial_of in trials.items() if number not in committed
    }


def fenced_by(checkpoint: CheckpointId, resumes: Resumes) -> int | None:
    """The first later attempt that started from something older; None: there is none.

    Attempts before the last one that started from this checkpoint do not fence it.
    """
    users = (attempt for attempt, resume in resumes.items() if resume == checkpoint)
    last = max([checkpoint.attempt, *users])
    for attempt in sorted(resumes):
        resume = resumes[attempt]
        if attempt > last and (resume is None or resume < checkpoint):
            return attempt
    return None


def all_parts_done(markers: Collection[DoneMarker]) -> bool:
    """Whether these are the markers of all workers of the checkpoint."""
    worlds = {marker.workers for marker in markers}
    return len(worlds) == 1 and {marker.worker for marker in markers} == set(range(worlds.pop()))


def newest_first(folders: Mapping[CheckpointId, Folder], resumes: Resumes) -> list[Folder]:
    """All checkpoints that are not fenced: an attempt may resume from them if they are good."""
    return [
        folders[checkpoint]
        for checkpoint in sorted(folders, reverse=True)
        if fenced_by(checkpoint, resumes) is None
    ]


def superfluous(
    folders: Mapping[CheckpointId, Folder],
    *,
    attempt: int,
    keep: int,
    bad: Collection[CheckpointId],
    resumes: Resumes,
    started: Collection[CheckpointId | None] = (),
    unread: Collection[CheckpointId] = (),
    score: Score | None = None,
    values: Mapping[CheckpointId, float] | None = None,
) -> list[CheckpointId]:
    """The checkpoints that retention may delete, oldest first; `attempt` is the newest attempt.

    Kept: the `keep` (at least two) newest complete checkpoints that are neither bad nor fenced, the
    resume points of the last two attempts (`started`: of trials, too), all that `attempt` may still
    be uploading, and those that could not be judged (`unread`). With a `score` (`values` holds the
    numbers that exist): the `keep` best ones and the two newest, instead of the `keep` newest.
    """
    keep = max(keep, 2)
    usable = [
        folder.id
        for folder in newest_first(folders, resumes)
        if folder.has_manifest and folder.id not in bad and folder.id not in unread
    ]
    newest = keep if score is None else 2
    recent = usable[:newest]
    best = score.best_first(values or {}, usable)[:keep] if score is not None else ()
    last_two = (resumes[number] for number in sorted(resumes)[-2:])
    protected = {*recent, *best, *unread, *last_two, *started}
    # While there are fewer, nothing of this attempt is old enough to delete.
    enough = len(recent) >= newest
    horizon = recent[-1] if enough else CheckpointId(attempt=attempt, step=0)
    return [
        checkpoint
        for checkpoint in sorted(folders)
        if checkpoint not in protected
        and (checkpoint.attempt < attempt or checkpoint < horizon)
        and checkpoint.attempt <= attempt
        and not _is_last_resort(checkpoint, usable=usable, folders=folders)
    ]


def _is_last_resort(
    checkpoint: CheckpointId,
    *,
    usable: Collection[CheckpointId],
    folders: Mapping[CheckpointId, Folder],
) -> bool:
    """With fewer than two usable checkpoints, no committed checkpoint is deleted."""
    return len(usable) < 2 and folders[checkpoint].has_manifest


def deletion_order(folder: Folder) -> tuple[list[str], list[str], list[str]]:
    """The object names to delete, in three rounds: manifest, markers, files.

    In this order, the rest of an interrupted deletion never looks complete.
    """
    manifest = [name for name in folder.sizes if name == layout.MANIFEST]
    markers = [name for name in folder.sizes if layout.read_marker(name) is not None]
    files = [name for name in folder.sizes if name not in {*manifest, *markers}]
    return manifest, markers, files
