"""Files of checkpoints on a node's disk: each downloaded once, verified, then linked into views.

Layer: local files only. One checkpoint has one folder:

    <cache>/<run>-<hash>/step-...-attempt-3.lock     flock: one download at a time on this node
    <cache>/<run>-<hash>/step-...-attempt-3/
        partial/<worker>/<name>  files on their way
        boot                     the boot of this machine that the rest belongs to
        files/<worker>/<name>    verified files, each put here by one rename
        views/all, views/rank-3  directories of links to them, each put here by one rename

Invariants: what carries its final name is whole; a file that somebody changed afterwards, or that a
power failure may have emptied, is not used again. A verified file's modification time is set to
that of the file which was saved, so any later write to it shows. A checkpoint is deleted under its
own lock: never while somebody downloads it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainrun._common.disk import NO_ROOM, remove_directory
from trainrun._common.tree import TreeEntry, set_mode, stamp
from trainrun.checkpoint.stores.parts import FILES, in_order
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CacheUnusable

PARTIAL = "partial"
"""Folder of files that are on their way."""

NEWEST = 2
"""Checkpoints of a run that stay on a node: the resume point and the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFile:
    """A file that a view shows."""

    name: str
    """In the view."""
    source: str
    """Relative path below `files/`; unique in its checkpoint."""
    size: int
    """Bytes."""
    crc32: int
    """Of its content; for a foreign file of what stands for its content."""
    summed: bool = True
    """`crc32` is that of its content."""
    tag: str = ""
    """The version that a listing showed, for a file without a checksum."""
    mode: int = 0
    """Permission bits; 0: not known."""
    modified: int = 0
    """Microseconds since the epoch; 0: not known."""

    @property
    def stamp(self) -> int:
        """The modification time (nanoseconds) that marks it as verified; where its own is not known
        below 2**30 s, since times after 2038 are lost on some file systems."""
        return self.modified * 1000 or (self.crc32 & 0x3FFFFFFF) * 10**9


Fetch = Callable[[CachedFile, Path], None]
"""Downloads a file to a path that does not exist yet, and verifies it; several threads call it."""

Needed = Callable[[], bool]
"""Whether the checkpoint is still needed, so that others may be given up for it."""


def run_folder(cache: Path, *, uri: str, name: str) -> Path:
    """Where a node keeps the checkpoints of one run (or of one initial checkpoint)."""
    digest = hashlib.blake2b(uri.encode(), digest_size=6).hexdigest()
    return cache / f"{name[:48]}-{digest}"


def materialize_view(
    folder: Path,
    *,
    view: str,
    files: Iterable[CachedFile],
    others: Sequence[TreeEntry],
    fetch: Fetch,
    needed: Needed,
) -> Path:
    """Return a directory with these files, folders and links, downloading what is not here yet.

    Waits while another process of this node does the same. Where the disk is full, other
    checkpoints of the run go. Raises CacheUnusable for trouble with the local disk, and whatever
    `fetch` raises but OSError.
    """
    wanted = sorted(files, key=lambda item: item.name)
    target = folder / "views" / view

    def work() -> Path:
        if not _shows(target, wanted, others):
            with ThreadPoolExecutor(FILES) as pool:
                downloads = [pool.submit(_download, folder, item, fetch) for item in wanted]
                for _ in in_order(pool, downloads):
                    pass
            _build(folder, target, wanted, others)
        return target

    with _explained(folder, wanted):
        return _making_room(folder, needed, work)


def materialize_file(folder: Path, item: CachedFile, fetch: Fetch, *, needed: Needed) -> Path:
    """Return one file for reading, downloading it where it is not here yet; in no view.

    Waits, makes room and raises like `materialize_view`.
    """

    def work() -> Path:
        _download(folder, item, fetch)
        return folder / "files" / item.source

    with _explained(folder, [item]):
        return _making_room(folder, needed, work)


def find_file(folder: Path, item: CachedFile) -> Path | None:
    """The file, where it is here and verified; waits for nobody."""
    path = folder / "files" / item.source
    with contextlib.suppress(OSError):
        if (folder / "boot").read_text() == _boot_id() and _is_verified(path, item):
            return path
    return None


def bytes_received(folder: Path) -> int:
    """How much of a checkpoint is on this node's disk: grows while it is being downloaded."""
    size = 0
    with contextlib.suppress(OSError):  # renamed or removed meanwhile: the next look is right again
        for path in (*(folder / PARTIAL).rglob("*"), *(folder / "files").rglob("*")):
            if path.is_file():
                # Not the length: a file may have its full one from the start.
                size += path.stat().st_blocks * 512
    return size


def forget_older(used: Path, *, newest: int = NEWEST) -> None:
    """Delete all but the newest checkpoints of a run; the folder `used` stays, however old.

    Newer ones than that may be there: those that turned out to be damaged. What another process
    downloads right now stays as well.
    """
    for path in _oldest_first(used.parent)[:-newest]:
        if path != used:
            _forget(path)


def _making_room(folder: Path, needed: Needed, work: Callable[[], Path]) -> Path:
    """What `work` returns, done under the lock of the folder.

    Each time that the disk is full another checkpoint goes, until none is left. Newer ones go last:
    they are damaged, or what an attempt that has begun meanwhile resumes from.
    """
    others: Iterator[Path] | None = None
    while True:
        try:
            with _locked(folder):
                _forget_other_boots(folder)
                return work()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if others is None:
                others = (path for path in _oldest_first(folder.parent) if path != folder)
            if not any(_forget(path, needed) for path in others):
                raise


def _oldest_first(run: Path) -> list[Path]:
    """Folders of a run's checkpoints."""
    found = {}
    with contextlib.suppress(OSError):
        found = {CheckpointId.named(path.name): path for path in run.iterdir()}
    return [found[key] for key in sorted(key for key in found if key is not None)]


def _forget(path: Path, allowed: Needed = lambda: True) -> bool:
    """Delete a checkpoint that no process downloads right now; False where it stays.

    `allowed` is asked under the lock: whoever has asked for this checkpoint waits for it before
    looking at what is there.
    """
    with contextlib.suppress(OSError), _locked(path, wait=False):
        if allowed():
            return not remove_directory(path)
    return False


@contextlib.contextmanager
def _explained(folder: Path, files: Iterable[CachedFile]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = ""
        if error.errno in NO_ROOM:
            size = sum(item.size for item in files)
            remedy = (
                f"; its disk must hold these {size / 1e6:.1f} MB beside what is staged: make room "
                "on it, or raise the worker's ephemeral storage"
            )
        raise CacheUnusable(
            f"cannot keep a checkpoint in {folder}: {error.strerror or error}{remedy}"
        ) from error


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the checkpoint's lock; without `wait`, BlockingIOError when somebody has it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.with_name(folder.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The kernel gives the lock back when its holder dies, however it dies.
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(lock)


def _forget_other_boots(folder: Path) -> None:
    """Drop what was downloaded before the machine last started: it was never synced to disk."""
    boot = _boot_id()
    note = folder / "boot"
    if not note.is_file() or note.read_text() != boot:
        remove_directory(folder)
        folder.mkdir()
        # Once: on a full disk a second writing could leave it empty, and the rest untrusted.
        note.write_text(boot)
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)  # of a download that was killed


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


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
    return facts.st_size == item.size and facts.st_mtime_ns in (item.stamp, whole_seconds)


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
    """Make the view aside and rename it; an outdated one goes first."""
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
    partial.rename(target)
