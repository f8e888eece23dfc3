"""Checkpoint directories on this worker's disk: checked, then renamed or copied for the agent.

Invariants: a reported directory is never shared with the script (no hard links, no links to the
outside), so later writes cannot reach a checkpoint; a step's directory appears complete, by one
rename. An empty directory stays in its old place: files that an unfinished save writes there show
that the checkpoint is incomplete.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trainrun
from trainrun._common import writer_processes
from trainrun._common.tree import (
    NO_ROOM,
    OURS,
    copy_file,
    inner_target,
    remove_directory,
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

LITTLE = 1 << 20
"""Bytes: a disk with less room counts as full."""

REMEDY = (
    "the worker's disk must hold the files of its ranks for maxPending + 1 checkpoints (+ 4 with "
    "uploadEvery), plus two cached checkpoints and everything else: make room, lower "
    "checkpoint.maxPending or raise the worker's ephemeral storage"
)

PATIENCE = 30.0
"""Seconds for which `report` waits for other ranks that may be writing into the same directory."""
AGAIN = 0.1
"""Seconds between two checks for that."""

LEFT = 2
"""Number of last checkpoints whose old directories stay to reveal late writers."""


class Staged(NamedTuple):
    """The staged files of a directory."""

    name: str
    """Name of their directory below the staging folder."""
    left: str
    """Name of their old directory; empty: they are a copy."""
    digest: int
    """`writer_processes.digest` of the files."""


class Staging:
    """The staging folder of this rank, and the directories in it that were given to the script."""

    def __init__(self, root: Path) -> None:
        """`root` exists and belongs to this rank alone."""
        self._root = root.resolve()
        self._made: dict[Path, int | None] = {}  # to the step it was reported for
        self._left: dict[Path, int] = {}  # the same, for the last ones
        # Older files come from a process that was killed.
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
        """Check a directory before it is reported; return whether it has files.

        Raises FileNotFoundError, NotADirectoryError, ValueError (already reported, or a file in it
        cannot be stored), each naming the path and the remedy.
        """
        self.check_new(directory, step)
        files = [_check_file(path, directory, step) for path in _files(directory, step)]
        return bool(files)

    def check_new(self, directory: Path, step: int) -> None:
        """Raises ValueError if the directory was already reported."""
        before = self._made.get(_absolute(directory))
        if before is not None:
            raise ValueError(
                f"report(step={step}): {directory} was already reported for step {before} and has "
                "been moved; call trainrun.staging_directory() for each checkpoint"
            )

    def take(self, directory: Path, step: int) -> Staged:
        """Stage a checked directory for `step`.

        Renames a directory from `new_directory`; copies any other. Raises StagingFailed, and its
        subclass CheckpointUnfinished while the directory is still being written.
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
        """Empty a directory from `new_directory` that is not needed and return its name. Leaves any
        other alone and returns "".

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
        """Raises CheckpointUnfinished, once, if a save continued after its report."""
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
            return Unfinished(f"{error.filename} disappeared during the copy", ours=False)
        changed = writer_processes.difference(seen, writer_processes.look(source)) - {
            writer.name for writer in writers
        }
        if changed:
            return Unfinished(f"{min(changed)} changed during the copy", ours=False)
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
            # Copies of append-only files, such as logs, are consistent.
            if own or not writer.appends:
                why = f"{writer.who} has {writer.name} open for writing"
                return Unfinished(why, ours=own or writer.ours)
        fresh = {name: at for name, at in seen.items() if own or at[1] / 1e9 >= self._since}
        if name := writer_processes.temporary(fresh):
            return Unfinished(f"{name} has a temporary name", ours=own or not _shared())
        if get_context().rank == 0 and (name := writer_processes.without_metadata(fresh, seen)):
            return Unfinished(f"{name} exists, but its .metadata does not yet", ours=True)
        return None

    def _leave(self, source: Path, step: int) -> None:
        self._made[source] = self._left[source] = step
        with contextlib.suppress(OSError):  # no room: late writers then fail by themselves
            source.mkdir()
        for path in [*self._left][:-LEFT]:
            with contextlib.suppress(OSError):
                path.rmdir()
            self._left.pop(path, None)


def _shared() -> bool:
    """Whether other ranks may write into a directory that the script created."""
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


def _absolute(path: Path) -> Path:
    # The last part is not resolved: a link to a staging directory is another directory.
    return path.parent.resolve() / path.name


def _own_content(directory: Path) -> bool:
    """Replace links to the outside by copies, since their targets could change after the report,
    and make other links relative, since the directory moves. Returns whether there were any.
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
                # A short name, since `name` may have the maximum length.
                copy, any_link = path.with_name(f".copy-{os.urandom(8).hex()}"), True
                try:
                    if target:
                        copy.symlink_to(target)
                    else:
                        copy_file(path, copy)
                    copy.replace(path)
                finally:
                    copy.unlink(missing_ok=True)  # if it failed, the script may report again
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
            "first, wait for the end of a background save, and report inside `with "
            "TemporaryDirectory()`, not after it"
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
        return path  # even if its target is missing, such as a deleted save
    try:
        mode = path.stat().st_mode
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        if path.is_symlink():
            why = f"links outside of the checkpoint to {path.readlink()}, which {why}; remove it"
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
    """The remedy if a script failed because the disk of `root` is full; empty: it is not.

    PyTorch reports only that a write failed, so this checks the disk itself.
    """
    if isinstance(error, StagingFailed):
        return ""  # the message has it already
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, OSError) and reason.errno in NO_ROOM:
            return REMEDY
        reason = reason.__cause__ or reason.__context__
    disk = os.statvfs(root)
    return REMEDY if disk.f_bavail * disk.f_frsize < LITTLE else ""


os.register_at_fork(before=writer_processes.note_inherited)
