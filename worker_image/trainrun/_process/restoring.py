"""A checkpoint in a folder of the script's own: equal to it, once per attempt, for all its ranks.

Beside the folder, or in it where that is another file system, lies `.<name>.trainrun`:

    lock                  flock: one process restores, the others of this machine wait
    restored.json         what was restored last; names nothing while a restoration is under way
    copy/                 the checkpoint on its way; then renamed into the folder, entry by entry
    before-attempt-3/     what else was in the folder when attempt 3 restored it

Invariants: nothing that was in the folder is deleted by the restoration that moves it; one that was
killed is begun anew by whoever comes next; what the ranks of an attempt have written since the
first of them restored stays where it is.
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
"""Bytes: so much, or as much as the checkpoint takes, may stay of what was moved aside before."""

_restored_here: set[tuple[Path, str]] = set()
"""What this process has restored: when it asks once more, it wants the folder as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """`restored.json`."""

    run_id: str = ""
    attempt: int = 0
    parts: tuple[str, ...] = ()
    """What of which checkpoints is there; empty while it is being changed."""
    aside: tuple[str, ...] = ()
    """Where this run has moved things to, oldest first."""


def restore(source: Path, target: Path, *, part: str, run_id: str, attempt: int) -> None:
    """Make the directory `target` equal to `source`, once for all who ask for this `part`.

    What else is there is moved aside, but for mounted folders. Without a `run_id` nothing tells
    that an earlier call was of the same attempt: then it is done wherever the two differ.
    Raises ValueError for a folder that holds more than a training's output, and OSError.
    """
    source, target = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    _check(source, target)
    target.mkdir(parents=True, exist_ok=True)
    beside = _beside(target)
    with _locked(beside):
        recorded = _read(beside)
        mine = recorded if run_id and recorded.run_id == run_id else Restored(run_id=run_id)
        again = (target, part) in _restored_here
        joins = bool(mine.run_id and mine.attempt == attempt and mine.parts and not again)
        entries = walk(source)
        if (joins and part in mine.parts) or (not run_id and entries == walk(target)):
            return
        copy = _copied(source, entries, beside / "copy")
        mine = _with_aside(mine, beside, attempt)
        _write(beside, replace(mine, attempt=attempt, parts=()))
        aside = beside / mine.aside[-1]
        if not joins:
            _forget_older(beside, mine.aside, room=max(ROOM, _size(copy)))
            _move_aside(target, aside)
        _move_in(copy, target, aside)
        stamp(target, entries, apart=True)
        parts = (*mine.parts, part) if joins else (part,)
        _write(beside, replace(mine, attempt=attempt, parts=parts))
        _restored_here.add((target, part))


def _copied(source: Path, entries: Sequence[TreeEntry], copy: Path) -> Path:
    remove_directory(copy)  # of a restoration that was killed
    copy.mkdir()
    try:
        copy_entries(source, copy, entries)
    except OSError:
        remove_directory(copy)  # the disk may be full of it
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
                f"to_directory({os.fspath(target)!r}): this folder is or holds {what}, and all "
                "that is no part of the checkpoint would be moved out of it; name a folder that "
                "has nothing but checkpoints in it"
            )
    if target.is_relative_to(source):
        raise ValueError(f"to_directory({os.fspath(target)!r}): this is within the checkpoint")


def _beside(target: Path) -> Path:
    """Where files can be renamed from and to; made if need be."""
    parent = target.parent
    sibling = os.access(parent, os.W_OK) and parent.stat().st_dev == target.stat().st_dev
    path = parent / f".{target.name}{OURS}" if sibling else target / OURS
    path.mkdir(exist_ok=True)
    return path


@contextlib.contextmanager
def _locked(beside: Path) -> Iterator[None]:
    lock = os.open(beside / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel gives it back however its holder ends
        yield
    finally:
        os.close(lock)


def _read(beside: Path) -> Restored:
    try:
        return wire.decode(Restored, json.loads((beside / "restored.json").read_text()))
    except (FileNotFoundError, ValueError):
        return Restored()


def _write(beside: Path, restored: Restored) -> None:
    path = beside / ".restored.json"
    path.write_text(json.dumps(wire.encode(restored)))
    path.replace(beside / "restored.json")


def _with_aside(restored: Restored, beside: Path, attempt: int) -> Restored:
    """With the folder for what this attempt moves aside: that of a killed restoration goes on."""
    if restored.aside and (not restored.parts or restored.attempt == attempt):
        return restored
    name = f"before-attempt-{attempt}"
    taken = sum(path.name.startswith(name) for path in beside.iterdir())
    return replace(restored, aside=(*restored.aside, f"{name}-{taken + 1}" if taken else name))


def _forget_older(beside: Path, aside: tuple[str, ...], *, room: int) -> None:
    """Delete what this run has moved aside where it takes more room; not what it found at first,
    which may be older than the run, nor what it moved last."""
    older = [beside / name for name in aside[1:-1]]
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
            f"trainrun: {target} is a checkpoint's now; what was in it is in {aside}\n"
        )


def _move_in(copy: Path, target: Path, aside: Path) -> None:
    """What is in the way goes aside, but for folders, which other ranks may have files in."""
    for item in list(copy.iterdir()):
        there = target / item.name
        if item.is_dir() and not item.is_symlink() and there.is_dir() and not there.is_symlink():
            _move_in(item, there, aside / item.name)
            continue
        if os.path.lexists(there):
            _move(there, aside)
        _move(item, target)


def _move(item: Path, folder: Path) -> None:
    """Move into a folder, under another name where this one is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    there, number = folder / item.name, 1
    while os.path.lexists(there):
        there, number = folder / f"{item.name}.{number}", number + 1
    mode = mode_of(item.lstat())
    if item.is_dir() and not item.is_symlink() and not mode & 0o200:
        item.chmod(mode | 0o200)  # a read-only folder cannot go elsewhere
    item.rename(there)
