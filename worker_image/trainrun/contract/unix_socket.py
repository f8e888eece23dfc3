"""The name by which a unix socket is bound and reached, however deep its folder lies.

Layer: contract, leaf. The kernel takes 107 bytes; a folder of any depth has a short name through
its descriptor. So sockets lie in the worker's own folder, and end with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 107


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name that fits, for the time of the block. Raises OSError where there is no such folder."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
