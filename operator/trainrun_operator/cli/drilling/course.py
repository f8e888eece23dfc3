"""What was seen of one run of a drill.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun.contract.metrics import Metric
    from trainrun_operator.api.run.story import Chapter

Curve = Mapping[int, "Mapping[str, Metric]"]
"""Metrics by step."""


@dataclass(frozen=True, slots=True)
class Content:
    """Of a file of a checkpoint."""

    told: tuple[int, int]
    """Size and checksum."""
    entries: Mapping[str, bytes] | None = None
    """Digests of what is in it, by path; None: only its bytes can be compared."""


Files = Mapping[str, Content]
"""The files of a checkpoint, by name."""

Ending = Literal["Stopped", "Succeeded", "Failed", "OutOfTime"]
"""Stopped: it had got as far as was asked of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One report of rank 0 that has metrics."""

    attempt: int
    step: int
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """How a notice went on: seconds after it, None for what did not come."""

    agreed: float | None = None
    """The ranks had agreed on the call of should_save() that says yes."""
    reported: float | None = None
    """A rank had reported the checkpoint that was asked for."""
    committed: float | None = None
    """That one was committed; where none was asked for, one of a step not before the notice."""
    calls: int = 0
    """Of should_save() that each worker made at least after the one that said yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One run from fresh storage."""

    ending: Ending
    world_size: int
    seconds: float
    """All of it took."""
    points: tuple[Point, ...] = ()
    """In the order in which they were reported."""
    chapters: tuple[Chapter, ...] = ()
    """Those in which an attempt ran."""
    committed: tuple[int, ...] = ()
    """Steps of the first attempt's checkpoints, ascending."""
    contents: Mapping[tuple[int, int], Files] = field(default_factory=dict)
    """By attempt and step what the good checkpoints hold that were kept."""
    savers: tuple[int, ...] = ()
    """Ranks that brought files for them, ascending."""
    reported: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """By attempt and rank the highest step that was heard of."""
    sought: frozenset[int] = frozenset()
    """Attempts in which a process called get_checkpoint()."""
    asked: frozenset[int] = frozenset()
    """Attempts in which a process called should_save()."""
    commit_gap: float = 0.0
    """Seconds between two commits of the first attempt, at most; 0: not known."""
    ask_gap: float = 0.0
    """Seconds between two calls of should_save() in the first attempt, at most."""
    longest_step: float = 0.0
    """Seconds for which a rank of the first attempt had owed a step, at most, as far as heard."""
    opened: frozenset[int] = frozenset()
    """Attempts in which a process opened a checkpoint."""
    parts: tuple[int, ...] = ()
    """Steps of which some ranks had brought files, while others had not got there."""
    listened: bool = True
    """Its agents were listened to. Else nothing is known of `ask_gap`, `longest_step`, `parts` and
    `noticed`; `sought` and `asked` are those of which nothing says otherwise."""
    struck: bool = False
    """Its faults have struck."""
    noticed: Noticed = Noticed()
    spoilt: int | None = None
    """Step of the checkpoint that was damaged on purpose."""
    failure: str = ""
    """Why it failed."""

    def steps(self, attempt: int) -> list[int]:
        """The steps that rank 0 reported in an attempt, with metrics, in their order."""
        return [point.step for point in self.points if point.attempt == attempt]

    def curve(self, attempt: int) -> Curve:
        """The metrics of an attempt; of a step that was reported twice the later ones."""
        return {point.step: point.metrics for point in self.points if point.attempt == attempt}

    def ranks(self, attempt: int) -> list[int]:
        """The ranks that reported a step in an attempt, ascending."""
        return sorted(self.reported.get(attempt, {}))

    def reached(self, attempt: int) -> int | None:
        """The step that an attempt got to on the lowest rank that reports."""
        told = self.reported.get(attempt, {})
        known = [*self.steps(attempt), *([told[min(told)]] if told else [])]
        return max(known, default=None)

    @property
    def last(self) -> int:
        """The attempt that went on after everything that happened."""
        return self.chapters[-1].attempt if self.chapters else 1

    @property
    def handed(self) -> CheckpointId | None:
        """The checkpoint that it was handed."""
        return self.chapters[-1].resumed_from if len(self.chapters) > 1 else None
