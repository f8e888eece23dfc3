"""Where the cluster tool keeps its things: a cache that may be deleted, and state per cluster.

Both lie outside the checkout. The cache holds what is expensive and the same for every cluster
(binaries, images, prepared image stores); the state of a cluster goes when the cluster goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent
_held: list[int] = []


def cache() -> Path:
    """`$XDG_CACHE_HOME/trainrun`, by default `~/.cache/trainrun`; made when it is missing."""
    folder = _base("XDG_CACHE_HOME", ".cache")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def clusters() -> Path:
    """The folder that holds one folder per cluster."""
    folder = _base("XDG_STATE_HOME", ".local/state") / "clusters"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _base(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "trainrun"


@contextlib.contextmanager
def locked(path: Path, *, waiting_for: str, timeout: float = 1800.0) -> Iterator[None]:
    """Hold the lock file for the block; give up after `timeout` seconds of waiting for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        deadline = time.monotonic() + timeout
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} was held for {timeout:.0f} s") from None
                if not told:
                    progress(f"waiting for another process: {waiting_for}")
                told = True
                time.sleep(0.2)
        _held.append(lock.fileno())
        try:
            yield
        finally:
            _held.remove(lock.fileno())


def held_locks() -> tuple[int, ...]:
    """The descriptors of the locks of this program, for the commands that it runs to its end.

    When it is killed, what it has begun holds the lock until that is over, too: nobody removes
    what a forgotten `cp` is still writing.
    """
    return tuple(_held)


def progress(message: str) -> None:
    """One line for people; on stderr, since some commands print their result."""
    print(f"[cluster] {message}", file=sys.stderr, flush=True)
