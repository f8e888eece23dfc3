"""What a directory holds besides the bytes of its files: folders, links, modes and times.

Layer: leaf, shared by both sides. Invariant: a link to something in the same directory is a
relative link wherever the directory is copied to; any other one stands for what it leads to, as
nothing says that this is there on another machine. Also how a disk says that it is full, and
removing what was made read-only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors: no room, for anybody or for this user."""

OURS = ".trainrun"
"""A folder of this name at the top of a directory is TrainRun's and no part of it."""

APART = 300
"""So many of the newest entries get times of change that differ; a clock tick is up to 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file, folder or link of a directory."""

    name: str
    """Path relative to the directory."""
    folder: bool = False
    target: str = ""
    """Where a link leads, relative to the folder that it is in; empty: it is no link."""
    mode: int = 0
    """Permission bits."""
    modified: int = 0
    """Microseconds since the epoch, which every file system can keep in its times."""
    ranks: tuple[int, ...] = ()
    """Within a checkpoint: the global ranks that brought it, ascending."""


def walk(top: Path) -> list[TreeEntry]:
    """All of a directory, ordered by name, each folder before what is in it.

    A link to a folder outside is followed, but not back to where it was met. Raises OSError.
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
    """Where a link in `top` leads if that is in `top` as well, from its own folder; else empty."""
    target, real = link.readlink(), Path(os.path.realpath(link))
    # Not by way of the directory's own name: it is another one after a rename.
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
    """Set permission bits, where the file system has any."""
    with contextlib.suppress(PermissionError):
        path.chmod(mode)


def stamp(top: Path, entries: Iterable[TreeEntry], *, apart: bool = False) -> None:
    """Give what lies in `top` the modes and times of these entries, the oldest first.

    With `apart` the times of change (ctime), which nobody can set, are in the same order: this
    waits for the next tick of the clock between two of the newest entries. Raises OSError.
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
    """Remove a directory with all that is in it; return why something stays, empty: nothing does.

    Folders in it that are read-only, as copies of read-only ones are, are made writable for it.
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
    with contextlib.suppress(OSError):  # of somebody else, or gone: what stays is told at the end
        folder.chmod(0o700)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                _make_writable(path)
