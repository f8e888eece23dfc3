"""Object storage in a folder of a file system (local disk, NFS, a mounted volume).

Layer: implements `ObjectStore`. Invariants: an object appears by one atomic `rename` or `link` of a
finished temporary file in the same folder; once a call returns, its write survives a power failure
(file, then folder, are synced). Unfinished files are never listed; `abort_uploads` removes them, as
does the deletion of the last object in their folder. Only `probe` creates the root folder: a volume
that is not mounted must be an error, not an empty store on the disk below the mount point.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun._common.tree import write_all
from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.stores.store import (
    Progress,
    Range,
    changed,
    check_crc32,
    check_key,
    other_size,
    probe_put_if_absent,
)
from trainrun.contract.layout import TEMPORARY_NAME
from trainrun.errors import (
    ObjectNotFound,
    PutIfAbsentUnsupported,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

CHUNK = 4 << 20
"""Bytes per read and write: large enough that calls are cheap, small enough for memory."""

INSTALL_TRIES = 10
"""Tries to write into a folder that concurrent deletions keep removing."""

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLASH = (errno.ENOTDIR, errno.EISDIR)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FileStore:
    """An `ObjectStore` whose objects are the files below one folder."""

    def __init__(self, root: Path, *, uri: str) -> None:
        self.root = root
        self.uri = uri
        """The address as the user wrote it."""

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore.put."""
        with self._explained("write", key):
            self._install(key, lambda target: write_all(target, data), os.replace)

    def put_file(
        self, key: str, path: Path, *, crc32: int | None = None, progress: Progress | None = None
    ) -> int:
        """See ObjectStore.put_file."""
        found = 0
        with path.open("rb", buffering=0) as source:

            def copy(target: int) -> None:
                nonlocal found
                found = _copy(source.fileno(), target, progress)
                if crc32 not in (None, found):
                    raise StoreError(
                        f"{path} changed while it was being uploaded to {self._name(key)} "
                        f"(CRC32 {found:08x}, was {crc32:08x}); write new files for each checkpoint"
                    )

            with self._explained("write", key):
                self._install(key, copy, os.replace)
        return found

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        with self._explained("write", key):
            try:
                self._install(key, lambda target: write_all(target, data), os.link)
            except FileExistsError:
                # NFS may lose the reply to a successful link and repeat the call, so the existing
                # file can be ours.
                return self.get(key) == data
            except OSError as error:
                if error.errno in _NO_LINKS and os.access(self.root, os.W_OK):
                    raise PutIfAbsentUnsupported(
                        f"{self.uri}: this file system has no hard links ({error.strerror}), "
                        "which TrainRun needs to write a claim exactly once; use another one"
                    ) from error
                raise
        return True

    def get(self, key: str) -> bytes:
        """See ObjectStore.get."""
        with self._explained("read", key):
            return self._path(key).read_bytes()

    def size(self, key: str) -> int | None:
        """See ObjectStore.size."""
        with contextlib.suppress(ObjectNotFound), self._explained("read", key):
            return self._path(key).stat().st_size
        return None

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
        """See ObjectStore.get_file."""
        with self._explained("read", key):
            source = os.open(self._path(key), os.O_RDONLY)
        try:
            facts = os.fstat(source)
            there = facts.st_size
            if tag and str(facts.st_mtime_ns) != tag:
                raise changed(self._name(key))
            if there != size:
                raise other_size(self._name(key), there, size)
            found = self._download(source, path, key, ranges or [(0, size)], size)
        finally:
            os.close(source)
        check_crc32(self._name(key), found, crc32)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """See ObjectStore.list."""
        with self._explained("list", prefix.rstrip("/")):
            self._check_root()
            found = sorted(self._walk(prefix), key=lambda item: item.key)
            self._check_root()  # a volume unmounted during the walk looks like an empty folder
            return found

    def folders(self, within: str = "") -> tuple[str, ...]:
        """See BrowsableStore.folders."""
        with self._explained("list", within.rstrip("/")):
            self._check_root()
            found = [entry.name for entry in os.scandir(self.root / within) if entry.is_dir()]
        return tuple(sorted(name for name in found if not name.startswith(".")))

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore.delete."""
        folders = set()
        for key in keys:
            path = self._path(key)
            with self._explained("delete", key), contextlib.suppress(FileNotFoundError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            self._prune(folder)

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """See ObjectStore.abort_uploads: here, files that a killed writer left behind.

        A writer of an ended attempt that is still alive writes its file again (`_install`).
        """
        for folder, _, names in os.walk(self.root / prefix):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(self.root).as_posix()
                if name.startswith(TEMPORARY_NAME) and of(key):
                    with self._explained("delete", key), contextlib.suppress(FileNotFoundError):
                        path.unlink()
                    self._prune(path.parent)

    def close(self) -> None:
        """See ObjectStore.close."""

    def probe(self) -> None:
        """See ObjectStore.probe."""
        with self._explained("create", ""):
            self.root.mkdir(parents=True, exist_ok=True)
        probe_put_if_absent(
            self,
            otherwise="on this file system a hard link replaces an existing file, so a claim "
            "cannot be written exactly once; use another file system",
        )

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _name(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    def _check_root(self) -> None:
        if not self.root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(self.root))

    def _install(
        self, key: str, fill: Callable[[int], None], place: Callable[[Path, Path], None]
    ) -> None:
        """Fill a temporary file, sync it, and `place` it (rename or link) under its key."""
        path = self._path(key)
        temporary = path.parent / f"{TEMPORARY_NAME}{secrets.token_hex(8)}"
        for tries_left in reversed(range(INSTALL_TRIES)):
            try:
                self._make_folders(path.parent)
                _fill(temporary, fill)
                place(temporary, path)
                sync_folder(path.parent)
                return
            except FileNotFoundError:
                # A concurrent deletion removes folders that have become empty.
                if tries_left == 0 or not self.root.is_dir():
                    raise
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def _make_folders(self, folder: Path) -> None:
        self._check_root()
        missing = []
        while folder != self.root and not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            sync_folder(folder.parent)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        try:
            entries = list(os.scandir(self.root / prefix))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.name.startswith(TEMPORARY_NAME):
                continue
            if entry.is_dir():
                yield from self._walk(f"{prefix}{entry.name}/")
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted since the folder was read
                facts = entry.stat()
                yield ObjectInfo(
                    key=f"{prefix}{entry.name}",
                    size=facts.st_size,
                    modified=facts.st_mtime,
                    tag=str(facts.st_mtime_ns),
                )

    def _download(
        self, source: int, path: Path, key: str, ranges: Iterable[Range], size: int
    ) -> int:
        """Copy to `path`; return the CRC32. Errors of the target stay OSError."""
        crc32 = 0
        with path.open("wb", buffering=0) as target:
            target.truncate(size)
            for start, count in ranges:
                target.seek(start)
                while left := start + count - target.tell():
                    with self._explained("read", key):
                        data = os.pread(source, min(CHUNK, left), target.tell())
                    if not data:
                        raise changed(self._name(key))
                    crc32 = zlib.crc32(data, crc32)
                    write_all(target.fileno(), data)
        return crc32

    def _prune(self, folder: Path) -> None:
        """Remove `folder` and its parents while they hold only unfinished files."""
        with contextlib.suppress(OSError):  # not empty, removed, or no permission: all fine
            while folder != self.root:
                leftovers = list(folder.iterdir())
                if not all(path.name.startswith(TEMPORARY_NAME) for path in leftovers):
                    return
                for path in leftovers:
                    path.unlink()
                folder.rmdir()
                folder = folder.parent

    @contextlib.contextmanager
    def _explained(self, verb: str, key: str) -> Iterator[None]:
        """Turn an OSError from the block into a StoreError with a remedy."""
        try:
            yield
        except OSError as error:
            raise self._translate(error, f"cannot {verb} {self._name(key)}") from error

    def _translate(self, error: OSError, what: str) -> StoreError:
        why = error.strerror or str(error)
        if error.errno == errno.ENOENT:
            if self.root.is_dir():
                return ObjectNotFound(f"{what}: there is no such file")
            return StoreUnavailable(
                f"{what}: the folder {self.root} does not exist; is the volume mounted?"
            )
        if error.errno in _DENIED:
            return StoreDenied(
                f"{what}: {why}; the folder must be readable and writable for user {os.geteuid()}"
            )
        if error.errno in _FULL:
            return StoreFull(f"{what}: {why}; make room in {self.root}")
        if error.errno in _CLASH:
            return StoreMisconfigured(f"{what}: {why}; a file exists where a folder is needed")
        return StoreUnavailable(f"{what}: {why}")


def _fill(path: Path, fill: Callable[[int], None]) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fill(target)
        os.fsync(target)
    finally:
        os.close(target)


def _copy(source: int, target: int, progress: Progress | None) -> int:
    os.lseek(source, 0, os.SEEK_SET)  # for a second try
    crc32 = 0
    while data := os.read(source, CHUNK):
        crc32 = zlib.crc32(data, crc32)
        write_all(target, data)
        if progress is not None:
            progress(len(data))
    return crc32


def sync_folder(folder: Path) -> None:
    """Make renames in this folder survive a power failure. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
