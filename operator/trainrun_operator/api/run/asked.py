"""The parts of a TrainRun's status that say what the agents of the running attempt were asked.

Layer: api.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field

from trainrun_operator.api.run.status_part import StatusPart

MAX_LEAVING = 64
"""Slots under notice that are remembered: of more than that, enough are seen to know the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAsked(StatusPart):
    """The running attempt was asked to save a checkpoint through `should_save()`."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    reason: Annotated[str, Field(max_length=256)]
    """Preemption notice, suspend, template change."""
    time: datetime
    """When it was asked first."""
    writer_rank: Annotated[int, Field(ge=0)] = 0
    """The lowest rank not under notice at that moment: the same on every rank, whoever is told."""
    leaving: Annotated[tuple[int, ...], Field(max_length=MAX_LEAVING)] = ()
    """Slots under notice since then: a worker of them that is gone later was preempted, also when
    nobody saw it end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAsked(StatusPart):
    """The running attempt stands still, and its agents were asked where."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    number: Annotated[int, Field(ge=1)]
    """Of the request, within the attempt."""
    time: datetime
    """When it was asked: nobody is waited for longer than ten seconds."""
