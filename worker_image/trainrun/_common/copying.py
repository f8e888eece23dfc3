"""Copies files with their modes and times.

Layer: leaf, shared by both sides.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from trainrun._common.tree import mode_of, set_mode

_FICLONE = 0x40049409
"""ioctl of <linux/fs.h>: the copy shares its blocks until one side writes (btrfs, XFS)."""


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, sharing its blocks if the file system can. Raises OSError."""
    with open(source, "rb") as reader, open(target, "xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:  # another file system, or one that cannot share blocks
            shutil.copyfileobj(reader, writer, 1 << 20)
    facts = source.stat()
    set_mode(target, mode_of(facts))
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def copy_over(source: Path, target: Path) -> None:
    """Copy a file, replacing any at the target; it appears whole. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".trainrun-") as folder:
        copy_file(source, Path(folder, target.name))
        Path(folder, target.name).replace(target)
