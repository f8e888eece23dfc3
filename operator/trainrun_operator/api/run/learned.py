"""The part of a TrainRun's status that says what is usual for its steps.

Layer: api.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun_operator.api.run.status_part import StatusPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned(StatusPart):
    """What the attempts that have ended have taught about the steps of the run."""

    slowest: float = 0.0
    """Seconds that a step took at most; the first one of an attempt, and what came before it, not
    counted."""
    trained: float = 0.0
    """Seconds between the first and the last step of each attempt, all of them together."""
