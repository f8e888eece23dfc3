"""What runs and sweeps share in `trainrun run`: options, input checks, the driver lock.

Layer: cli.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from trainrun.errors import InvalidSpec
from trainrun_operator.runtime.line_writers import left_out, non_blocking
from trainrun_operator.worlds.local.driver_lock import acquire
from trainrun_operator.worlds.local.place import RunPlace, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of the command line."""

    file: Path
    replicas: int | None = None
    storage: str | None = None
    faults: tuple[str, ...] = ()
    as_json: bool = False
    plain: bool = False
    color: bool = True
    verbose: bool = False
    page: bool = False
    """Serve a page about the run."""

    @property
    def drawn(self) -> bool:
        """Whether to redraw in place."""
        return _terminal() and not self.plain

    @property
    def colored(self) -> bool:
        """Whether to use colors."""
        return self.color and _terminal() and "NO_COLOR" not in os.environ

    @property
    def command(self) -> str:
        """The command that continues the run."""
        words = ["trainrun", "run", str(self.file)]
        if self.replicas is not None:
            words += ["--replicas", str(self.replicas)]
        if self.storage is not None:
            words += ["--storage", self.storage]
        return shlex.join(words)


def _terminal() -> bool:
    # A dumb terminal (an editor's, a CI's) can neither redraw nor show colors.
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Prepared(Protocol):
    """A run or sweep that can be started."""

    @property
    def name(self) -> str:
        """The name of its folder in the storage."""

    @property
    def place(self) -> RunPlace:
        """Its folder on this machine, which holds the driver lock."""


P = TypeVar("P", bound=Prepared)


def lead_alone(
    prepare: Callable[[RunOptions], P], lead: Callable[[P, RunOptions], int], options: RunOptions
) -> int:
    """Take the driver lock and lead; returns the exit code. `prepare` reads and checks everything.
    Raises TrainRunError, also if another process holds the lock."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    with non_blocking(_missing if options.as_json else left_out):
        folder = None
        try:
            prepared = prepare(options)
            folder = prepared.place.lock.parent
            lock = acquire(prepared.place.lock, run=prepared.name, nodes=prepared.place.nodes)
        except OSError as error:
            hint = "" if folder is None else f": {remedy(error, folder)}"
            what = error.filename or folder or options.file
            raise InvalidSpec(f"{what}: {error.strerror}{hint}") from error
        try:
            return lead(prepared, options)
        finally:
            lock.release()


def _missing(count: int) -> str:
    return json.dumps({"event": "missing", "lines": count})
