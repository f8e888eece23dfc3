"""The structure of a directory: folders, links, modes and times, without file contents.

Layer: leaf, shared by both sides. Invariant: a link to something in the same directory stays a
relative link wherever the directory is copied to; any other link is replaced by its target, which
may not exist on another machine. Also the errors of a full disk, copies of files, and removal of
read-only directories.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk or an exhausted quota."""

OURS = ".trainrun"
"""A folder of this name at the top of a directory belongs to TrainRun and is not part of it."""

APART = 300
"""How many of the newest entries get distinct times of change; a clock tick is up to 10 ms."""

_FICLONE = 0x40049409
"""ioctl of <linux/fs.h>: the copy shares its blocks until one side writes (btrfs, XFS)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file, folder or link of a directory."""

    name: str
    """Path relative to the directory."""
    folder: bool = False
    target: str = ""
    """The target of a link, relative to its folder; empty: not a link."""
    mode: int = 0
    """Permission bits."""
    modified: int = 0
    """Microseconds since the epoch, a precision that every file system can store."""
    ranks: tuple[int, ...] = ()
    """In a checkpoint: the global ranks that brought it, ascending."""


def walk(top: Path) -> list[TreeEntry]:
    """All entries of a directory, ordered by name, each folder before its content.

    Follows a link to a folder outside, but not back to a folder above the link. Raises OSError.
    """
    return sorted(_below(top, "", frozenset()), key=lambda entry: entry.name)


def _below(top: Path, prefix: str, above: frozenset[str]) -> Iterator[TreeEntry]:
    above |= {os.path.realpath(top / prefix)}
    with os.scandir(top / prefix) as items:
        for item in items:
            name, path = prefix + item.name, Path(item.path)
            target = inner_target(path, top) if item.is_symlink() else ""
            folder = not target and item.is_dir()
            if name == OURS or (folder and os.path.realpath(path) in above):
                continue
            facts = item.stat(follow_symlinks=not target)
            yield TreeEntry(
                name=name,
                folder=folder,
                target=target,
                mode=mode_of(facts),
                modified=time_of(facts),
            )
            if folder:
                yield from _below(top, f"{name}/", above)


def inner_target(link: Path, top: Path) -> str:
    """The target of a link in `top`, relative to the link's folder; empty: it is outside `top`."""
    target, real = link.readlink(), Path(os.path.realpath(link))
    # Not through the directory's own name, which a rename changes.
    inside = Path(os.path.normpath(Path(os.path.relpath(link.parent, top)) / target))
    outside = inside.is_absolute() or inside.parts[:1] == ("..",)
    if outside or Path(os.path.realpath(top / inside)) != real:
        base = Path(os.path.realpath(top))
        if not real.is_relative_to(base):
            return ""
        inside = real.relative_to(base)
    return os.path.relpath(top / inside, link.parent)


def mode_of(facts: os.stat_result) -> int:
    """Permission bits."""
    return facts.st_mode & 0o777


def time_of(facts: os.stat_result) -> int:
    """When something was modified, in microseconds since the epoch."""
    return facts.st_mtime_ns // 1000


def set_mode(path: Path, mode: int) -> None:
    """Set permission bits, if the file system supports them."""
    with contextlib.suppress(PermissionError):
        path.chmod(mode)


def stamp(top: Path, entries: Iterable[TreeEntry], *, apart: bool = False) -> None:
    """Set the modes and times of these entries in `top`, the oldest first.

    With `apart` the times of change (ctime), which cannot be set, get the same order: it waits for
    a clock tick between two of the newest entries. Raises OSError.
    """
    ordered = sorted(entries, key=lambda entry: entry.modified)
    changed = before = 0
    for left, entry in zip(range(len(ordered), 0, -1), ordered, strict=True):
        path, times = top / entry.name, (entry.modified * 1000, entry.modified * 1000)
        if not entry.target:
            set_mode(path, entry.mode | (0o500 if entry.folder else 0o400))  # to be read at all
        os.utime(path, ns=times, follow_symlinks=False)
        if not apart:
            continue
        while before < entry.modified and left < APART and path.lstat().st_ctime_ns <= changed:
            time.sleep(0.001)
            os.utime(path, ns=times, follow_symlinks=False)
        changed, before = path.lstat().st_ctime_ns, entry.modified


def remove_directory(path: Path) -> str:
    """Remove a directory and its content; return why something is left, empty: nothing is.

    Makes read-only folders in it writable first, such as copies of read-only ones.
    """
    shutil.rmtree(path, ignore_errors=True)
    if not path.is_dir() or path.is_symlink():
        return ""
    _make_writable(path)
    shutil.rmtree(path, ignore_errors=True)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    return ""


def _make_writable(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not ours, or deleted: the caller reports what is left
        folder.chmod(0o700)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                _make_writable(path)


def write_all(target: int, data: bytes | memoryview) -> None:
    """Write to an open file until all is written: a disk that gets full takes a part first."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, sharing its blocks if the file system can. Raises OSError."""
    with open(source, "rb") as reader, open(target, "xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:  # another file system, or one that cannot share blocks
            shutil.copyfileobj(reader, writer, 1 << 20)
    facts = source.stat()
    set_mode(target, mode_of(facts))
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def copy_over(source: Path, target: Path) -> None:
    """Copy a file, replacing any at the target; it appears whole. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".trainrun-") as folder:
        copy_file(source, Path(folder, target.name))
        Path(folder, target.name).replace(target)
