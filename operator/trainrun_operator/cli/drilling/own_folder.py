"""A working folder of its own for each run of a drill: with all that is in the user's, and without
what other runs have written there.

Layer: cli; makes folders and links. Nothing in the user's folder is copied, moved or removed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.worlds.local.program import Program

MANY = 500
"""Entries of a folder that holds data rather than what a script writes: it is one link."""
MOST = 5_000
"""Folders and links that are made."""


def elsewhere(program: Program, root: Path) -> Program:
    """The same program in a folder like its own below `root`. What its command and variables name
    below its own folder is below that one."""
    own = program.working_dir
    if not own.parent.name:
        return program  # it is the root of the file system, or next to it
    # With what lies beside it, for a script that looks there.
    copy = root / own.parent.name / own.name
    _link(own.parent.parent, root, but=own.parent)
    _link(own.parent, copy.parent, but=own)
    _mirror(own, copy, root)

    def moved(text: str) -> str:
        return text.replace(f"{own}/", f"{copy}/")

    return replace(
        program,
        command=(program.command[0], *map(moved, program.command[1:])),
        working_dir=copy,
        env={name: moved(value) for name, value in program.env.items()},
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _link(folder: Path, to: Path, *, but: Path) -> None:
    """Links to all that is in a folder, where that is not much."""
    to.mkdir(parents=True, exist_ok=True)
    found = [it for it in _entries(folder) if it.name != but.name]
    for each in found if len(found) <= MANY else ():
        (to / each.name).symlink_to(each.path)


def _mirror(folder: Path, to: Path, root: Path) -> None:
    """Folders of its own, and links to files; a link to a folder where there is too much in it."""
    waiting, left = [(folder, to)], MOST
    while waiting:
        source, target = waiting.pop(0)
        found = _entries(source)
        left -= len(found)
        if source != folder and (left < 0 or len(found) > MANY):
            target.symlink_to(source)
            continue
        target.mkdir()
        for each in found:
            if not each.is_dir(follow_symlinks=False) or each.name.startswith("."):
                (target / each.name).symlink_to(each.path)
            elif not root.is_relative_to(each.path):  # else it would be in itself
                waiting.append((Path(each.path), target / each.name))
