"""The download cache of a node: files of checkpoints, downloaded once, verified, linked into views.

Layer: local files, downloaded from an `ObjectStore`; `reader` decides which ones. Each checkpoint
has one folder:

    <cache>/<run>-<hash>/step-...-attempt-3.lock     flock: one download at a time on this node
    <cache>/<run>-<hash>/step-...-attempt-3/
        partial/<worker>/<name>  files in transit
        boot                     the boot id of the machine when the files were downloaded
        files/<worker>/<name>    verified files, each placed by one rename: downloaded, or kept
                                 when this node had stored them
        pieces/                  ranges of files, until the process that wanted them has read them
        views/step_42, views/rank-3/step_42
                                 directories of links to them, each placed by one rename

Invariants: a file with its final name is whole; a file that was changed afterwards, or that a power
failure may have emptied, is not used again. A verified file gets the modification time of the saved
file, so any later write to it shows. A checkpoint is deleted under its own lock: never while a
process downloads it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun._common.tree import NO_ROOM, TreeEntry, remove_directory, set_mode, stamp
from trainrun.checkpoint.cache_folders import (
    PARTIAL,
    Needed,
    boot_id,
    forget,
    forget_older,
    forget_other_boots,
    locked,
    oldest_first,
)
from trainrun.checkpoint.stores.parts import in_order
from trainrun.checkpoint.stores.ranges import CONNECTIONS
from trainrun.errors import CacheUnusable, CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.store import ObjectStore, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFile:
    """A file in a view."""

    name: str
    """Path in the view."""
    source: str
    """Relative path below `files/`; unique in its checkpoint."""
    size: int
    """Bytes."""
    crc32: int
    """Checksum of its content; for a foreign file, of its tag."""
    summed: bool = True
    """Whether `crc32` is that of its content."""
    tag: str = ""
    """The version that a listing showed; for a file without a checksum."""
    mode: int = 0
    """Permission bits; 0: not known."""
    modified: int = 0
    """Microseconds since the epoch; 0: not known."""

    @property
    def stamp(self) -> int:
        """The modification time (nanoseconds) that marks it as verified. If its own is unknown, a
        time below 2**30 s: some file systems cannot store times after 2038."""
        return self.modified * 1000 or (self.crc32 & 0x3FFFFFFF) * 10**9


Fetch = Callable[[CachedFile, Path], None]
"""Downloads a file to a path that does not exist yet, and verifies it; several threads call it."""

Copy = Callable[[CachedFile, Path], bool]
"""Fetches a file from another source than the store, and verifies it; False: it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOnNode:
    """A set of files in the node's cache, and where to download them.

    Methods raise CheckpointDamaged, CacheUnusable and StoreError.
    """

    name: str
    """Identifies the set: the same on all workers with the same files."""
    folder: Path
    """Their folder in the cache."""
    files: tuple[CachedFile, ...]
    others: tuple[TreeEntry, ...] = ()
    """Folders and links; a folder comes before its content."""
    store: ObjectStore
    prefix: str = ""
    """Their folder in the store, with a slash at the end."""
    view: str = "all"
    """Path of the view that shows them; another set of files in the same folder has another one."""

    def directory(
        self,
        *,
        copy: Copy = lambda _file, _path: False,
        needed: Needed = lambda: True,
        forget: bool = True,
    ) -> Path:
        """Return a local directory with the files; download missing ones.

        `copy` is tried before the store. All processes of the node share the directory and must not
        write to it. A checkpoint's directory stays until two newer ones were read, or until there
        is no room for another one; before each deletion `needed` decides whether that other one is
        still needed. Without `forget` the caller deletes older ones. Waits while another process of
        this node does the same.
        """
        wanted = sorted(self.files, key=lambda item: item.name)
        target = self.folder / "views" / self.view

        def fetch(item: CachedFile, path: Path) -> None:
            if not copy(item, path):
                self.read(item, path)

        def work() -> Path:
            if not _shows(target, wanted, self.others):
                with ThreadPoolExecutor(CONNECTIONS) as pool:
                    downloads = [
                        pool.submit(_download, self.folder, item, fetch) for item in wanted
                    ]
                    for _ in in_order(pool, downloads):
                        pass
                _build(self.folder, target, wanted, self.others)
            return target

        path = self._run_with_room(wanted, needed, work)
        if forget:
            self.forget_older()
        return path

    def forget_older(self) -> None:
        """Delete the checkpoints that no longer stay."""
        forget_older(self.folder.parent, self.name)

    def find(self, source: str) -> Path | None:
        """The path of a file if it is cached and verified; never waits. Raises ObjectNotFound."""
        item, path = self._file(source), self.folder / "files" / source
        with contextlib.suppress(OSError):
            if (self.folder / "boot").read_text() == boot_id() and _is_verified(path, item):
                return path
        return None

    def download(
        self,
        source: str,
        *,
        needed: Needed = lambda: True,
    ) -> Path:
        """Download a file without a view; otherwise like `directory`. Raises ObjectNotFound."""
        item = self._file(source)

        def work() -> Path:
            _download(self.folder, item, self.read)
            return self.folder / "files" / source

        path = self._run_with_room([item], needed, work)
        self.forget_older()
        return path

    def link(self, paths: Mapping[str, Path]) -> None:
        """Link files into the cache that this node has just summed and still holds elsewhere.

        `paths` as for `keep`. Never raises: processes can be given the files from there.
        """
        with contextlib.suppress(OSError), locked(self.folder):
            forget_other_boots(self.folder)
            for item in self.files:
                place = self.folder / "files" / item.source
                if _is_verified(paths[item.source], item) and not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    set_mode(paths[item.source], item.mode | 0o400)
                    os.link(paths[item.source], place)

    def keep(self, paths: Mapping[str, Path], *, in_use: str) -> None:
        """Move files that this node has just stored into the cache; others stay in `paths`.

        `paths` has where each file is, by its source. A file is kept if it is as it was when it was
        summed and nobody can still write to it. `in_use` names the checkpoint that the processes
        have opened: it stays, and one other. Never raises: the store has the files.
        """
        with contextlib.suppress(OSError):
            with locked(self.folder):
                forget_other_boots(self.folder)
                free = shutil.disk_usage(self.folder).free
                if free > sum(item.size for item in self.files):  # the next one needs that room
                    for item in self.files:
                        _keep(paths[item.source], self.folder / "files" / item.source, item)
            forget_older(self.folder.parent, in_use)

    def received(self) -> int:
        """Bytes of the files on this node: grows during a download."""
        size = 0
        with contextlib.suppress(OSError):  # renamed or removed in between: the next call is right
            for path in (*self.folder.glob(f"{PARTIAL}/**/*"), *self.folder.glob("files/**/*")):
                if path.is_file():
                    # Not the length: a file may have its full length from the start.
                    size += path.stat().st_blocks * 512
        return size

    def _run_with_room(
        self, files: list[CachedFile], needed: Needed, work: Callable[[], Path]
    ) -> Path:
        try:
            return _run_locked(self.folder, needed, work)
        except OSError as error:
            remedy = ""
            if error.errno in NO_ROOM:
                size = sum(item.size for item in files)
                remedy = (
                    f"; its disk must hold these {size / 1e6:.1f} MB in addition to staged files: "
                    "make room on it, or raise the worker's ephemeral storage"
                )
            raise CacheUnusable(
                f"cannot keep a checkpoint in {self.folder}: {error.strerror or error}{remedy}"
            ) from error

    def read(self, item: CachedFile, path: Path, ranges: Sequence[Range] = ()) -> None:
        """Read a file from the store into a new one; `ranges`: see `ObjectStore.get_file`."""
        key = self.prefix + item.source
        crc32 = item.crc32 if item.summed else None
        try:
            self.store.get_file(key, path, size=item.size, crc32=crc32, tag=item.tag, ranges=ranges)
        except ObjectNotFound as error:
            raise CheckpointDamaged(f"{self.store.uri}/{key}: missing", file=item.source) from error
        except CheckpointDamaged as error:
            raise CheckpointDamaged(str(error), file=item.source) from error

    def _file(self, source: str) -> CachedFile:
        for item in self.files:
            if item.source == source:
                return item
        raise ObjectNotFound(f"{self.name} has no file {source}")


def run_folder(cache: Path, *, uri: str, name: str) -> Path:
    """The cache folder for the checkpoints of a run (or for an initial checkpoint)."""
    digest = hashlib.blake2b(uri.encode(), digest_size=6).hexdigest()
    return cache / f"{name[:48]}-{digest}"


def _run_locked(folder: Path, needed: Needed, work: Callable[[], Path]) -> Path:
    """Run `work` under the lock of the folder and return its result.

    Each time the disk is full, delete another checkpoint and retry, until none is left. Newer ones
    are deleted last: they are damaged, or an attempt that has begun since resumes from them.
    """
    others: Iterator[Path] | None = None
    while True:
        try:
            with locked(folder):
                forget_other_boots(folder)
                return work()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if others is None:
                others = (path for path in oldest_first(folder.parent) if path != folder)
            if not any(forget(path, needed) for path in others):
                raise


def _shows(view: Path, files: list[CachedFile], others: Iterable[TreeEntry]) -> bool:
    return (
        view.is_dir()
        and all(_is_verified(view / item.name, item) for item in files)
        and all(os.path.lexists(view / entry.name) for entry in others)
    )


def _is_verified(path: Path, item: CachedFile) -> bool:
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    whole_seconds = item.stamp // 10**9 * 10**9  # all that some file systems keep
    micros = facts.st_mtime_ns // 1000 * 1000  # a kept file has its own time
    return facts.st_size == item.size and micros in (item.stamp, whole_seconds)


def _keep(path: Path, place: Path, item: CachedFile) -> None:
    if path.resolve() != path:  # a link to a file of the script
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Refused while anybody has it open for writing, or mapped. So the look comes last.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # a new writer would end us by SIGIO
        if _is_verified(path, item) and os.fstat(descriptor).st_nlink == 1:
            place.parent.mkdir(parents=True, exist_ok=True)
            set_mode(path, item.mode | 0o400)
            path.replace(place)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EINVAL, errno.EACCES):  # no such lease here
            raise
    finally:
        os.close(descriptor)


def _download(folder: Path, item: CachedFile, fetch: Fetch) -> None:
    path = folder / "files" / item.source
    if _is_verified(path, item):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = folder / PARTIAL / item.source
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        fetch(item, partial)
        if item.mode:
            set_mode(partial, item.mode | 0o400)
        os.utime(partial, ns=(item.stamp, item.stamp))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _build(
    folder: Path, target: Path, files: list[CachedFile], others: Sequence[TreeEntry]
) -> None:
    """Build the view in a temporary folder and rename it, after deleting an outdated one."""
    partial = folder / "views" / ".partial"
    remove_directory(partial)
    partial.mkdir(parents=True)
    for entry in others:
        if entry.target:
            (partial / entry.name).symlink_to(entry.target)
        else:
            (partial / entry.name).mkdir()
    for item in files:
        path = partial / item.name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = folder / "files" / item.source
        try:
            os.link(source, path)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                raise
            shutil.copy2(source, path)
    stamp(partial, others)
    remove_directory(target)
    target.parent.mkdir(exist_ok=True)
    partial.rename(target)
