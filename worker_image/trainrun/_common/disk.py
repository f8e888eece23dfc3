"""The local disk: how it says that it is full, and removing what was made read-only.

Layer: leaf.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors: no room, for anybody or for this user."""


def remove_directory(path: Path) -> str:
    """Remove a directory with all that is in it; return why something stays, empty: nothing does.

    Folders in it that are read-only, as copies of read-only ones are, are made writable for it.
    """
    shutil.rmtree(path, ignore_errors=True)
    if not path.is_dir() or path.is_symlink():
        return ""
    _make_writable(path)
    shutil.rmtree(path, ignore_errors=True)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    return ""


def _make_writable(folder: Path) -> None:
    with contextlib.suppress(OSError):  # of somebody else, or gone: what stays is told at the end
        folder.chmod(0o700)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                _make_writable(path)
