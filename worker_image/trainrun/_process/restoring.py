"""Restores a checkpoint into a folder of the script, once per attempt for all its ranks.

Next to the folder, or in it if that is another file system, is `.<name>.trainrun`:

    lock                  flock: one process restores, the others of this machine wait
    restored.json         the last restored checkpoint; none while a restore is in progress
    copy/                 the checkpoint in transit; then renamed into the folder, entry by entry
    before-attempt-3/     other files that were in the folder when attempt 3 restored it

Invariants: a restore moves old files aside and does not delete them; the next process restarts a
restore that was killed; files that the ranks of an attempt wrote after its first restore stay in
place.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun._common.tree import OURS, mode_of, remove_directory, stamp, walk
from trainrun._process.staging import copy_entries
from trainrun.contract import wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainrun._common.tree import TreeEntry

ROOM = 1 << 30
"""Bytes of files moved aside earlier that may stay; or the size of the checkpoint if larger."""

_restored_here: set[tuple[Path, str]] = set()
"""Parts that this process has restored: a second call restores the folder again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """`restored.json`."""

    run_id: str = ""
    attempt: int = 0
    parts: tuple[str, ...] = ()
    """Parts of checkpoints in the folder; empty during a restore."""
    aside: tuple[str, ...] = ()
    """Folders to which this run has moved files aside, oldest first."""


def restore(source: Path, target: Path, *, part: str, run_id: str, attempt: int) -> None:
    """Make the directory `target` equal to `source`, once for all calls with this `part`.

    Moves anything else in it aside, except mounted folders. Without a `run_id` an earlier call
    cannot be assigned to the same attempt, so it restores whenever the two differ. Raises
    ValueError for a folder that contains more than a training's output, and OSError.
    """
    source, target = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    _check(source, target)
    target.mkdir(parents=True, exist_ok=True)
    own_folder = _own_folder(target)
    with _locked(own_folder):
        recorded = _read(own_folder)
        mine = recorded if run_id and recorded.run_id == run_id else Restored(run_id=run_id)
        again = (target, part) in _restored_here
        joins = bool(mine.run_id and mine.attempt == attempt and mine.parts and not again)
        entries = walk(source)
        if (joins and part in mine.parts) or (not run_id and entries == walk(target)):
            return
        copy = _copied(source, entries, own_folder / "copy")
        mine = _with_aside(mine, own_folder, attempt)
        _write(own_folder, replace(mine, attempt=attempt, parts=()))
        aside = own_folder / mine.aside[-1]
        if not joins:
            _forget_older(own_folder, mine.aside, room=max(ROOM, _size(copy)))
            _move_aside(target, aside)
        _move_in(copy, target, aside)
        stamp(target, entries, apart=True)
        parts = (*mine.parts, part) if joins else (part,)
        _write(own_folder, replace(mine, attempt=attempt, parts=parts))
        _restored_here.add((target, part))


def _copied(source: Path, entries: Sequence[TreeEntry], copy: Path) -> Path:
    remove_directory(copy)  # of a killed restore
    copy.mkdir()
    try:
        copy_entries(source, copy, entries)
    except OSError:
        remove_directory(copy)  # it may have filled the disk
        raise
    return copy


def _check(source: Path, target: Path) -> None:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    kept = {
        "the working directory": Path.cwd(),
        "the home directory": Path(os.environ.get("HOME") or "/"),
        "the folder for temporary files": Path(tempfile.gettempdir()),
        "the script": Path(script or "."),
        "the Python that runs it": Path(sys.prefix),
        "the checkpoint itself": source,
    }
    for what, path in kept.items():
        if path.resolve().is_relative_to(target):
            raise ValueError(
                f"to_directory({os.fspath(target)!r}): this folder is or contains {what}, and "
                "everything that is not part of the checkpoint would be moved out of it; name a "
                "folder that contains only checkpoints"
            )
    if target.is_relative_to(source):
        raise ValueError(
            f"to_directory({os.fspath(target)!r}): this folder is inside the checkpoint; name "
            "another one"
        )


def _own_folder(target: Path) -> Path:
    """The folder for our files, on the same file system as `target`; created if needed."""
    parent = target.parent
    sibling = os.access(parent, os.W_OK) and parent.stat().st_dev == target.stat().st_dev
    path = parent / f".{target.name}{OURS}" if sibling else target / OURS
    path.mkdir(exist_ok=True)
    return path


@contextlib.contextmanager
def _locked(own_folder: Path) -> Iterator[None]:
    lock = os.open(own_folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases it however its holder ends
        yield
    finally:
        os.close(lock)


def _read(own_folder: Path) -> Restored:
    try:
        return wire.decode(Restored, json.loads((own_folder / "restored.json").read_text()))
    except (FileNotFoundError, ValueError):
        return Restored()


def _write(own_folder: Path, restored: Restored) -> None:
    path = own_folder / ".restored.json"
    path.write_text(json.dumps(wire.encode(restored)))
    path.replace(own_folder / "restored.json")


def _with_aside(restored: Restored, own_folder: Path, attempt: int) -> Restored:
    """Add the folder to which this attempt moves files; reuse that of a killed restore."""
    if restored.aside and (not restored.parts or restored.attempt == attempt):
        return restored
    name = f"before-attempt-{attempt}"
    taken = sum(path.name.startswith(name) for path in own_folder.iterdir())
    return replace(restored, aside=(*restored.aside, f"{name}-{taken + 1}" if taken else name))


def _forget_older(own_folder: Path, aside: tuple[str, ...], *, room: int) -> None:
    """Delete the oldest files that this run moved aside while they take more than `room` bytes;
    except the first ones, which may be older than the run, and the last ones."""
    older = [own_folder / name for name in aside[1:-1]]
    while older and sum(map(_size, older)) > room:
        remove_directory(older.pop(0))


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _move_aside(target: Path, aside: Path) -> None:
    moved = 0
    for item in list(target.iterdir()):
        if item.name not in (OURS, "lost+found") and not os.path.ismount(item):
            _move(item, aside)
            moved += 1
    if moved:
        sys.stderr.write(
            f"trainrun: {target} now holds the checkpoint; its old files are in {aside}\n"
        )


def _move_in(copy: Path, target: Path, aside: Path) -> None:
    """Move the copy in; move files in its way aside, but not folders: they may contain files of
    other ranks."""
    for item in list(copy.iterdir()):
        there = target / item.name
        if item.is_dir() and not item.is_symlink() and there.is_dir() and not there.is_symlink():
            _move_in(item, there, aside / item.name)
            continue
        if os.path.lexists(there):
            _move(there, aside)
        _move(item, target)


def _move(item: Path, folder: Path) -> None:
    """Move into a folder, under another name if this one is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    there, number = folder / item.name, 1
    while os.path.lexists(there):
        there, number = folder / f"{item.name}.{number}", number + 1
    mode = mode_of(item.lstat())
    if item.is_dir() and not item.is_symlink() and not mode & 0o200:
        item.chmod(mode | 0o200)  # a read-only folder cannot be moved
    item.rename(there)
