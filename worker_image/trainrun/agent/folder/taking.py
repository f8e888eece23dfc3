"""Copies an entry into the staging folder, and a stored one back into the script's folder.

Layer: agent; called in threads. Invariants: what is staged is what was judged, or nothing; a file
appears in the script's folder whole, under its name, by a rename; nothing of the user is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from trainrun._common import writer_processes
from trainrun._common.tree import OURS, copy_file, inner_target, remove_directory, stamp, walk
from trainrun.agent.folder.entries import FolderEntry, Look, hard_links, is_log
from trainrun.agent.folder.looking import MOST_AT_START, facts_in, facts_of, folders_in, look_at

SPARE = 1.1
"""After a copy the disk must have room for so many times its size: for the script's next save."""


class EntryChanged(Exception):
    """The entry has changed since it was judged, or is gone."""


def take(
    top: Path,
    entry: FolderEntry,
    beside: Look,
    target: Path,
    *,
    place: str = "",
    within: str = "",
) -> int:
    """Stage an entry, with the files `beside` it as they are now, as the new folder `target`, below
    the folder `place` in it: then each hard link is a file.

    Returns `writer_processes.digest` of it. Raises EntryChanged, OSError; then nothing is left.
    """
    size = entry.size + sum(facts.size for facts in beside.values())
    part = target.with_name(f".part-{target.name}")
    inner = part / place
    remove_directory(part)
    try:
        inner.mkdir(parents=True)
        # The files of a save with a number are final; others will be overwritten in place.
        linked = entry.final and _can_link(top / min(entry.files), inner)
        if not linked and shutil.disk_usage(part).free - size < size * SPARE:
            raise OSError(errno.ENOSPC, "the disk has no room for it and for the next save")
        files = {**entry.files, **beside}  # those that were judged come first
        staged = files.keys() - (hard_links(files).keys() if not place else set())
        for name in sorted(staged):
            if (top / name).is_symlink():
                _stage_link(top, name, inner, staged, entry)
            else:
                _stage(top / name, inner / name, link=linked and name in entry.files)
        _make_folders(top, entry, inner, within)
        if not entry.same(facts_in(top, entry.files)):
            raise EntryChanged("it changed while it was copied")
        digest = writer_processes.digest(writer_processes.look(part))
        part.rename(target)
    except FileNotFoundError as error:
        raise EntryChanged(f"{error.filename} disappeared while it was copied") from error
    finally:
        remove_directory(part)
    return digest


def _stage(source: Path, there: Path, *, link: bool) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    if link:
        os.link(source, there)
    else:
        copy_file(source, there)


def _stage_link(
    top: Path, name: str, part: Path, staged: Collection[str], entry: FolderEntry
) -> None:
    """A link of the entry to what is not staged becomes a copy; a loose one is left out."""
    source, there = top / name, part / name
    target = inner_target(source, top)
    place = os.path.normpath(Path(name).parent / target) if target else ""
    own = [f"{own}/" for own in entry.names] or [""]
    if place and (f"{place}/".startswith(tuple(own)) or any(_below(n, place) for n in staged)):
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(target)
    elif name in entry.files and source.is_dir():
        raise OSError(f"{name} links to a folder that is not part of the save: remove the link")
    elif name in entry.files and source.is_file():
        before = facts_of(source.stat())
        _stage(source, there, link=False)
        if facts_of(source.stat()) != before:
            raise EntryChanged(f"what {name} links to changed while it was copied")


def _below(name: str, place: str) -> bool:
    return f"{name}/".startswith(f"{place}/")


def _can_link(file: Path, part: Path) -> bool:
    """Tried out: the folder may be on another disk, and a kernel may forbid it."""
    there = part / ".link"
    try:
        os.link(file, there, follow_symlinks=False)
    except OSError:
        return False
    there.unlink()
    return True


def _make_folders(top: Path, entry: FolderEntry, part: Path, within: str) -> None:
    """Empty ones too, with modes and times."""
    own = tuple(f"{name}/" for name in entry.names)
    found = []
    for folder in folders_in(top, within):
        inside = f"{folder.name}/".startswith(own) if own else not entry.names
        if inside or (part / folder.name).is_dir():
            (part / folder.name).mkdir(parents=True, exist_ok=True)
            found.append(folder)
    stamp(part, found)


def put_back(
    source: Path, top: Path, links: Mapping[str, str], *, without: Collection[str] = ()
) -> None:
    """Copy a stored checkpoint, `without` these files, into the script's folder, replacing what
    differs, except logs that are there: they have grown since. `links`: hard links to make. Raises
    OSError."""
    top.mkdir(parents=True, exist_ok=True)
    done = []
    for entry in walk(source) if source.is_dir() else ():
        there = top / entry.name
        if entry.name in without:
            continue
        if entry.folder:
            there.mkdir(exist_ok=True)
        elif is_log(entry.name) and os.path.lexists(there):
            continue
        else:
            with replacing(there) as part:
                if entry.target:
                    part.symlink_to(entry.target)
                else:
                    copy_file(source / entry.name, part)
        done.append(entry)
    stamp(top, done)
    for name, first in links.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        with replacing(top / name) as part:
            _link(top / first, part)


@contextlib.contextmanager
def replacing(there: Path) -> Iterator[Path]:
    """A name of ours for what is then renamed to `there`; nothing is left of it after an error."""
    part = there.with_name(f".trainrun-{os.urandom(4).hex()}")
    try:
        yield part
        part.replace(there)
    finally:
        part.unlink(missing_ok=True)


def _link(file: Path, there: Path) -> None:
    try:
        os.link(file, there)
    except OSError:  # a file system without hard links
        copy_file(file, there)


def move_aside(top: Path, names: Iterable[str], aside: Path, *, within: str = "") -> None:
    """Move these files of the folder to the folder `aside`, in place of those moved there before,
    and links that then lead nowhere. Raises OSError.
    """
    found = sorted(names)
    if not found:
        return
    look = look_at(top, MOST_AT_START, within=within)
    links = [name for name, facts in look.items() if facts.target]
    links = [name for name in links if name not in found and (top / name).exists()]
    remove_directory(aside)
    try:
        _move(top, found, aside)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        aside = inside_of(top)  # the folder is where a volume is mounted
        remove_directory(aside)
        _move(top, found, aside)
    _move(top, [name for name in links if not (top / name).exists()], aside)
    for name in reversed(found):
        for folder in Path(name).parents:
            with contextlib.suppress(OSError):
                (top / folder).rmdir()  # only if it is empty now


def _move(top: Path, names: Iterable[str], aside: Path) -> None:
    for name in names:
        there = aside / name
        there.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (top / name).rename(there)


def aside_of(top: Path, base: Path) -> Path:
    """Where to move what a folder must not show the script, which works in `base`: beside it, on
    the same disk; inside where there is no place beside it."""
    if top.resolve() == base.resolve() or not os.access(top.parent, os.W_OK):
        return inside_of(top)
    return top.parent / ".trainrun-aside" / top.name


def inside_of(top: Path) -> Path:
    """Where a look at the folder sees nothing."""
    return top / OURS / "aside"
