"""Merges the files of several ranks into one directory.

Layer: pure; conflicts raise an error that names both ranks and the remedy. Invariants: a name has
one content; the same name with the same size and CRC32 counts as the same file and is stored once;
no name is a folder of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from trainrun.checkpoint.records import DoneMarker, Manifest, ManifestFile, PartFile
from trainrun.errors import CheckpointConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainrun._common.tree import TreeEntry

F = TypeVar("F", bound=PartFile)

REMEDY = (
    "give each rank's file its own name, such as model-rank{rank}.pt; where the ranks save into "
    "one folder, call torch.distributed.barrier() before they report it, or report a separate "
    "directory from each rank. whole=True is for a rank that saves everything itself"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A manifest, and the objects that it makes redundant."""

    manifest: Manifest
    duplicates: tuple[tuple[int, str], ...]
    """(worker, file) pairs whose content the manifest lists under another worker."""


def merge_ranks(files: Iterable[PartFile], *, step: int) -> tuple[PartFile, ...]:
    """Merge the files of the ranks of one worker, ordered by name.

    Raises CheckpointConflict.
    """
    merged = _merged(sorted(files, key=lambda item: (item.name, item.ranks)), step=step)
    _check_folders(merged, step=step)
    return merged


def merge_others(entries: Iterable[TreeEntry], *, step: int) -> tuple[TreeEntry, ...]:
    """Merge folders and links likewise; a folder gets the latest time of its parts."""
    merged: dict[str, TreeEntry] = {}
    for item in sorted(entries, key=lambda item: (item.name, item.ranks)):
        first = merged.setdefault(item.name, item)
        if first.target != item.target:
            raise CheckpointConflict(
                f"checkpoint of step {step}: {item.name!r} of rank {first.ranks[0]} links to "
                f"{first.target or 'a folder'!r} and that of rank {item.ranks[0]} to "
                f"{item.target or 'a folder'!r}; {REMEDY}"
            )
        modified = max(first.modified, item.modified)
        ranks = _union(first.ranks, item.ranks)
        merged[item.name] = replace(first, ranks=ranks, modified=modified)
    return tuple(merged.values())


def merge_workers(markers: Sequence[DoneMarker]) -> Merged:
    """Merge the parts of all workers of a checkpoint (at least one) into its manifest.

    Raises CheckpointConflict.
    """
    ordered = sorted(markers, key=lambda marker: marker.worker)
    first = ordered[0]
    stored = [_stored(item, worker=marker.worker) for marker in ordered for item in marker.files]
    files = _merged(stored, step=first.step)
    named = {(item.worker, item.name) for item in files}
    others = merge_others((item for marker in ordered for item in marker.others), step=first.step)
    _check_folders(files, others, step=first.step)
    manifest = Manifest(
        attempt=first.attempt,
        step=first.step,
        workers=first.workers,
        files=files,
        others=others,
        metrics=next((marker.metrics for marker in ordered if marker.metrics), {}),
        metadata=next((marker.metadata for marker in ordered if marker.metadata), {}),
    )
    brought = ((item.worker, item.name) for item in stored)
    return Merged(
        manifest=manifest, duplicates=tuple(pair for pair in brought if pair not in named)
    )


def _merged(files: Iterable[F], *, step: int) -> tuple[F, ...]:
    """The first file of each name, with the ranks of all; ordered by name."""
    merged: dict[str, F] = {}
    for item in files:
        first = merged.setdefault(item.name, item)
        _check_same(first, item, step=step)
        merged[item.name] = replace(first, ranks=_union(first.ranks, item.ranks))
    return tuple(sorted(merged.values(), key=lambda item: item.name))


def _stored(item: PartFile, *, worker: int) -> ManifestFile:
    return ManifestFile(
        name=item.name,
        size=item.size,
        crc32=item.crc32,
        worker=worker,
        ranks=item.ranks,
        mode=item.mode,
        modified=item.modified,
    )


def _union(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))


def _check_same(one: PartFile, other: PartFile, *, step: int) -> None:
    if (one.size, one.crc32) == (other.size, other.crc32):
        return
    if one.size != other.size:
        difference = f"{one.size} and {other.size} bytes"
    else:
        difference = f"CRC32 {one.crc32:08x} and {other.crc32:08x}"
    raise CheckpointConflict(
        f"checkpoint of step {step}: rank {one.ranks[0]} and rank {other.ranks[0]} both saved "
        f"{one.name!r} with different content ({difference}); {REMEDY}",
        sizes_differ=one.size != other.size,
    )


def _check_folders(
    files: Sequence[PartFile], others: Sequence[TreeEntry] = (), *, step: int
) -> None:
    """The name of a file or link is unique, and nothing is below it."""
    every: list[PartFile | TreeEntry] = [*files, *others]
    leaves = {item.name: item for item in every if _kind(item) != "folder"}
    for item in every:
        parts = item.name.split("/")
        for length in range(1, len(parts) + 1):
            other = leaves.get("/".join(parts[:length]))
            if other is None or other is item:
                continue
            kind = _kind(item) if length == len(parts) else "folder"
            raise CheckpointConflict(
                f"checkpoint of step {step}: {other.name!r} is a {_kind(other)} of rank "
                f"{other.ranks[0]} and a {kind} of rank {item.ranks[0]}; {REMEDY}"
            )


def _kind(item: PartFile | TreeEntry) -> str:
    if isinstance(item, PartFile):
        return "file"
    return "link" if item.target else "folder"
