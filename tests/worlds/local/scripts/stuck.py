"""Reports steps, and in attempt 1 rank 1 stands still in step 3, in the way that STUCK says.

No rank hears SIGTERM. Without a collective that anybody could know of, the other rank waits in
`barrier`.
"""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import trainrun

context = trainrun.get_context()
here = Path(os.environ["JOURNAL"]) / f"attempt-{context.attempt}"
here.mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)

CLONE_NEWNS = 0x20000
"""From sched.h; os.unshare is new in Python 3.12."""
MS_REC, MS_PRIVATE = 0x4000, 0x40000
"""From sys/mount.h."""


def stopped() -> None:
    """Somebody has stopped it, as a debugger or a batch system may."""
    os.kill(os.getpid(), signal.SIGSTOP)


def sleeping() -> None:
    """A sleep inside a step."""
    time.sleep(3600)


def computing() -> None:
    """For ever, in C, with the GIL held."""
    sum(itertools.repeat(0))


def no_storage() -> None:
    """A file system of which the server does not answer: FUSE, for which one has to be root."""
    folder = here / "mounted"
    folder.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    # Mounted for this process alone: nobody else meets it, and it ends with the process.
    failed = libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    if failed or libc.mount(b"stuck", bytes(folder), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    (folder / "shard-7").read_bytes()


def no_writer() -> None:
    """A pipe that nobody writes to, as a loader of data that has gone leaves it."""
    os.mkfifo(here / "shard-7")
    (here / "shard-7").read_bytes()


def output_full() -> None:
    """Nobody reads what it writes."""
    _reader, writer = os.pipe()
    os.dup2(writer, 1)
    while True:
        os.write(1, b"loss 0.1\n" * 1000)


class DataLoader:
    """Batches from a process of its own, which dies."""

    def __init__(self) -> None:
        self._batches: multiprocessing.Queue[int] = multiprocessing.Queue()
        self._loader = multiprocessing.Process(target=os._exit, args=(1,))
        self._loader.start()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self._batches.get()


def loader_died() -> None:
    """The process that loads its data has died, and it waits for the next batch."""
    next(iter(DataLoader()))


def barrier(step: int) -> None:
    """Return once every rank is here."""
    (here / f"{step}-{context.rank}").touch()
    while len(list(here.glob(f"{step}-*"))) < context.world_size:
        time.sleep(0.01)


for step in range(1, 5):
    if (context.attempt, context.rank, step) == (1, 1, 3):
        globals()[os.environ["STUCK"]]()
    trainrun.report({"loss": 1 / step}, step=step)
    barrier(step)
