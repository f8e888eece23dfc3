"""Checkpoint directories on this worker's disk: checked, then renamed or copied for the agent.

Invariants: what has been reported is never shared with the script (never hard-linked, no link left
in it that leads out of it), so that later writes cannot reach a checkpoint; a step's directory
appears at once and complete, by a rename. It leaves an empty one where it was: what a save that has
not ended writes there shows that the checkpoint is not complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trainrun
from trainrun._common import writer_processes
from trainrun._common.tree import (
    NO_ROOM,
    OURS,
    inner_target,
    mode_of,
    remove_directory,
    set_mode,
    stamp,
    walk,
)
from trainrun._common.writer_processes import Unfinished
from trainrun._process.context import get_context
from trainrun.contract.layout import unstorable
from trainrun.errors import CheckpointUnfinished, StagingFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainrun._common.tree import TreeEntry

T = TypeVar("T")

_FICLONE = 0x40049409
"""ioctl of <linux/fs.h>: the copy shares its blocks until one side writes (btrfs, XFS)."""

LITTLE = 1 << 20
"""Bytes: a disk with less room than that counts as full."""

REMEDY = (
    "the worker's disk must hold the files of its ranks for maxPending + 1 checkpoints, beside the "
    "two checkpoints that were read last and everything else: make room, lower "
    "checkpoint.maxPending or raise the worker's ephemeral storage"
)

PATIENCE = 30.0
"""Seconds for which `report` waits for what another rank may be writing into the same directory."""
AGAIN = 0.1
"""Seconds between two looks at that."""

LEFT = 2
"""Directories of the last checkpoints that stay to show late writers."""


class Staged(NamedTuple):
    """What was taken from a directory."""

    name: str
    """Of the directory below the staging folder that has the files."""
    left: str
    """Of the one where they were; empty: they are a copy."""
    digest: int
    """`writing.digest` of what was looked at."""


class Staging:
    """The staging folder of this rank, and which of its directories the script has."""

    def __init__(self, root: Path) -> None:
        """`root` exists and belongs to this rank alone."""
        self._root = root.resolve()
        self._made: dict[Path, int | None] = {}  # to the step it was reported for
        self._left: dict[Path, int] = {}  # the same of the last ones
        # What is older was left by a process that was killed.
        self._since = time.time() - (time.monotonic() - trainrun.IMPORTED)
        self._count = 0

    def new_directory(self) -> Path:
        """Make an empty directory for the files of one checkpoint. Raises StagingFailed."""
        self._count += 1
        path = self._root / f"new-{os.getpid()}-{self._count:06d}"
        try:
            path.mkdir()
        except OSError as error:
            raise _failed(f"make the staging directory {path}", error) from error
        self._made[path] = None
        return path

    def check(self, directory: Path, step: int) -> bool:
        """Check a directory that is to be reported; return whether it has files.

        Raises FileNotFoundError, NotADirectoryError, ValueError (reported before, or something in
        it cannot be stored), each naming the path and the remedy.
        """
        before = self._made.get(_absolute(directory))
        if before is not None:
            raise ValueError(
                f"report(step={step}): {directory} was reported for step {before} already and has "
                "moved away; call trainrun.staging_directory() for each checkpoint"
            )
        files = [_check_file(path, directory, step) for path in _files(directory, step)]
        return bool(files)

    def take(self, directory: Path, step: int) -> Staged:
        """Stage a checked directory for `step`.

        A directory of ours is renamed, any other copied. Raises StagingFailed, and its
        CheckpointUnfinished while it is still being written.
        """
        source, name = _absolute(directory), f"step-{step:012d}"
        take = self._rename if source in self._made else self._copy
        try:
            staged = _wait_for_writers(lambda: take(source, name), directory, step)
        except OSError as error:
            raise _failed(f"stage {directory} for step {step}", error) from error
        finally:
            remove_directory(self._root / f".part-{name}")
        if staged.left:
            self._leave(source, step)
        return staged

    def forget(self, directory: Path, step: int) -> str:
        """Empty a directory of ours that nobody will read; return its name. Leave any other alone.

        Raises CheckpointUnfinished.
        """
        path = _absolute(directory)
        _wait_for_writers(lambda: self._unfinished(path, *self._look(path)), directory, step)
        if path not in self._made:
            return ""
        remove_directory(path)
        self._leave(path, step)
        return path.name

    def check_left(self) -> None:
        """Raises CheckpointUnfinished, once, where a save went on after its report."""
        for path, step in [*self._left.items()]:
            if name := writer_processes.first_in(path):
                self._left.pop(path, None)
                raise CheckpointUnfinished(writer_processes.late(name, step))

    def _rename(self, source: Path, name: str) -> Staged | Unfinished:
        seen, writers = self._look(source)
        if found := self._unfinished(source, seen, writers):
            return found
        if _own_content(source):
            seen = writer_processes.look(source)
        source.rename(self._root / name)
        return Staged(name, source.name, writer_processes.digest(seen))

    def _copy(self, source: Path, name: str) -> Staged | Unfinished:
        seen, writers = self._look(source)
        if found := self._unfinished(source, seen, writers):
            return found
        writer_processes.await_quiet(seen)
        part = self._root / f".part-{name}"
        remove_directory(part)
        try:
            part.mkdir()
            copy_entries(source, part, walk(source))
        except FileNotFoundError as error:
            return Unfinished(f"{error.filename} went away while it was copied", ours=False)
        changed = writer_processes.difference(seen, writer_processes.look(source)) - {
            writer.name for writer in writers
        }
        if changed:
            return Unfinished(f"{min(changed)} changed while it was copied", ours=False)
        digest = writer_processes.digest(writer_processes.look(part))
        part.rename(self._root / name)
        return Staged(name, "", digest)

    def _look(self, source: Path) -> tuple[writer_processes.Look, list[writer_processes.Writer]]:
        seen = writer_processes.look(source)
        everybody = _shared() and source not in self._made
        return seen, writer_processes.writers(source, seen, all_sessions=everybody)

    def _unfinished(
        self, source: Path, seen: writer_processes.Look, writers: list[writer_processes.Writer]
    ) -> Unfinished | None:
        own = source in self._made
        for writer in writers:
            # A copy of what is only ever appended to, as logs are, is whole.
            if own or not writer.appends:
                why = f"{writer.who} has {writer.name} open for writing"
                return Unfinished(why, ours=own or writer.ours)
        fresh = {name: at for name, at in seen.items() if own or at[1] / 1e9 >= self._since}
        if name := writer_processes.temporary(fresh):
            return Unfinished(f"{name} has a temporary name", ours=own or not _shared())
        if get_context().rank == 0 and (name := writer_processes.without_metadata(fresh, seen)):
            return Unfinished(f"{name} is there, and its .metadata is not yet", ours=True)
        return None

    def _leave(self, source: Path, step: int) -> None:
        self._made[source] = self._left[source] = step
        with contextlib.suppress(OSError):  # no room: then late writers show by their own errors
            source.mkdir()
        for path in [*self._left][:-LEFT]:
            with contextlib.suppress(OSError):
                path.rmdir()
            self._left.pop(path, None)


def _shared() -> bool:
    """Whether other ranks may write into a directory of the script's own."""
    return get_context().world_size > 1


def _wait_for_writers(take: Callable[[], T | Unfinished], directory: Path, step: int) -> T:
    """Wait for other ranks. Raises CheckpointUnfinished."""
    until = time.monotonic() + PATIENCE
    while isinstance(found := take(), Unfinished):
        if found.ours or time.monotonic() > until:
            remedy = writer_processes.REMEDY if found.ours else writer_processes.SHARED_REMEDY
            raise CheckpointUnfinished(
                f"report(step={step}): {directory} is still being written ({found.why}), so it is "
                f"not committed. {remedy}"
            )
        time.sleep(AGAIN)
    return found


def copy_entries(source: Path, target: Path, entries: Sequence[TreeEntry]) -> None:
    """Copy entries of a directory into an empty one, with their modes and times.

    Raises OSError.
    """
    for entry in entries:
        there = target / entry.name
        if entry.folder:
            there.mkdir()
        elif entry.target:
            there.symlink_to(entry.target)
        else:
            copy_file(source / entry.name, there)
    stamp(target, entries)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, its blocks shared where the file system can. Raises OSError."""
    with open(source, "rb") as reader, open(target, "xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:  # another file system, or one that cannot share
            shutil.copyfileobj(reader, writer, 1 << 20)
    facts = source.stat()
    set_mode(target, mode_of(facts))
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def copy_over(source: Path, target: Path) -> None:
    """Copy a file to where one may be already; it appears whole. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".trainrun-") as folder:
        copy_file(source, Path(folder, target.name))
        Path(folder, target.name).replace(target)


def _absolute(path: Path) -> Path:
    # The last part is not resolved: a link to a directory of ours is another directory.
    return path.parent.resolve() / path.name


def _own_content(directory: Path) -> bool:
    """Replace links that lead out of a directory by copies, since that could change after the
    report, and make the others relative, since the directory moves. Says whether there were any.
    """
    any_link = False
    for folder, folders, names in os.walk(directory):
        times = Path(folder).stat()
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            target = inner_target(path, directory) if stat.S_ISLNK(status.st_mode) else None
            other_link = target is not None and os.fspath(path.readlink()) != target
            if other_link or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
                # Short, as `name` may have all the bytes that a name can have.
                copy, any_link = path.with_name(f".copy-{os.urandom(8).hex()}"), True
                try:
                    if target:
                        copy.symlink_to(target)
                    else:
                        copy_file(path, copy)
                    copy.replace(path)
                finally:
                    copy.unlink(missing_ok=True)  # the script may report the directory again
                os.utime(folder, ns=(times.st_atime_ns, times.st_mtime_ns))
    return any_link


def _files(top: Path, step: int) -> list[Path]:
    try:
        found = sorted(
            name
            for name, entry in writer_processes.walk(top)
            if name.partition("/")[0] != OURS and not entry.is_dir(follow_symlinks=False)
        )
    except FileNotFoundError:
        raise FileNotFoundError(
            f"report(step={step}): the checkpoint directory {top} does not exist; save the files "
            "first and report inside `with TemporaryDirectory()`, not after it, and behind the end "
            "of a save in the background"
        ) from None
    except NotADirectoryError:
        raise NotADirectoryError(
            f"report(step={step}): the checkpoint {top} is a file; a checkpoint is a directory: "
            "save into trainrun.staging_directory() and report that"
        ) from None
    return [top / name for name in found]


def _check_file(path: Path, top: Path, step: int) -> Path:
    if reason := unstorable(os.fspath(path.relative_to(top))):
        raise ValueError(f"report(step={step}): {os.fsencode(path)!r}: {reason}")
    if path.is_symlink() and inner_target(path, top):
        return path  # also where nothing is there: a save that was deleted, for instance
    try:
        mode = path.stat().st_mode
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        if path.is_symlink():
            why = f"leads out of the checkpoint to {path.readlink()}, which {why}; remove the link"
        raise ValueError(f"report(step={step}): {path} {why}") from error
    if path.is_symlink() and stat.S_ISDIR(mode):
        raise ValueError(
            f"report(step={step}): {path} is a link to a directory outside of the checkpoint; copy "
            "its files into the checkpoint directory, or remove the link"
        )
    if not stat.S_ISREG(mode):
        raise ValueError(f"report(step={step}): {path} is not a regular file; leave it out")
    return path


def _failed(what: str, error: OSError) -> StagingFailed:
    remedy = f"; {REMEDY}" if error.errno in NO_ROOM else ""
    return StagingFailed(f"cannot {what}: {error}{remedy}")


def remedy_of(error: BaseException, root: Path) -> str:
    """What to do where a script fails for want of room below `root`; empty: that is not why.

    PyTorch says no more than that a write failed, so the disk itself is asked.
    """
    if isinstance(error, StagingFailed):
        return ""  # says it already
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, OSError) and reason.errno in NO_ROOM:
            return REMEDY
        reason = reason.__cause__ or reason.__context__
    disk = os.statvfs(root)
    return REMEDY if disk.f_bavail * disk.f_frsize < LITTLE else ""


os.register_at_fork(before=writer_processes.note_inherited)
