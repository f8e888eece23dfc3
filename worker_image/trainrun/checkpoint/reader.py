"""Reads a checkpoint, or initial weights: once per node, verified, as one merged directory.

Layer: rules over `RunStore` and `cache`. Invariants: returned files have the sizes and checksums of
the manifest; otherwise CheckpointDamaged names the object and the reason, and nothing becomes
visible. Initial weights are a TrainRun checkpoint or any folder of files; such a folder has no
checksums, so only sizes are checked.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import tempfile
import zlib
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint.cache import CachedFile, FilesOnNode, run_folder
from trainrun.checkpoint.records import Manifest, read_checksummed
from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreMisconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from trainrun._common.tree import TreeEntry
    from trainrun.checkpoint.records import PartFile
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.checkpoint.stores.store import Range


def checkpoint_on_node(
    run: RunStore, manifest: Manifest, *, cache_dir: Path, rank: int | None = None
) -> FilesOnNode:
    """The files of a checkpoint; with `rank`, only those that this global rank reported.

    Raises CheckpointDamaged for a manifest with paths outside of the directory.
    """
    checkpoint = manifest.id
    items = [item for item in manifest.files if rank is None or rank in item.ranks]
    names = [item.name for item in manifest.files]
    view = f"step_{checkpoint.step}"  # as in Accelerate's examples: scripts parse the step
    check_names(names, manifest.others, manifest=f"{checkpoint.name}/{layout.MANIFEST}")
    return FilesOnNode(
        name=checkpoint.name,
        folder=run_folder(cache_dir, uri=run.uri, name=run.run_name) / checkpoint.name,
        files=tuple(cached_file(item, item.worker) for item in items),
        others=tuple(item for item in manifest.others if rank is None or rank in item.ranks),
        store=run.store,
        prefix=run.key(layout.folder(checkpoint)),
        view=view if rank is None else f"rank-{rank}/{view}",
    )


def likely_on_node(
    run: RunStore, manifest: Manifest, *, cache_dir: Path, ranks: Collection[int]
) -> FilesOnNode:
    """The files of a checkpoint that these global ranks will read, with or without `rank`: those
    that they reported, or all files if a single rank reported them.

    Raises CheckpointDamaged as `checkpoint_on_node` does.
    """
    all_files = checkpoint_on_node(run, manifest, cache_dir=cache_dir)
    brought = {rank for item in manifest.files for rank in item.ranks}
    own = tuple(
        cached_file(item, item.worker) for item in manifest.files if {*item.ranks} & {*ranks}
    )
    guess = replace(all_files, files=own, others=(), view="ahead")
    return all_files if len(brought) <= 1 else guess


def only(files: FilesOnNode, include: Sequence[str]) -> FilesOnNode:
    """The files whose name matches a pattern of `include`, and what links among them lead to.

    `*` matches any characters, also `/`. An empty `include` means all files. Raises ObjectNotFound
    if nothing matches.
    """
    if not include:
        return files
    patterns = [*include]

    def matches(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    links = {item.name: item.target for item in files.others if item.target}
    while found := [name for name in links if matches(name)]:
        for name in found:
            target = glob.escape(os.path.normpath(Path(name).parent / links.pop(name)))
            patterns += [glob.escape(name), target, f"{target}/*"]
    chosen = tuple(item for item in files.files if matches(item.name))
    matched = [item.name for item in chosen]
    matched += [item.name for item in files.others if matches(item.name)]
    if not matched:
        raise ObjectNotFound(f"{files.name} has no file that matches include={[*include]}")
    wanted = {*matched, *(str(above) for name in matched for above in PurePosixPath(name).parents)}
    others = tuple(item for item in files.others if item.name in wanted)
    view = f"include-{zlib.crc32(repr(sorted(include)).encode()):08x}/{files.view}"
    return replace(files, files=chosen, others=others, view=view)


def piece(files: FilesOnNode, name: str, ranges: Sequence[Range]) -> Path:
    """Read ranges of the file called `name` into a new one with holes, for the caller to delete.

    Their bytes are not verified. A file that is cached is linked instead. Raises ObjectNotFound,
    CheckpointDamaged, StoreError and OSError.
    """
    item = next((item for item in files.files if item.name == name), None)
    if item is None:
        raise ObjectNotFound(f"{files.name} has no file {name}")
    path = files.folder / "pieces" / secrets.token_hex(8)
    path.parent.mkdir(parents=True, exist_ok=True)
    if whole := files.find(item.source):
        with contextlib.suppress(OSError):  # a file system without such links
            os.link(whole, path)
            return path
    files.read(replace(item, summed=False), path, ranges=ranges)
    return path


def read_manifest(run: RunStore, checkpoint: CheckpointId) -> Manifest:
    """Read the manifest of a checkpoint that must exist.

    Raises CheckpointDamaged (also when it is missing) and StoreError.
    """
    name = f"{checkpoint.name}/{layout.MANIFEST}"
    try:
        manifest = run.manifest(checkpoint)
    except ObjectNotFound as error:
        raise CheckpointDamaged(f"{name}: missing", file=layout.MANIFEST) from error
    except CheckpointDamaged as error:
        raise CheckpointDamaged(f"{checkpoint.name}/{error}", file=layout.MANIFEST) from error
    if manifest.id != checkpoint:
        raise CheckpointDamaged(f"{name}: it belongs to {manifest.id.name}")
    return manifest


def read_again(
    run: RunStore, checkpoint: CheckpointId, files: Collection[str], *, scratch: Path
) -> None:
    """Read the manifest and these of its files from the store, even if this node has them cached.

    `files` are objects in the checkpoint's folder; each is stored in the folder `scratch` only
    during the read. Raises CheckpointDamaged, StoreError, OSError.
    """
    manifest = read_manifest(run, checkpoint)
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="again-", dir=scratch) as folder:
        path = Path(folder, "file")
        for item in manifest.files:
            name = layout.file_name(item.worker, item.name)
            if name in files:
                key = run.key(layout.folder(checkpoint) + name)
                run.store.get_file(key, path, size=item.size, crc32=item.crc32)
                path.unlink()


def check_file_name(name: str, *, manifest: str) -> None:
    """Raises CheckpointDamaged for a name that would escape the directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
        raise CheckpointDamaged(f"{manifest}: {name!r} is not a valid file name in a checkpoint")


def check_names(names: Iterable[str], others: Iterable[TreeEntry], *, manifest: str) -> None:
    """Raises CheckpointDamaged for files, folders or links that would escape the directory."""
    for name in names:
        check_file_name(name, manifest=manifest)
    for entry in others:
        check_file_name(entry.name, manifest=manifest)
        leads = Path(os.path.normpath(Path(entry.name).parent / entry.target))
        if leads.is_absolute() or leads.parts[:1] == ("..",):
            raise CheckpointDamaged(
                f"{manifest}: the link {entry.name!r} points outside of the checkpoint"
            )


def keep_on_node(
    run: RunStore,
    checkpoint: CheckpointId,
    worker: int,
    stored: Iterable[PartFile],
    directories: Mapping[int, Path],
    *,
    cache_dir: Path,
    in_use: CheckpointId | None,
) -> None:
    """Move what this worker has just stored of a checkpoint into the node's cache.

    `stored` are the files, `directories` has those of each rank. `in_use` is the checkpoint that
    the processes have opened. Later reads compare with the manifest, as with downloaded files.
    """
    kept, paths = _own_files(run, checkpoint, worker, stored, directories, cache_dir=cache_dir)
    kept.keep(paths, in_use=in_use.name if in_use is not None else "")


def link_on_node(
    run: RunStore,
    checkpoint: CheckpointId,
    worker: int,
    summed: Iterable[PartFile],
    directories: Mapping[int, Path],
    *,
    cache_dir: Path,
) -> None:
    """Link what this worker holds of a checkpoint into the node's cache; otherwise like
    `keep_on_node`."""
    own, paths = _own_files(run, checkpoint, worker, summed, directories, cache_dir=cache_dir)
    own.link(paths)


def _own_files(
    run: RunStore,
    checkpoint: CheckpointId,
    worker: int,
    items: Iterable[PartFile],
    directories: Mapping[int, Path],
    *,
    cache_dir: Path,
) -> tuple[FilesOnNode, dict[str, Path]]:
    """The files of this worker's part, and where each is now, by source."""
    files = {cached_file(item, worker): item for item in items}
    own = FilesOnNode(
        name=checkpoint.name,
        folder=run_folder(cache_dir, uri=run.uri, name=run.run_name) / checkpoint.name,
        files=tuple(files),
        store=run.store,
    )
    paths = {
        file.source: directories[item.ranks[0]].resolve() / item.name
        for file, item in files.items()
    }
    return own, paths


def cached_file(item: PartFile, worker: int) -> CachedFile:
    """A file that `worker` stored, as an entry of the node's cache."""
    return CachedFile(
        name=item.name,
        source=layout.file_name(worker, item.name),
        size=item.size,
        crc32=item.crc32,
        mode=item.mode,
        modified=item.modified,
    )


def initial_on_node(store: ObjectStore, *, cache_dir: Path) -> FilesOnNode | Path:
    """The files of a store that was opened at the URI in `checkpoint.initialFrom`.

    The URI is the folder of a TrainRun checkpoint (`.../step-...-attempt-...`, or a copy of it) or
    any folder of files; for the latter on a file system, the result is its path. Raises
    StoreMisconfigured when the folder is empty, CheckpointDamaged, StoreError.
    """
    uri, found = store.uri, store.list("")
    if not found:
        raise StoreMisconfigured(
            f"{uri} has no files; checkpoint.initialFrom must name a folder of files, or a "
            "checkpoint of a run (.../checkpoints/step-...)"
        )
    manifest = _initial_manifest(store, uri, found)
    if manifest is None and uri.startswith("file:"):
        return Path(unquote(urlsplit(uri).path))
    others = manifest.others if manifest is not None else ()
    files = (
        _foreign_files(found)
        if manifest is None
        else [cached_file(item, item.worker) for item in manifest.files]
    )
    check_names([item.name for item in files], others, manifest=uri)

    # A folder whose listing has changed gets another cache entry.
    content = zlib.crc32(repr([(item.name, item.size, item.crc32) for item in files]).encode())
    return FilesOnNode(
        name=f"initial-{content:08x}",
        folder=run_folder(cache_dir, uri=uri, name="initial") / f"{content:08x}",
        files=tuple(files),
        others=others,
        store=store,
    )


def _initial_manifest(store: ObjectStore, uri: str, found: Iterable[ObjectInfo]) -> Manifest | None:
    """The manifest, if this is a TrainRun checkpoint: other folders may have a file of that
    name."""
    is_named_like_ours = CheckpointId.named(uri.rpartition("/")[2]) is not None
    if not any(item.key == layout.MANIFEST for item in found):
        if is_named_like_ours:
            raise CheckpointDamaged(f"{uri}: this checkpoint was never committed (no manifest)")
        return None
    try:
        return read_checksummed(
            Manifest, store.get(layout.MANIFEST), name=f"{uri}/{layout.MANIFEST}"
        )
    except CheckpointDamaged:
        if is_named_like_ours:
            raise
        return None


def _foreign_files(found: Iterable[ObjectInfo]) -> list[CachedFile]:
    return [
        CachedFile(
            name=item.key,
            source=item.key,
            size=item.size,
            # Identifies the content as far as the listing can: a changed file gets another value.
            crc32=zlib.crc32(item.tag.encode()),
            summed=False,
            tag=item.tag,
            modified=int(item.modified * 1e6),
        )
        for item in found
    ]
