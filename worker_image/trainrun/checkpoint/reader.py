"""Bringing a checkpoint to a node's disk: once per node, verified, as one merged directory.

Layer: rules over `RunStore` and `cache`. Invariants: what is returned has the sizes and checksums
of the manifest; a checkpoint that has not raises CheckpointDamaged and leaves nothing visible.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from trainrun.checkpoint import layout
from trainrun.checkpoint.cache import (
    CachedFile,
    bytes_received,
    find_file,
    forget_older,
    materialize_file,
    materialize_view,
    run_folder,
)
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from trainrun.checkpoint.records import Manifest, ManifestFile
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.protocol import CheckpointId


Copy = Callable[[CachedFile, Path], bool]
"""Brings a file from elsewhere than the store, verified; False where that did not work."""


def materialize(
    run: RunStore,
    checkpoint: CheckpointId,
    *,
    cache_dir: Path,
    rank: int | None = None,
    copy: Copy = lambda _file, _path: False,
) -> Path:
    """Return a local directory with the checkpoint's files, downloading what is not here yet.

    `rank`: only the files that this global rank brought; `copy` is tried before the store. The
    directory is shared by all processes of the node and must not be written to; it stays until two
    newer checkpoints were read.
    Raises CheckpointDamaged naming object and reason, CacheUnusable, StoreError.
    """
    manifest = read_manifest(run, checkpoint)
    files = {item.name: item for item in manifest.files if rank is None or rank in item.ranks}
    for item in files.values():
        check_file_name(item.name, manifest=f"{checkpoint.name}/{layout.MANIFEST}")

    def fetch(cached: CachedFile, path: Path) -> None:
        if not copy(cached, path):
            _download(run, checkpoint, files[cached.name], path)

    folder = _folder(run, checkpoint, cache_dir)
    directory = materialize_view(
        folder,
        view="all" if rank is None else f"rank-{rank}",
        files=[cached_file(item) for item in files.values()],
        fetch=fetch,
    )
    forget_older(folder)
    return directory


class FileOnNode:
    """One file of a checkpoint, for another worker of this node."""

    def __init__(self, run: RunStore, manifest: Manifest, source: str, *, cache_dir: Path) -> None:
        """`source` is its name in the checkpoint's folder. Raises ObjectNotFound."""
        self._run = run
        self._checkpoint = manifest.id
        self._folder = _folder(run, manifest.id, cache_dir)
        for item in manifest.files:
            if layout.file_name(item.worker, item.name) == source:
                check_file_name(item.name, manifest=f"{manifest.id.name}/{layout.MANIFEST}")
                self._item = item
                return
        raise ObjectNotFound(f"{manifest.id.name} has no file {source}")

    def find(self) -> Path | None:
        """Where it is, if it is here already."""
        return find_file(self._folder, cached_file(self._item))

    def download(self) -> Path:
        """Bring it here. Raises CheckpointDamaged, CacheUnusable, StoreError."""

        def fetch(_: CachedFile, path: Path) -> None:
            _download(self._run, self._checkpoint, self._item, path)

        path = materialize_file(self._folder, cached_file(self._item), fetch)
        forget_older(self._folder)
        return path


def received(run: RunStore, checkpoint: CheckpointId, *, cache_dir: Path) -> int:
    """Bytes of a checkpoint that are on this node."""
    return bytes_received(_folder(run, checkpoint, cache_dir))


def _folder(run: RunStore, checkpoint: CheckpointId, cache_dir: Path) -> Path:
    return run_folder(cache_dir, uri=run.uri, name=run.run_name) / checkpoint.name


def read_manifest(run: RunStore, checkpoint: CheckpointId) -> Manifest:
    """Read the manifest of a checkpoint that must be there.

    Raises CheckpointDamaged (also when it is gone) and StoreError.
    """
    name = f"{checkpoint.name}/{layout.MANIFEST}"
    try:
        manifest = run.manifest(checkpoint)
    except ObjectNotFound as error:
        raise CheckpointDamaged(f"{name}: missing") from error
    except CheckpointDamaged as error:
        raise CheckpointDamaged(f"{checkpoint.name}/{error}") from error
    if manifest.id != checkpoint:
        raise CheckpointDamaged(f"{name}: it belongs to {manifest.id.name}")
    return manifest


def check_file_name(name: str, *, manifest: str) -> None:
    """Raises CheckpointDamaged for a name that would lead out of the directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
        raise CheckpointDamaged(f"{manifest}: {name!r} is not the name of a file in a checkpoint")


def cached_file(item: ManifestFile) -> CachedFile:
    """How the node's cache sees a file of a checkpoint."""
    return CachedFile(
        name=item.name,
        source=layout.file_name(item.worker, item.name),
        size=item.size,
        crc32=item.crc32,
    )


def _download(run: RunStore, checkpoint: CheckpointId, item: ManifestFile, path: Path) -> None:
    name = layout.file_name(item.worker, item.name)
    try:
        run.store.get_file(
            run.key(layout.folder(checkpoint) + name), path, size=item.size, crc32=item.crc32
        )
    except ObjectNotFound as error:
        raise CheckpointDamaged(f"{run.checkpoint_uri(checkpoint)}/{name}: missing") from error
