"""The mark of a fault on demand: who makes it strikes, agent or `trainrun run`, and so it is once.

Layer: contract, leaf. A file in the folder of the run; without it the fault is still to strike.
"""

from __future__ import annotations

import os
from pathlib import Path


def make(path: Path | str) -> bool:
    """Whether the mark was not there before; False, too, where it cannot be made."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def take_back(path: Path | str) -> None:
    """The fault hit nobody: it is still to strike."""
    Path(path).unlink(missing_ok=True)
