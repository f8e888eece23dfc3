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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trainrun._common import writer_processes
from trainrun._common.tree import OURS, TreeEntry, mode_of, time_of
from trainrun.agent.folder.entries import (
    FileFacts,
    FolderEntry,
    Look,
    expression,
    is_log,
    leads_to,
    unfit,
)

MOST_FILES = 20_000
"""Maximum files of a folder of which something is stored."""
MOST_AT_START = 200_000
"""The same where it is only looked at: an attempt must start although the folder has grown."""
LONGEST_TEXT = 64 << 20
"""Bytes of a JSON file that is still parsed."""


def look_at(top: Path, most: int = MOST_FILES, *, within: str = "") -> Look:
    """The files and links of a folder; nothing if it is absent. `within`: a pattern; of other
    folders in it only logs are looked at. Raises OSError."""
    found: dict[str, FileFacts] = {}
    for folder, folders, names in _walk(top, within):
        links = [name for name in folders if (top / folder / name).is_symlink()]
        found |= facts_in(top, (folder + name for name in (*names, *links)))
        if len(found) > most:
            raise OSError(f"it has more than {most} files")
    return found


def facts_in(top: Path, names: Iterable[str]) -> Look:
    """Those of these names that are files or links. Raises OSError."""
    found = {}
    for name in names:
        try:
            facts = (top / name).lstat()
            target = os.fspath((top / name).readlink()) if stat.S_ISLNK(facts.st_mode) else ""
        except FileNotFoundError:  # renamed or deleted at this moment
            continue
        if stat.S_ISREG(facts.st_mode) or target:
            found[name] = facts_of(facts, target)
    return found


def facts_of(facts: os.stat_result, target: str = "") -> FileFacts:
    """What a look keeps of them."""
    return FileFacts(
        inode=facts.st_ino, size=facts.st_size, modified=facts.st_mtime_ns, target=target
    )


def folders_in(top: Path, within: str = "") -> list[TreeEntry]:
    """The folders that `look_at` looks at, each before its content; links to folders are none.

    Raises OSError.
    """
    found = []
    for above, folders, _ in _walk(top, within):
        for name in folders:
            facts = (top / above / name).lstat()
            if stat.S_ISDIR(facts.st_mode):
                mode, modified = mode_of(facts), time_of(facts)
                found.append(
                    TreeEntry(name=above + name, folder=True, mode=mode, modified=modified)
                )
    return found


def _walk(top: Path, within: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`; each folder by its name in `top` with a slash at the end, "" for `top`."""

    def failed(error: OSError) -> None:
        # Deleted at this moment; or at the root of a volume.
        if not isinstance(error, FileNotFoundError) and error.filename != f"{top}/lost+found":
            raise error

    for path, folders, names in os.walk(top, onerror=failed):
        folder = path[len(os.fspath(top)) + 1 :]
        if not folder and OURS in folders:
            folders.remove(OURS)
        folder = f"{folder}/" if folder else ""
        yield folder, folders, names
        if within:
            folders[:] = [
                n for n in folders if leads_to(folder + n, within) or is_log(f"{folder}{n}/")
            ]


def unfinished(top: Path, entry: FolderEntry, complete: Iterable[str]) -> str:
    """Why the entry is not a whole save; empty: it is one. Raises OSError."""
    try:
        return unfit(entry, complete) or writer_of(top, entry) or broken(top, entry)
    except FileNotFoundError as error:
        return f"{error.filename} disappeared"


def cut_off(top: Path, entry: FolderEntry) -> str:
    """Why this part of an entry, of which other workers may have the rest, is not whole; empty:
    nothing shows it. Raises OSError."""
    try:
        return unfit(entry, ()) or writer_of(top, entry) or _faults(top, entry)
    except FileNotFoundError as error:
        return f"{error.filename} disappeared"


def proven(top: Path, entry: FolderEntry, complete: Iterable[str]) -> bool:
    """Whether an entry that has no fault is whole by the formats of its files alone: of those named
    in `complete`, else of its only file. Raises OSError."""
    files = {name: facts.size for name, facts in entry.files.items() if not facts.target}
    wanted = [expression(pattern) for pattern in complete]
    last = [name for name in files if any(w.fullmatch(name) for w in wanted)] if wanted else files
    enough = bool(last) and (bool(wanted) or len(files) == 1)
    return enough and all(_fault(top / name, files[name]) == "" for name in last)


def writer_of(top: Path, entry: FolderEntry) -> str:
    """Who has a file of the entry open for writing; empty: nobody that we can see."""
    found = writer_processes.writers(top, entry.files, all_sessions=True)
    return f"{found[0].who} has {found[0].name} open for writing" if found else ""


def live(pids: Mapping[int, int]) -> bool:
    """Whether these processes, by rank, live: a process that is dying closes its files first."""
    return all(any(writer_processes.opened(pid)) for pid in pids.values())


def broken(top: Path, entry: FolderEntry) -> str:
    """Why the content of an entry shows that a file is cut off; empty: nothing shows it.

    Raises OSError.
    """
    if why := _faults(top, entry):
        return why
    if name := writer_processes.without_metadata(entry.files, entry.files):
        return f"{name} exists, but its .metadata does not"
    return ""


def _faults(top: Path, entry: FolderEntry) -> str:
    for name, facts in entry.files.items():
        if not facts.target and (why := _fault(top / name, facts.size)):
            return f"{name} {why}"
    return ""


def _fault(path: Path, size: int) -> str | None:
    """What shows that a file is cut off; empty: its format shows its end; None: it shows none."""
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"PK\x03\x04"):
        try:
            zipfile.ZipFile(path).close()
        except (zipfile.BadZipFile, ValueError):
            return "is a zip archive without its end"
        return ""
    if path.suffix == ".safetensors":
        return _broken_safetensors(path, head, size)
    if path.suffix == ".json" and size <= LONGEST_TEXT:
        try:
            json.loads(path.read_bytes())
        except ValueError:
            return "is not JSON"
        return ""
    return None


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
