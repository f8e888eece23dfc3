"""Read-only view of a run's folder: its checkpoints, a check of one, the next resume point.

Layer: rules over `RunStore`; used by `trainrun checkpoints`. Invariant: the next resume point is
the answer of `resolve` over a store that ignores writes; this module makes no choice itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from trainrun.checkpoint.choice import StoreView, inspect, look, recorded_reason
from trainrun.checkpoint.ownership import BeatWatch, owner_uid
from trainrun.checkpoint.reader import check_file_name, read_manifest
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.selection import Folder, fenced_by
from trainrun.checkpoint.writer import merged_parts
from trainrun.contract import layout
from trainrun.contract.answer import ResolveRequest
from trainrun.errors import CacheUnusable, CheckpointConflict, CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainrun.checkpoint.records import Manifest
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.checkpoint.selection import ObjectInfo
    from trainrun.checkpoint.stores.store import ObjectStore, Range
    from trainrun.contract.agent_state import Resolution
    from trainrun.contract.checkpoint_id import CheckpointId

TRIES = 5
"""Tries: while the run is active, a new attempt or checkpoint may invalidate an answer."""

State = Literal["good", "incomplete", "fenced", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One line of `trainrun checkpoints`."""

    id: CheckpointId
    state: State
    """good: an attempt may resume from it; incomplete: parts are missing; fenced: a later attempt
    started from something older; bad: set aside, or damaged."""
    reason: str = ""
    """Why it is not good."""
    files: int = 0
    size_bytes: int = 0
    """Total size of the ranks' files."""
    modified: float = 0.0
    """When it was committed: seconds since the epoch by the store's clock."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """The metrics in its manifest (present or future), JSON-safe; empty if it is unreadable."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Likewise."""


def list_checkpoints(run: RunStore) -> list[CheckpointInfo]:
    """All checkpoints of a run, oldest first, judged by the listing and the manifests.

    Leaves out those that retention deletes during the call. Raises StoreError.
    """
    view = look(run)
    judged = [_judge(run, view, view.folders[key])[0] for key in sorted(view.folders)]
    return [
        info
        for info in judged
        if info.state != "bad" or not _was_deleted(run, view.folders[info.id])
    ]


def verify(run: RunStore, checkpoint: CheckpointId) -> CheckpointInfo:
    """Read a whole checkpoint and compare all checksums.

    One that only lacks its manifest is read as the next start would commit it. Needs room for the
    largest file in the temporary folder. Raises ObjectNotFound when the checkpoint does not exist
    or was deleted, CacheUnusable when the temporary folder cannot be used, StoreError.
    """
    view = look(run)
    folder = view.folders.get(checkpoint)
    if folder is None:
        raise ObjectNotFound(f"{run.uri} has no checkpoint {checkpoint.name}")
    info, manifest = _judge(run, view, folder)
    try:
        if manifest is not None:
            _read_all(run, manifest)
    except CheckpointDamaged as error:
        info = replace(info, state="bad", reason=str(error))
    except OSError as error:
        raise CacheUnusable(
            f"cannot read {checkpoint.name} into {tempfile.gettempdir()}: {error.strerror}; "
            "make room there, or set TMPDIR"
        ) from error
    if info.state == "bad" and _was_deleted(run, folder):
        raise ObjectNotFound(f"{run.uri}: {checkpoint.name} was deleted during the check")
    return info


def manifest_to_read(run: RunStore, checkpoint: CheckpointId) -> Manifest:
    """The manifest, or if it is missing, the one that the next start would write.

    Raises CheckpointDamaged (also when parts are missing), CheckpointConflict, StoreError.
    """
    try:
        return read_manifest(run, checkpoint)
    except CheckpointDamaged as error:
        missing = isinstance(error.__cause__, ObjectNotFound)
        merged = merged_parts(run, run.folder(checkpoint)) if missing else None
        if merged is None:
            raise
        return merged.manifest


def _was_deleted(run: RunStore, folder: Folder) -> bool:
    """Whether a checkpoint looks damaged because it is being deleted, or was, since the listing.

    The manifest is deleted first, and markers before files: see `deletion_order`.
    """
    now = run.folder(folder.id)
    if now.has_manifest:
        return False
    if not folder.has_manifest:
        return not folder.done <= now.done
    key = layout.folder(folder.id) + layout.MANIFEST
    return run.store.size(run.key(key)) is None  # the listing may be late


def _judge(
    run: RunStore, view: StoreView, folder: Folder
) -> tuple[CheckpointInfo, Manifest | None]:
    """The state, and the present or future manifest; None: the checkpoint is bad or incomplete."""
    manifest, problem = _manifest(run, view, folder)
    state, reason = _state(view, folder, manifest, problem=problem)
    plain = [size for name, size in folder.sizes.items() if layout.worker_of(name) >= 0]
    info = CheckpointInfo(
        id=folder.id,
        state=state,
        reason=reason,
        files=len(plain),
        size_bytes=sum(plain),
        modified=folder.modified,
        metrics=manifest.metrics if manifest is not None else {},
        metadata=manifest.metadata if manifest is not None else {},
    )
    return info, manifest


def _manifest(run: RunStore, view: StoreView, folder: Folder) -> tuple[Manifest | None, str]:
    """The manifest if it is sound, and the fault of the checkpoint if it has one."""
    if folder.id in view.bad:
        return None, recorded_reason(run, folder.id)
    try:
        return inspect(run, folder) if folder.has_manifest else _next(run, view, folder), ""
    except CheckpointDamaged as error:
        return None, str(error)


def _state(
    view: StoreView, folder: Folder, manifest: Manifest | None, *, problem: str
) -> tuple[State, str]:
    if problem:
        return "bad", problem
    if not folder.has_manifest:
        if manifest is not None:
            return "good", "all parts are stored; the next start commits it"
        parts = (("done", folder.done), ("on their disks", folder.described - folder.done))
        texts = [
            f"{what}: workers {', '.join(map(str, sorted(workers)))}"
            for what, workers in parts
            if workers
        ]
        return "incomplete", "; ".join(["no manifest", *texts])
    if (attempt := fenced_by(folder.id, view.resumes)) is not None:
        return "fenced", f"attempt {attempt} started from something older"
    return "good", ""


def _next(run: RunStore, view: StoreView, folder: Folder) -> Manifest | None:
    """The manifest that the next start would commit: all parts exist, and nothing newer is
    committed. None: it would not commit this one."""
    newer = any(key > folder.id and other.has_manifest for key, other in view.folders.items())
    if newer or fenced_by(folder.id, view.resumes) is not None:
        return None
    try:
        merged = merged_parts(run, folder)
    except (CheckpointConflict, CheckpointDamaged, ObjectNotFound):
        return None
    return merged.manifest if merged is not None else None


def _read_all(run: RunStore, manifest: Manifest) -> None:
    prefix = layout.folder(manifest.id)
    with tempfile.TemporaryDirectory(prefix="trainrun-verify-") as scratch:
        path = Path(scratch, "file")
        for item in manifest.files:
            check_file_name(item.name, manifest=f"{manifest.id.name}/{layout.MANIFEST}")
            name = layout.file_name(item.worker, item.name)
            try:
                run.store.get_file(run.key(prefix + name), path, size=item.size, crc32=item.crc32)
            except ObjectNotFound as error:
                raise CheckpointDamaged(f"{name}: missing") from error
            path.unlink()


def next_resolution(run: RunStore) -> Resolution:
    """The answer to an agent that claimed the next attempt now, for the run's last owner.

    It does not matter whether that owner is alive. Raises StoreError.
    """
    found = _ask(run)
    for _ in range(TRIES - 1):
        if found.outcome not in ("Behind", "InUse"):
            break
        found = _ask(run)
    return found


def _ask(run: RunStore) -> Resolution:
    return resolve(
        replace(run, store=ReadOnlyStore(run.store)),
        ResolveRequest(attempt=max(run.attempts(), default=0) + 1),
        uid=owner_uid(run),
        generation=run.generation,
        watch=BeatWatch(),
    )


@dataclass(frozen=True, slots=True)
class ReadOnlyStore:
    """An `ObjectStore` over another one: passes reads through and ignores writes.

    Each write returns what the real store would return and changes nothing, so this store does not
    suit code that reads back what it has just written.
    """

    store: ObjectStore

    @property
    def uri(self) -> str:
        """The URI of the store."""
        return self.store.uri

    def put(self, key: str, data: bytes) -> None:
        """Write nothing."""

    def put_file(self, *_: object, **__: object) -> NoReturn:
        """Nobody does that here."""
        raise NotImplementedError("an inspection uploads no files")

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Whether it would be written, or already has this content."""
        try:
            return self.store.get(key) == data
        except ObjectNotFound:
            return True

    def get(self, key: str) -> bytes:
        """Read it."""
        return self.store.get(key)

    def size(self, key: str) -> int | None:
        """Its size."""
        return self.store.size(key)

    def get_file(
        self,
        key: str,
        path: Path,
        *,
        size: int,
        crc32: int | None,
        tag: str = "",
        ranges: Sequence[Range] = (),
    ) -> None:
        """Read it."""
        self.store.get_file(key, path, size=size, crc32=crc32, tag=tag, ranges=ranges)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """List it."""
        return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove nothing."""

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """Abort nothing."""

    def close(self) -> None:
        """Close it."""
        self.store.close()

    def probe(self) -> None:
        """Test nothing."""
