"""What the engine answers: what is to be done, and what is known of a key.

Layer: tasks, pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainrun.errors import TrainRunError
from trainrun.tasks.ends import Output, TaskRun
from trainrun.tasks.records import Record


@dataclass(frozen=True, slots=True)
class Ready:
    """The results are there."""

    outputs: tuple[Output, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Broken:
    """There will be no result."""

    error: TrainRunError
    pickled: str = ""
    """The function's own exception, base64; empty where there is none."""


Outcome = Ready | Broken


@dataclass(slots=True)
class Plan:
    """What is to be done now, each thing once. A dict is a set in the order of its making."""

    records: list[Record] = field(default_factory=list)
    """To be appended; their effects come after `logged`."""
    starts: dict[tuple[int, TaskRun], None] = field(default_factory=dict)
    stops: list[tuple[int, TaskRun]] = field(default_factory=list)
    heard: list[tuple[int, TaskRun]] = field(default_factory=list)
    """Ends that are in the log, or that nobody needs."""
    looks: list[tuple[str, int]] = field(default_factory=list)
    """Objects to be looked for: `present` or `lost` is the answer."""
    settled: dict[str, None] = field(default_factory=dict)
    """Keys whose outcome has become known, or has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far the program is, for people."""

    total: int = 0
    """Tasks it has called."""
    done: int = 0
    """Those that were ever committed: never falls within a program."""
    running: int = 0
    waiting: int = 0
    failed: int = 0
    """Those without a result for good: also cancelled ones, and those that need one of these."""
    retried: int = 0
    """Retries in the whole log."""
    rebuilt: int = 0
    """Rebuilds in the whole log."""
