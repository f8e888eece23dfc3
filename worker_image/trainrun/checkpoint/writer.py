"""Uploads a checkpoint: the part of each worker, then the commit.

Layer: rules over `RunStore`, used by the agent. Invariants: files first, then the worker's done
marker, then the manifest, each only after the previous one is durable; markers and manifests are
write-once; a call repeated after any failure continues where it stopped; a name that some store
cannot hold is refused here, with a clear message. Callers must not call this for an attempt once
they have joined a higher one; the fence is for agents that cannot be reached.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainrun._common.tree import mode_of, time_of, walk
from trainrun.checkpoint.merge import Merged, merge_others, merge_ranks, merge_workers
from trainrun.checkpoint.ownership import owner_uid
from trainrun.checkpoint.records import BadRecord, DoneMarker, FinishedRecord, Manifest, PartFile
from trainrun.checkpoint.selection import Folder, all_parts_done, fenced_by
from trainrun.checkpoint.stores.parts import CONNECTIONS
from trainrun.checkpoint.stores.store import changed_file
from trainrun.contract import layout
from trainrun.contract.answer import OpenStep
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import (
    CheckpointConflict,
    CheckpointDamaged,
    CheckpointFenced,
    CheckpointUnfinished,
    StoreError,
    StoreMisconfigured,
    TransferCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainrun._common.tree import TreeEntry
    from trainrun.checkpoint.run_store import RunStore

CHUNK = 4 << 20
"""Bytes per read while a checksum is computed."""
UNKNOWN = -1
"""Checksum of a file that has not been read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A file, folder or link that a rank saved for a checkpoint."""

    name: str
    """Relative path within the directory that the rank saved."""
    path: Path
    """Its current path."""
    rank: int
    """Global rank."""
    other: TreeEntry | None = None
    """Its entry if it is a folder or link; None: a file."""


@dataclass(slots=True)
class Upload:
    """Progress of the upload of one worker's part, and a way to cancel it. Thread-safe.

    Passing the same object to a repeated `write_part` skips the files that are already stored.
    """

    arrived: dict[str, PartFile] = field(default_factory=dict)
    """Files that earlier calls stored, by name."""
    doubted: set[str] = field(default_factory=set)
    """Those of them that are compared once more with what is on the disk."""
    summed: dict[tuple[int, str], PartFile] = field(default_factory=dict)
    """Files that were summed while nothing was uploaded, by rank and name."""
    _cancelled: bool = False

    def restart(self, *, doubt: bool = False) -> Upload:
        """Cancel this one; return one that continues where it stopped, and may `doubt` its files.
        They share what arrived: a call that is being cancelled may still store a file."""
        self.cancel()
        doubted = set(self.arrived) if doubt else self.doubted
        return Upload(self.arrived, doubted, self.summed)

    def cancel(self) -> None:
        """Make the running call raise TransferCancelled within one chunk."""
        self._cancelled = True

    def advance(self, _count: int) -> None:
        """Called with the number of bytes moved. Raises TransferCancelled after `cancel`."""
        if self._cancelled:
            raise TransferCancelled("the upload was cancelled")


def scan(directory: Path, *, rank: int) -> list[LocalFile]:
    """All files, folders and links below a directory that `rank` saved.

    Raises CheckpointConflict for names that some store cannot hold, OSError if it is unreadable.
    """
    found = []
    for entry in walk(directory):
        if reason := layout.unstorable(entry.name):
            raise CheckpointConflict(f"rank {rank} saved {entry.name!r}: {reason}")
        other = replace(entry, ranks=(rank,)) if entry.folder or entry.target else None
        path = directory / entry.name
        found.append(LocalFile(name=entry.name, path=path, rank=rank, other=other))
    return found


def write_part(
    run: RunStore,
    *,
    attempt: int,
    step: int,
    worker: int,
    workers: int,
    files: Sequence[LocalFile],
    metrics: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    whole: bool = False,
    unchanged: Callable[[], None] = lambda: None,
    upload: Upload | None = None,
    described: DoneMarker | None = None,
) -> Manifest | None:
    """Store one worker's part of a checkpoint, then its done marker (`whole`: the manifest).

    `workers` is the number of workers of the attempt; `metrics` and `metadata` are JSON-safe;
    `unchanged` is called once all files are stored, and raises if they are not those that were
    reported. `described` is what processes may have started from. Returns the manifest when this
    call committed the checkpoint (`whole`). May be repeated after any error.
    Raises CheckpointConflict, CheckpointUnfinished if the part is not as it was `described`,
    StoreError, TransferCancelled, and OSError for errors of a local file.
    """
    checkpoint, upload = CheckpointId(attempt=attempt, step=step), upload or Upload()
    parts = _store_files(
        run, checkpoint, worker, [item for item in files if item.other is None], upload
    )
    marker = done_marker(
        checkpoint,
        parts,
        files,
        worker=worker,
        workers=workers,
        metrics=metrics,
        metadata=metadata or {},
    )
    unchanged()
    # Check again: a cancelled upload's directory is being removed, and an empty part would count.
    upload.advance(0)
    if described is not None and not same_part(marker, described):
        raise _changed_since(described, marker)
    if whole:
        return _commit_whole(run, marker)
    name = layout.marker_name(worker)
    key = layout.folder(checkpoint) + name
    if not run.write_once(key, marker) and not same_part(marker, run.read(DoneMarker, key)):
        raise CheckpointConflict(
            f"{checkpoint.name}: {name} already exists with different content: worker {worker} "
            f"reported step {step} twice, or two workers have this number"
        )
    return None


def done_marker(
    checkpoint: CheckpointId,
    parts: tuple[PartFile, ...],
    files: Sequence[LocalFile],
    *,
    worker: int,
    workers: int,
    metrics: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> DoneMarker:
    """The marker of a worker's part: `parts` are those of its `files` that have content."""
    others = (item.other for item in files if item.other is not None)
    return DoneMarker(
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        worker=worker,
        workers=workers,
        files=parts,
        others=merge_others(others, step=checkpoint.step),
        metrics=dict(metrics),
        metadata=dict(metadata),
    )


def commit_if_complete(run: RunStore, *, attempt: int, step: int) -> Manifest | None:
    """Commit a checkpoint when all workers' done markers exist; None while some are missing.

    Safe to repeat and to run concurrently. Raises CheckpointConflict (two workers saved a name with
    different content), CheckpointDamaged (a file that a marker names is missing), StoreError.
    """
    folder = run.folder(CheckpointId(attempt=attempt, step=step))
    if folder.has_manifest:
        return run.manifest(folder.id)
    return commit_folder(run, folder)


def commit_folder(run: RunStore, folder: Folder) -> Manifest | None:
    """Like `commit_if_complete`, for a listed folder without a manifest."""
    merged = merged_parts(run, folder)
    if merged is None:
        return None
    manifest = merged.manifest
    if not run.write_once(layout.folder(manifest.id) + layout.MANIFEST, manifest):
        manifest = run.manifest(manifest.id)  # differs if of another layout version or `whole`
    _delete_unnamed(run, manifest, merged.duplicates)
    return manifest


def merged_parts(run: RunStore, folder: Folder) -> Merged | None:
    """The manifest that a folder without one would get; raises like `commit_if_complete`."""
    if not folder.done:
        return None
    first = run.read(DoneMarker, layout.folder(folder.id) + layout.marker_name(min(folder.done)))
    if folder.done != frozenset(range(first.workers)):
        return None  # the common case while other workers upload; it costs one small read
    markers = run.markers(folder)
    if not all_parts_done(markers):
        raise CheckpointDamaged(f"{folder.id.name}: its done markers contradict each other")
    merged = merge_workers(markers)
    # Only files that the manifest would name must exist: the agent that committed it before may
    # have deleted the duplicates.
    if reason := run.damage(folder, merged.manifest):
        raise CheckpointDamaged(f"{folder.id.name}/{reason}")
    return merged


def open_steps(run: RunStore, *, attempt: int) -> tuple[OpenStep, ...]:
    """Steps of an attempt that some worker has begun to store and that are not committed yet.

    A worker without files must write its done marker for these steps.
    """
    folders = run.folders()
    return tuple(
        OpenStep(step=checkpoint.step, slots=tuple(sorted(folders[checkpoint].done)))
        for checkpoint in sorted(folders)
        if checkpoint.attempt == attempt and not folders[checkpoint].has_manifest
    )


def set_aside(run: RunStore, checkpoint: CheckpointId, reason: str) -> None:
    """Record that a checkpoint is damaged: no attempt resumes from it again.

    Deleting the record by hand undoes that. Raises StoreError.
    """
    record = BadRecord(attempt=checkpoint.attempt, step=checkpoint.step, reason=reason)
    run.write_once(layout.bad_key(checkpoint), record)


def check_fence(run: RunStore, checkpoint: CheckpointId) -> None:
    """Check, right after a commit, that the checkpoint is not fenced.

    An attempt claimed from now on sees the commit; one claimed before fences it. Raises
    CheckpointFenced, StoreError.
    """
    later = [number for number in run.attempts() if number > checkpoint.attempt]
    attempt = fenced_by(checkpoint, run.resumes(later))
    if attempt is not None:
        raise CheckpointFenced(
            f"{checkpoint.name} is never used: attempt {attempt} in {run.uri} started from an "
            "older one, because another TrainRun took over this storage. Give each TrainRun its "
            "own storage.runName"
        )


def finish(run: RunStore, *, uid: str) -> None:
    """Record that the run of the TrainRun `uid` has succeeded, so that it is not started again.

    Raises StoreMisconfigured when another TrainRun has taken over the storage, StoreError.
    """
    owner = owner_uid(run)
    if owner not in ("", uid):
        raise StoreMisconfigured(
            f"{run.uri} now belongs to TrainRun uid {owner}, which must mark it finished itself"
        )
    run.write_once(layout.FINISHED, FinishedRecord(uid=uid))


# ---------------------------------------------------------------------- details


def _store_files(
    run: RunStore,
    checkpoint: CheckpointId,
    worker: int,
    files: Sequence[LocalFile],
    upload: Upload,
) -> tuple[PartFile, ...]:
    """Upload the files of a worker's ranks, each content once; return the stored files."""
    # Only a name that several ranks brought is compared before it is sent. Other files are read
    # once: the checksum is that of the bytes that went to the store.
    brought = Counter([*(item.name for item in files), *upload.doubted])
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        described = pool.map(lambda item: describe_file(item, read=brought[item.name] > 1), files)
        parts = merge_ranks(described, step=checkpoint.step)
        first = {(item.name, item.rank): item for item in files}

        def send(part: PartFile) -> PartFile:
            upload.advance(0)
            known, local = part.crc32 != UNKNOWN, first[part.name, part.ranks[0]]
            sent = upload.arrived.get(part.name)
            if sent is None or (sent if known else replace(sent, crc32=UNKNOWN)) != part:
                crc32 = run.store.put_file(
                    run.key(layout.folder(checkpoint) + layout.file_name(worker, part.name)),
                    local.path,
                    crc32=part.crc32 if known else None,
                    progress=upload.advance,
                )
                now = describe_file(local, read=False)
                if (now.size, now.modified) != (part.size, part.modified):
                    raise changed_file(local.path)
                sent = upload.arrived[part.name] = replace(part, crc32=crc32)
            upload.doubted.discard(part.name)  # not before: another call may follow a failed one
            return sent

        return tuple(pool.map(send, parts))


def describe_file(item: LocalFile, *, read: bool) -> PartFile:
    """What is known of a file; its checksum is UNKNOWN unless it is `read`."""
    crc32 = 0 if read else UNKNOWN
    with item.path.open("rb", buffering=0) as source:
        while read and (data := source.read(CHUNK)):
            crc32 = zlib.crc32(data, crc32)
        facts = os.fstat(source.fileno())
    return PartFile(
        name=item.name,
        size=facts.st_size,
        crc32=crc32,
        ranks=(item.rank,),
        mode=mode_of(facts),
        modified=time_of(facts),
    )


def _changed_since(described: DoneMarker, now: DoneMarker) -> CheckpointUnfinished:
    before, after = (
        {(item.name, item.size, item.crc32) for item in marker.files}
        | {(item.name, item.target, item.ranks) for item in marker.others}
        for marker in (described, now)
    )
    name = min((str(item[0]) for item in before ^ after), default="what was reported")
    return CheckpointUnfinished(
        f"{name} of step {now.step} has changed on the disk of worker {now.worker} since it was "
        "summed, so no attempt resumes from this checkpoint again. Check that nothing writes to "
        "checkpoints, and the disk"
    )


def same_part(one: DoneMarker, other: DoneMarker) -> bool:
    """Whether the markers are equal, except for file modes and times: these change when the same
    content is saved again."""

    def timeless(marker: DoneMarker) -> DoneMarker:
        files = tuple(replace(item, mode=0, modified=0) for item in marker.files)
        others = tuple(replace(item, mode=0, modified=0) for item in marker.others)
        return replace(marker, files=files, others=others)

    return timeless(one) == timeless(other)


def _commit_whole(run: RunStore, marker: DoneMarker) -> Manifest:
    manifest = replace(merge_workers([marker]).manifest, whole=True)
    if run.write_once(layout.folder(manifest.id) + layout.MANIFEST, manifest):
        return manifest
    there = run.manifest(manifest.id)
    contents = {(item.name, item.size, item.crc32) for item in manifest.files}
    if contents != {(item.name, item.size, item.crc32) for item in there.files}:
        ranks = sorted({rank for item in there.files for rank in item.ranks})
        ours = sorted({rank for item in manifest.files for rank in item.ranks})
        raise CheckpointConflict(
            f"checkpoint of step {marker.step}: rank {_first(ours)} and rank {_first(ranks)} both "
            "reported files with whole=True, and they differ; report whole=True only from the rank "
            "that saves everything, or leave it out on all ranks"
        )
    _delete_unnamed(run, there, [(marker.worker, item.name) for item in manifest.files])
    return there


def _delete_unnamed(run: RunStore, manifest: Manifest, files: Iterable[tuple[int, str]]) -> None:
    """Delete these (worker, file) pairs unless the stored manifest names them.

    A failed deletion is left to the deletion of the checkpoint.
    """
    named = {(item.worker, item.name) for item in manifest.files}
    with contextlib.suppress(StoreError):
        run.delete(
            layout.folder(manifest.id) + layout.file_name(worker, name)
            for worker, name in files
            if (worker, name) not in named
        )


def _first(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if ranks else "?"
