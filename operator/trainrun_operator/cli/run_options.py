"""The command line of `trainrun run`, and what follows from it alone.

Layer: cli.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """As it was given."""

    file: Path
    replicas: int | None = None
    storage: str | None = None
    faults: tuple[str, ...] = ()
    as_json: bool = False
    plain: bool = False
    color: bool = True
    verbose: bool = False

    @property
    def drawn(self) -> bool:
        """It is shown in place."""
        return _terminal() and not self.plain

    @property
    def colored(self) -> bool:
        """It has colors."""
        return self.color and _terminal() and "NO_COLOR" not in os.environ

    @property
    def command(self) -> str:
        """What goes on with it."""
        words = ["trainrun", "run", str(self.file)]
        if self.replicas is not None:
            words += ["--replicas", str(self.replicas)]
        if self.storage is not None:
            words += ["--storage", self.storage]
        return shlex.join(words)


def _terminal() -> bool:
    # A dumb terminal (an editor's, a CI's) can neither be drawn on nor shows colors.
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
