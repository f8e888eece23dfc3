"""Looks at a script's folder, and at what is in its files.

Layer: agent; called in threads. A file whose format shows its end must have that end; times alone
prove nothing.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainrun._common import writer_processes
from trainrun._common.tree import OURS
from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, unfit

MOST_FILES = 20_000
"""Maximum files of a folder."""
LONGEST_TEXT = 64 << 20
"""Bytes of a JSON file that is still parsed."""


class FolderUnreadable(OSError):
    """The folder cannot be looked at as a whole."""


def look_at(top: Path) -> Look:
    """The files and links of a folder; nothing if it is absent. Raises OSError."""
    found: dict[str, FileFacts] = {}
    try:
        for name, entry in writer_processes.walk(top):
            if name.partition("/")[0] == OURS or entry.is_dir(follow_symlinks=False):
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
                target = os.fspath(Path(entry.path).readlink()) if entry.is_symlink() else ""
            except FileNotFoundError:  # renamed or deleted at this moment
                continue
            if stat.S_ISREG(facts.st_mode) or target:
                found[name] = FileFacts(
                    inode=facts.st_ino,
                    size=facts.st_size,
                    modified=facts.st_mtime_ns,
                    target=target,
                )
            if len(found) > MOST_FILES:
                raise FolderUnreadable(f"it has more than {MOST_FILES} files")
    except FileNotFoundError:
        return {} if not top.exists() else found
    return found


def unfinished(top: Path, entry: FolderEntry, complete: Iterable[str]) -> str:
    """Why the entry is not a whole save; empty: it is one. Raises OSError."""
    try:
        return unfit(entry, complete) or writer_of(top, entry) or broken(top, entry)
    except FileNotFoundError as error:
        return f"{error.filename} disappeared"


def writer_of(top: Path, entry: FolderEntry) -> str:
    """Who has a file of the entry open for writing; empty: nobody that we can see."""
    seen = {name: (facts.size, facts.modified) for name, facts in entry.files.items()}
    found = writer_processes.writers(top, seen, all_sessions=True)
    return f"{found[0].who} has {found[0].name} open for writing" if found else ""


def live(pids: Mapping[int, int]) -> bool:
    """Whether these processes, by rank, live: a process that is dying closes its files first."""
    return all(any(writer_processes.opened(pid)) for pid in pids.values())


def broken(top: Path, entry: FolderEntry) -> str:
    """Why the content of an entry shows that a file is cut off; empty: nothing shows it.

    Raises OSError.
    """
    for name, facts in entry.files.items():
        if not facts.target and (why := _broken_file(top / name, facts.size)):
            return f"{name} {why}"
    fresh = {name: (facts.size, facts.modified) for name, facts in entry.files.items()}
    if name := writer_processes.without_metadata(fresh, fresh):
        return f"{name} exists, but its .metadata does not"
    return ""


def _broken_file(path: Path, size: int) -> str:
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"PK\x03\x04"):
        try:
            zipfile.ZipFile(path).close()
        except (zipfile.BadZipFile, ValueError):
            return "is a zip archive without its end"
    elif path.suffix == ".safetensors":
        return _broken_safetensors(path, head, size)
    elif path.suffix == ".json" and size <= LONGEST_TEXT:
        try:
            json.loads(path.read_bytes())
        except ValueError:
            return "is not JSON"
    return ""


def _broken_safetensors(path: Path, head: bytes, size: int) -> str:
    try:
        (length,) = struct.unpack("<Q", head)
        if length > min(size, LONGEST_TEXT):
            return "is cut off in its header"
        with path.open("rb") as file:
            file.seek(8)
            header = json.loads(file.read(length))
        ends = [facts["data_offsets"][1] for key, facts in header.items() if key != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        return "has no header of safetensors"
    return "" if 8 + length + max(ends, default=0) == size else "does not have its full size"
