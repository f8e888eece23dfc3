"""Detects whether a directory is still being written, as far as this machine can see.

Invariant: never delays a save that finishes its work before it returns. Cannot detect a writer
through a memory map whose descriptor is closed, a writer on another machine, and one that has not
started yet.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

REMEDY = (
    "Pass the end of its save as report(..., after=...): the future of async_save() or of "
    "ThreadPoolExecutor.submit(), or wait_until_finished of orbax"
)

SHARED_REMEDY = (
    "Where ranks save into one folder, let them wait for each other (torch.distributed.barrier()) "
    "before they report it, or let each rank report a directory of its own files"
)

QUIET = 0.02
"""Seconds without a change after which the script's own directory is copied."""

TEMPORARY = re.compile(
    r"\.orbax-checkpoint-tmp|\.__lock$|\.(tmp|temp|part|partial|incomplete)$|^\.tmp\w{6}$"
    r"|^tmp-checkpoint-"
)
"""Names that disappear at the end of a save: of orbax, tensorstore, PyTorch, safetensors, Hugging
Face."""

OUTPUTS = (1, 2)
"""Descriptors of a process's output."""

Look: TypeAlias = "dict[str, tuple[int, int]]"
"""Files by name within a directory, each with its size and its time of change in nanoseconds. Names
of folders end with a slash."""


class Unfinished(NamedTuple):
    """Why a directory is not finished."""

    why: str
    ours: bool
    """This rank writes it. If another one may, that ends without this rank's help."""


class Writer(NamedTuple):
    """A process that has a file open for writing."""

    name: str
    who: str
    ours: bool
    """It belongs to this rank."""
    appends: bool
    """It can only append, such as to a log."""


def look(directory: Path) -> Look:
    """The current content of a directory. Raises OSError."""
    found: Look = {}
    for name, entry in walk(directory):
        try:
            status = entry.stat()
        except OSError as error:
            # Renamed at this moment, or a dangling link.
            if isinstance(error, FileNotFoundError) or entry.is_symlink():
                continue
            raise
        found[f"{name}/" if entry.is_dir() else name] = status.st_size, status.st_mtime_ns
    return found


def digest(seen: Look) -> int:
    """A number that changes whenever a file changes."""
    return zlib.crc32(repr(sorted(_files(seen).items())).encode(errors="surrogateescape"))


def difference(before: Look, after: Look) -> set[str]:
    """The files that differ between two looks."""
    return {name for name, _ in _files(before).items() ^ _files(after).items()}


def temporary(seen: Look) -> str:
    """A name in it that disappears at the end of a save; empty: none."""
    return next(filter(is_temporary, seen), "")


def is_temporary(name: str) -> bool:
    """Whether the name disappears at the end of a save."""
    return any(map(TEMPORARY.search, name.split("/")))


def without_metadata(fresh: Iterable[str], seen: Container[str]) -> str:
    """A fresh file of torch.distributed.checkpoint without its `.metadata`, which is written last;
    empty: none."""
    files = (name for name in fresh if name.endswith(".distcp"))
    return next((n for n in files if f"{n[: n.rfind('/') + 1]}.metadata" not in seen), "")


def first_in(directory: Path) -> str:
    """A name in a directory that must stay empty; empty: it is empty, or deleted."""
    try:
        return min(os.listdir(directory), default="")  # noqa: PTH208 - in every step of a training
    except OSError:
        return ""


def late(name: str, step: int) -> str:
    """The message for a name that `first_in` found in a reported directory."""
    return (
        f"the checkpoint of step {step} was reported before its save had ended, since {name} "
        f"appeared later, so no run resumes from it. {REMEDY}"
    )


def await_quiet(seen: Look) -> None:
    """Wait until its newest change is `QUIET` seconds old."""
    newest = max((changed for _, changed in seen.values()), default=0) / 1e9
    time.sleep(min(max(newest + QUIET - time.time(), 0.0), QUIET))


def writers(directory: Path, names: Iterable[str], *, all_sessions: bool) -> list[Writer]:
    """Processes that have one of these files of the directory open for writing, except as their
    output.

    Checks our session, or `all_sessions` on this machine, as far as permitted.
    """
    top, own = directory.resolve(), os.getpid()
    paths = {f"{top}/{name}": name for name in names}
    outputs = {path for descriptor, path in opened(own) if descriptor in OUTPUTS}
    found = []
    for pid in _processes(all_sessions=all_sessions):
        for descriptor, path in opened(pid):
            if (
                path not in paths
                or path in outputs
                or (pid != own and (descriptor, path) in _inherited)
            ):
                continue
            flags = _flags(pid, descriptor)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                who = "this process" if pid == own else f"process {pid}{_command(pid)}"
                ours, appends = _session(pid) == os.getsid(0), bool(flags & os.O_APPEND)
                found.append(Writer(paths[path], who, ours=ours, appends=appends))
    return found


_inherited: set[tuple[int, str]] = set()
"""Descriptors that were open for writing when this process forked, and their paths. A child, such
as a DataLoader worker, keeps them open long after we have closed them, but does not write."""


def note_inherited() -> None:
    """Record the open descriptors; call it before this process forks."""
    own = os.getpid()
    for descriptor, path in opened(own):
        if path.startswith("/") and _flags(own, descriptor) & os.O_ACCMODE != os.O_RDONLY:
            _inherited.add((descriptor, path))


def _files(seen: Look) -> Look:
    return {name: about for name, about in seen.items() if not name.endswith("/")}


def walk(folder: str | Path, above: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All entries below a folder, with their names relative to it. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield above + entry.name, entry
            if entry.is_dir(follow_symlinks=False):
                yield from walk(entry.path, f"{above}{entry.name}/")


def _processes(*, all_sessions: bool) -> Iterator[int]:
    """Pids, ours first: one of our threads is the most likely writer."""
    own, session = os.getpid(), os.getsid(0)
    yield own
    try:
        others = [int(item.name) for item in os.scandir("/proc") if item.name.isdigit()]
    except OSError:  # a system without /proc
        return
    yield from (pid for pid in others if pid != own and (all_sessions or _session(pid) == session))


def opened(pid: int) -> Iterator[tuple[int, str]]:
    """Descriptors of a process and their paths; nothing if it ends or is not readable."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - a path for each takes twice as long
    except OSError:
        return
    for name in names:
        try:
            yield int(name), os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - likewise
        except OSError:  # closed at this moment
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
