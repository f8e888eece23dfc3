"""The files of one folder of the store, brought to a node's disk: as a directory, or one by one.

Layer: over `cache` and `ObjectStore`; what to read comes from `reader` (checkpoints) and `initial`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.checkpoint.transfer.cache import (
    CachedFile,
    Needed,
    bytes_received,
    find_file,
    forget_older,
    materialize_file,
    materialize_view,
)
from trainrun.errors import CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from trainrun._common.tree import TreeEntry
    from trainrun.checkpoint.stores.store import ObjectStore

Copy = Callable[[CachedFile, Path], bool]
"""Brings a file from elsewhere than the store, verified; False where that did not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOnNode:
    """Methods raise CheckpointDamaged, CacheUnusable and StoreError."""

    name: str
    """What they are, in one word: the same for every worker that sees the same files."""
    folder: Path
    """Where the node keeps them."""
    files: tuple[CachedFile, ...]
    others: tuple[TreeEntry, ...] = ()
    """Folders and links; a folder comes before what is in it."""
    store: ObjectStore
    prefix: str = ""
    """The folder of the store that they are in, with a slash at the end."""
    view: str = "all"
    """Name of the directory that shows them; other files of the same folder have another one."""

    def directory(
        self,
        *,
        copy: Copy = lambda _file, _path: False,
        needed: Needed = lambda: True,
    ) -> Path:
        """Return a local directory that shows them, downloading what is not here yet.

        `copy` is tried before the store. The directory is shared by all processes of the node and
        must not be written to; that of a checkpoint stays until two newer ones were read, or until
        there is no room for another one that is `needed`: that is asked before each one goes.
        """

        def fetch(item: CachedFile, path: Path) -> None:
            if not copy(item, path):
                self._read(item, path)

        directory = materialize_view(
            self.folder,
            view=self.view,
            files=self.files,
            others=self.others,
            fetch=fetch,
            needed=needed,
        )
        forget_older(self.folder)
        return directory

    def find(self, source: str) -> Path | None:
        """Where a file is, if it is here already. Raises ObjectNotFound."""
        return find_file(self.folder, self._file(source))

    def download(self, source: str, *, needed: Needed = lambda: True) -> Path:
        """Bring a file here; `needed` as for `directory`. Raises ObjectNotFound."""
        path = materialize_file(self.folder, self._file(source), self._read, needed=needed)
        forget_older(self.folder)
        return path

    def received(self) -> int:
        """Bytes of them that are on this node."""
        return bytes_received(self.folder)

    def _read(self, item: CachedFile, path: Path) -> None:
        key = self.prefix + item.source
        crc32 = item.crc32 if item.summed else None
        try:
            self.store.get_file(key, path, size=item.size, crc32=crc32, tag=item.tag)
        except ObjectNotFound as error:
            raise CheckpointDamaged(f"{self.store.uri}/{key}: missing", file=item.source) from error
        except CheckpointDamaged as error:
            raise CheckpointDamaged(str(error), file=item.source) from error

    def _file(self, source: str) -> CachedFile:
        for item in self.files:
            if item.source == source:
                return item
        raise ObjectNotFound(f"{self.name} has no file {source}")
