"""What is in a run's folder, for people: the list of checkpoints, and a full check of one.

Layer: rules over `RunStore`, read-only; used by `trainrun checkpoints`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainrun.checkpoint.choice import StoreView, inspect, look, recorded_reason
from trainrun.checkpoint.rules.selection import Folder, all_parts_done, fenced_by
from trainrun.checkpoint.transfer.reader import check_file_name
from trainrun.contract import layout
from trainrun.errors import CacheUnusable, CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from trainrun.checkpoint.rules.records import Manifest
    from trainrun.checkpoint.stores.run_store import RunStore
    from trainrun.contract.checkpoint_id import CheckpointId

State = Literal["good", "incomplete", "fenced", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One line of `trainrun checkpoints`."""

    id: CheckpointId
    state: State
    """good: may be resumed from; incomplete: parts are missing; fenced: a later attempt started
    from something older; bad: set aside, or damaged."""
    reason: str = ""
    """Why it is not good."""
    files: int = 0
    size_bytes: int = 0
    """Of all its objects that are files of ranks."""
    modified: float = 0.0
    """When it was committed: seconds since the epoch by the store's clock."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """As its manifest holds them, JSON-safe; empty where that cannot be read."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Likewise."""


def list_checkpoints(run: RunStore) -> list[CheckpointInfo]:
    """All checkpoints of a run, oldest first, judged by the listing and the manifests.

    Raises StoreError.
    """
    view = look(run)
    return [_judge(run, view, view.folders[key]) for key in sorted(view.folders)]


def verify(run: RunStore, checkpoint: CheckpointId) -> CheckpointInfo:
    """Read a checkpoint from the first byte to the last and compare all checksums.

    Needs room for its largest file in the temporary folder. Raises ObjectNotFound when there is no
    such checkpoint, CacheUnusable when the temporary folder cannot be used, StoreError.
    """
    view = look(run)
    if checkpoint not in view.folders:
        raise ObjectNotFound(f"{run.uri}: there is no checkpoint {checkpoint.name}")
    folder = view.folders[checkpoint]
    info = _judge(run, view, folder)
    if not folder.has_manifest or info.state == "bad":
        return info
    try:
        _read_all(run, inspect(run, folder))
    except CheckpointDamaged as error:
        return replace(info, state="bad", reason=str(error))
    except OSError as error:
        raise CacheUnusable(
            f"cannot read {checkpoint.name} into {tempfile.gettempdir()}: {error.strerror}; "
            "make room there, or set TMPDIR"
        ) from error
    return info


def _judge(run: RunStore, view: StoreView, folder: Folder) -> CheckpointInfo:
    manifest, problem = _manifest(run, view, folder)
    state, reason = _state(run, view, folder, problem=problem)
    plain = [
        size
        for name, size in folder.sizes.items()
        if name != layout.MANIFEST and layout.read_marker(name) is None
    ]
    return CheckpointInfo(
        id=folder.id,
        state=state,
        reason=reason,
        files=len(plain),
        size_bytes=sum(plain),
        modified=folder.modified,
        metrics=manifest.metrics if manifest is not None else {},
        metadata=manifest.metadata if manifest is not None else {},
    )


def _manifest(run: RunStore, view: StoreView, folder: Folder) -> tuple[Manifest | None, str]:
    """The manifest, where there is a sound one, or what is wrong with the checkpoint."""
    if folder.id in view.bad:
        return None, recorded_reason(run, folder.id)
    try:
        return inspect(run, folder) if folder.has_manifest else None, ""
    except CheckpointDamaged as error:
        return None, str(error)


def _state(run: RunStore, view: StoreView, folder: Folder, *, problem: str) -> tuple[State, str]:
    if problem:
        return "bad", problem
    if not folder.has_manifest:
        if _waits_for_its_manifest(run, view, folder):
            return "good", "every part is there; the next start commits it"
        done = ", ".join(str(worker) for worker in sorted(folder.done))
        return "incomplete", f"no manifest; done: workers {done}" if done else "no manifest"
    if (attempt := fenced_by(folder.id, view.resumes)) is not None:
        return "fenced", f"attempt {attempt} started from something older"
    return "good", ""


def _waits_for_its_manifest(run: RunStore, view: StoreView, folder: Folder) -> bool:
    """Whether the next start would commit it: all parts there, nothing newer committed."""
    newer = any(key > folder.id and other.has_manifest for key, other in view.folders.items())
    if newer or not folder.done or fenced_by(folder.id, view.resumes) is not None:
        return False
    try:
        return all_parts_done(run.markers(folder))
    except (CheckpointDamaged, ObjectNotFound):
        return False


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
