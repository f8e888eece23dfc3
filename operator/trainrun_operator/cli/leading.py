"""What is common to whatever `trainrun run` leads: input is checked first, nobody else leads it.

Layer: cli.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.run_options import RunOptions
from trainrun_operator.runtime.written_lines import left_out, unhurried
from trainrun_operator.worlds.local.driver_lock import acquire
from trainrun_operator.worlds.local.place import RunPlace


class Prepared(Protocol):
    """What can be led."""

    @property
    def name(self) -> str:
        """Its folder in its storage."""

    @property
    def place(self) -> RunPlace:
        """Where its lock is."""


P = TypeVar("P", bound=Prepared)
P_co = TypeVar("P_co", bound=Prepared, covariant=True)


class Prepare(Protocol[P_co]):
    """Reads and checks everything. Raises InvalidSpec."""

    def __call__(
        self, file: Path, *, replicas: int | None, storage: str | None, faults: tuple[str, ...]
    ) -> P_co:
        """With the command line's changes."""


def lead_alone(
    prepare: Prepare[P], lead: Callable[[P, RunOptions], int], options: RunOptions
) -> int:
    """Lead what these options name, unless another process does; returns the exit code."""
    with unhurried(_missing if options.as_json else left_out):
        return _lead_alone(prepare, lead, options)


def _missing(count: int) -> str:
    return json.dumps({"event": "missing", "lines": count})


def _lead_alone(
    prepare: Prepare[P], lead: Callable[[P, RunOptions], int], options: RunOptions
) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        prepared = prepare(
            options.file,
            replicas=options.replicas,
            storage=options.storage,
            faults=options.faults,
        )
        lock = acquire(prepared.place.lock, run=prepared.name, nodes=prepared.place.nodes)
    except TrainRunError as error:
        return refused(error)
    except OSError as error:
        what = error.filename or options.file
        unwritable = f"{what}: {error.strerror}: the storage's folder must be writable"
        return refused(InvalidSpec(unwritable))
    try:
        return lead(prepared, options)
    except TrainRunError as error:
        return refused(error)
    finally:
        lock.release()
