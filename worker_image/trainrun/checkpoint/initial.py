"""Initial weights: any folder of files, or a checkpoint of some run, brought to a node's disk.

Layer: rules over `ObjectStore` and `cache`. Invariants: a checkpoint of ours is read with its
checksums and as the merged directory; a foreign folder has none, so only sizes are checked.
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint import layout
from trainrun.checkpoint.cache import CachedFile, materialize_view, run_folder
from trainrun.checkpoint.reader import cached_file, check_file_name
from trainrun.checkpoint.records import Manifest, unseal
from trainrun.checkpoint.store import ObjectInfo, ObjectStore, open_store
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreMisconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable


def materialize_uri(
    uri: str, *, cache_dir: Path, endpoint_url: str | None = None, region: str | None = None
) -> Path:
    """Return a local directory with the files below `uri`, downloaded once per node.

    `uri` is the folder of one of our checkpoints (`.../step-...-attempt-...`, wherever it was
    copied to) or any folder of files; the latter is returned as it is when it is on a file system.
    Nobody may write to it. Raises StoreMisconfigured when nothing is there, CheckpointDamaged,
    CacheUnusable, StoreError.
    """
    uri = uri.rstrip("/")
    with contextlib.closing(open_store(uri, endpoint_url=endpoint_url, region=region)) as store:
        return _materialize(store, uri, cache_dir=cache_dir)


def _materialize(store: ObjectStore, uri: str, *, cache_dir: Path) -> Path:
    found = store.list("")
    if not found:
        raise StoreMisconfigured(
            f"{uri}: there are no files; checkpoint.initialFrom names a folder of files, or one of "
            "our checkpoints (.../checkpoints/step-...)"
        )
    manifest = _manifest(store, uri, found)
    if manifest is None and uri.startswith("file:"):
        return Path(unquote(urlsplit(uri).path))
    files = _files_of(manifest) if manifest else _foreign_files(found)
    return _download(store, uri, files, cache_dir=cache_dir, checked=manifest is not None)


def _manifest(store: ObjectStore, uri: str, found: Iterable[ObjectInfo]) -> Manifest | None:
    """The manifest, if this is a checkpoint of ours: others may have a file of that name."""
    is_named_like_ours = layout.read_checkpoint(uri.rpartition("/")[2]) is not None
    if not any(item.key == layout.MANIFEST for item in found):
        if is_named_like_ours:
            raise CheckpointDamaged(f"{uri}: this checkpoint was never committed (no manifest)")
        return None
    try:
        return unseal(Manifest, store.get(layout.MANIFEST), name=f"{uri}/{layout.MANIFEST}")
    except CheckpointDamaged:
        if is_named_like_ours:
            raise
        return None


def _files_of(manifest: Manifest) -> list[CachedFile]:
    return [cached_file(item) for item in manifest.files]


def _foreign_files(found: Iterable[ObjectInfo]) -> list[CachedFile]:
    return [
        CachedFile(
            name=item.key,
            source=item.key,
            size=item.size,
            # Stands for the content, as far as the listing tells: a changed file gets another one.
            crc32=zlib.crc32(item.tag.encode()),
        )
        for item in found
    ]


def _download(
    store: ObjectStore, uri: str, files: list[CachedFile], *, cache_dir: Path, checked: bool
) -> Path:
    for item in files:
        check_file_name(item.name, manifest=uri)

    def fetch(item: CachedFile, path: Path) -> None:
        try:
            store.get_file(item.source, path, size=item.size, crc32=item.crc32 if checked else None)
        except ObjectNotFound as error:
            raise CheckpointDamaged(f"{uri}/{item.source}: missing") from error

    # A folder whose listing has changed is another one.
    content = zlib.crc32(repr([(item.name, item.size, item.crc32) for item in files]).encode())
    folder = run_folder(cache_dir, uri=uri, name="initial") / f"{content:08x}"
    return materialize_view(folder, view="all", files=files, fetch=fetch)
