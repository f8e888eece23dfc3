"""Whether a directory is still being written, as far as this machine shows.

Invariant: where a save does its work before it returns, nothing here holds it up. What nothing here
shows: a writer through a memory map whose descriptor is closed, one on another machine, and one
that has not begun.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

REMEDY = (
    "Report a checkpoint when its save has ended: wait for the future of async_save(), call "
    "wait_until_finished() of orbax, or join the thread or process that saves"
)

SHARED_REMEDY = (
    "Where ranks save into one folder, let them wait for each other (torch.distributed.barrier()) "
    "before they report it, or let each rank report a directory of its own files"
)

QUIET = 0.02
"""Seconds without a change after which a directory of the script's own is copied."""

TEMPORARY = re.compile(
    r"\.orbax-checkpoint-tmp|\.__lock$|\.(tmp|temp|part|partial|incomplete)$|^\.tmp\w{6}$"
    r"|^tmp-checkpoint-"
)
"""Names that go when a save ends: of orbax, tensorstore, PyTorch, safetensors, Hugging Face."""

OUTPUTS = (1, 2)
"""Descriptors of a process's output."""

Look: TypeAlias = "dict[str, tuple[int, int]]"
"""Files by name within a directory, each with its size and its time of change in nanoseconds. Names
of folders end with a slash."""


class Unfinished(NamedTuple):
    """Why a directory is not finished."""

    why: str
    ours: bool
    """This rank writes it. Where another one may, that ends without our doing."""


class Writer(NamedTuple):
    """A process that has a file open for writing."""

    name: str
    who: str
    ours: bool
    """It belongs to this rank."""
    appends: bool
    """It can only append, as to a log."""


def look(directory: Path) -> Look:
    """What is in it now. Raises OSError."""
    found: Look = {}
    for name, entry in walk(directory):
        try:
            status = entry.stat()
        except OSError as error:
            # Renamed in this moment, or a link that leads nowhere.
            if isinstance(error, FileNotFoundError) or entry.is_symlink():
                continue
            raise
        found[f"{name}/" if entry.is_dir() else name] = status.st_size, status.st_mtime_ns
    return found


def digest(seen: Look) -> int:
    """A number that is another one once a file is."""
    return zlib.crc32(repr(sorted(_files(seen).items())).encode(errors="surrogateescape"))


def difference(before: Look, after: Look) -> set[str]:
    """The files of which two looks differ."""
    return {name for name, _ in _files(before).items() ^ _files(after).items()}


def temporary(seen: Look) -> str:
    """A name of it that goes when a save ends; empty: there is none."""
    return next((name for name in seen if any(map(TEMPORARY.search, name.split("/")))), "")


def without_metadata(fresh: Look, seen: Look) -> str:
    """A fresh file of torch.distributed.checkpoint whose `.metadata`, written last, is not seen."""
    files = (name for name in fresh if name.endswith(".distcp"))
    return next((n for n in files if f"{n[: n.rfind('/') + 1]}.metadata" not in seen), "")


def first_in(directory: Path) -> str:
    """A name in a directory that is to stay empty; empty: it is, or has gone."""
    try:
        return min(os.listdir(directory), default="")  # noqa: PTH208 - in every step of a training
    except OSError:
        return ""


def late(name: str, step: int) -> str:
    """What to say of a name that `first_in` has found, of the directory that was reported."""
    return (
        f"the checkpoint of step {step} was reported before its save had ended: {name} came "
        f"afterwards. No run resumes from it. {REMEDY}"
    )


def await_quiet(seen: Look) -> None:
    """Wait until its newest change is `QUIET` seconds old."""
    newest = max((changed for _, changed in seen.values()), default=0) / 1e9
    time.sleep(min(max(newest + QUIET - time.time(), 0.0), QUIET))


def writers(directory: Path, seen: Look, *, everybody: bool) -> list[Writer]:
    """Which processes have a file of it open for writing; those that print into it do not count.

    Looked at are those of our session, or of `everybody` on this machine, as far as we may.
    """
    top, own = directory.resolve(), os.getpid()
    paths = {f"{top}/{name}": name for name in seen}
    outputs = {path for descriptor, path in opened(own) if descriptor in OUTPUTS}
    found = []
    for pid in _processes(everybody=everybody):
        for descriptor, path in opened(pid):
            if path not in paths or path in outputs or (pid != own and (descriptor, path) in _kept):
                continue
            flags = _flags(pid, descriptor)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                who = "this process" if pid == own else f"process {pid}{_command(pid)}"
                ours, appends = _session(pid) == os.getsid(0), bool(flags & os.O_APPEND)
                found.append(Writer(paths[path], who, ours=ours, appends=appends))
    return found


_kept: set[tuple[int, str]] = set()
"""Descriptors that were open for writing when this process forked, and their paths. The child, such
as a worker of a DataLoader, keeps them long after we have closed them, and writes nothing."""


def note_kept() -> None:
    """To be called before this process forks."""
    own = os.getpid()
    for descriptor, path in opened(own):
        if path.startswith("/") and _flags(own, descriptor) & os.O_ACCMODE != os.O_RDONLY:
            _kept.add((descriptor, path))


def _files(seen: Look) -> Look:
    return {name: about for name, about in seen.items() if not name.endswith("/")}


def walk(folder: str | Path, above: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that is in a folder, with its name within it. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield above + entry.name, entry
            if entry.is_dir(follow_symlinks=False):
                yield from walk(entry.path, f"{above}{entry.name}/")


def _processes(*, everybody: bool) -> Iterator[int]:
    """Pids, ours first: a thread of our own is the likeliest."""
    own, session = os.getpid(), os.getsid(0)
    yield own
    try:
        others = [int(item.name) for item in os.scandir("/proc") if item.name.isdigit()]
    except OSError:  # a system that has none
        return
    yield from (pid for pid in others if pid != own and (everybody or _session(pid) == session))


def opened(pid: int) -> Iterator[tuple[int, str]]:
    """Descriptors and what they lead to; nothing where the process ends or is not ours to ask."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - a path for each takes twice as long
    except OSError:
        return
    for name in names:
        try:
            yield int(name), os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - likewise
        except OSError:  # closed in this moment
            continue


def _flags(pid: int, descriptor: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.O_RDONLY
    return next((int(line.split()[1], 8) for line in lines if line.startswith("flags:")), 0)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _command(pid: int) -> str:
    try:
        return f" ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
    except OSError:
        return ""
