"""The checkpoints in a node's download cache: which of them stay, and who may touch one now.

Layer: local files; `cache` says what such a folder holds. Invariant: a checkpoint is deleted under
its own lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trainrun._common.tree import remove_directory
from trainrun.contract.checkpoint_id import CheckpointId

PARTIAL = "partial"
"""Folder of files in transit."""

NEWEST = 2
"""Checkpoints of a run kept on a node: the resume point and the one before."""

Needed = Callable[[], bool]
"""Whether the checkpoint is still needed, so that others may be deleted for it."""


def forget_older(run: Path, used: str) -> None:
    """Delete all but NEWEST checkpoints of a run: the one `used`, however old, and the newest.

    Newer ones may exist if they turned out to be damaged. A checkpoint that another process is
    downloading stays as well.
    """
    found = oldest_first(run)
    others = [path for path in found if path.name != used]
    for path in others[: len(found) - len(others) - NEWEST]:
        forget(path)


def oldest_first(run: Path) -> list[Path]:
    """The folders of a run's checkpoints, oldest first."""
    found = {}
    with contextlib.suppress(OSError):
        found = {CheckpointId.named(path.name): path for path in run.iterdir()}
    return [found[key] for key in sorted(key for key in found if key is not None)]


def forget(path: Path, allowed: Needed = lambda: True) -> bool:
    """Delete a checkpoint unless a process is downloading it; False: it stays.

    `allowed` is called under the lock: a process that needs this checkpoint waits for the lock
    before it looks at the files.
    """
    with contextlib.suppress(OSError), locked(path, wait=False):
        if allowed():
            return not remove_directory(path)
    return False


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the checkpoint's lock; without `wait`, raises BlockingIOError if it is taken."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.with_name(folder.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The kernel releases the lock when its holder dies, however it dies.
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(lock)


def forget_other_boots(folder: Path) -> None:
    """Delete files downloaded before the last boot: they were never synced to disk."""
    boot = boot_id()
    note = folder / "boot"
    if not note.is_file() or note.read_text() != boot:
        remove_directory(folder)
        folder.mkdir()
        # Only once: on a full disk a second write could leave it empty, and the files unusable.
        note.write_text(boot)
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)  # of a download that was killed


def boot_id() -> str:
    """That of this machine's last boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
