"""Initial weights: any folder of files, or a checkpoint of some run, brought to a node's disk.

Layer: rules over `ObjectStore` and `on_node`. Invariants: a checkpoint of ours is read with its
checksums and as the merged directory; a foreign folder has none, so only sizes are checked.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint.rules.listing import ObjectInfo
from trainrun.checkpoint.rules.records import Manifest, unseal
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.transfer.cache import CachedFile, run_folder
from trainrun.checkpoint.transfer.on_node import FilesOnNode
from trainrun.checkpoint.transfer.reader import cached_file, check_names
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, StoreMisconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable


def initial_on_node(store: ObjectStore, *, cache_dir: Path) -> FilesOnNode | Path:
    """The files of a store that was opened at what `checkpoint.initialFrom` names.

    That is the folder of one of our checkpoints (`.../step-...-attempt-...`, wherever it was
    copied to) or any folder of files; the latter is a path where it is on a file system.
    Raises StoreMisconfigured when nothing is there, CheckpointDamaged, StoreError.
    """
    uri, found = store.uri, store.list("")
    if not found:
        raise StoreMisconfigured(
            f"{uri}: there are no files; checkpoint.initialFrom names a folder of files, or one of "
            "our checkpoints (.../checkpoints/step-...)"
        )
    manifest = _manifest(store, uri, found)
    if manifest is None and uri.startswith("file:"):
        return Path(unquote(urlsplit(uri).path))
    others = manifest.others if manifest is not None else ()
    files = _foreign_files(found) if manifest is None else _files_of(manifest)
    check_names([item.name for item in files], others, manifest=uri)

    # A folder whose listing has changed is another one.
    content = zlib.crc32(repr([(item.name, item.size, item.crc32) for item in files]).encode())
    return FilesOnNode(
        name=f"initial-{content:08x}",
        folder=run_folder(cache_dir, uri=uri, name="initial") / f"{content:08x}",
        files=tuple(files),
        others=others,
        store=store,
    )


def _manifest(store: ObjectStore, uri: str, found: Iterable[ObjectInfo]) -> Manifest | None:
    """The manifest, if this is a checkpoint of ours: others may have a file of that name."""
    is_named_like_ours = CheckpointId.named(uri.rpartition("/")[2]) is not None
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
            summed=False,
            tag=item.tag,
            modified=int(item.modified * 1e6),
        )
        for item in found
    ]
