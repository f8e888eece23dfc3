"""The parts of a TrainRun's status that say what agents, or the store, were asked.

Layer: api.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from operator import not_
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
class StoreWait(StatusPart):
    """The store is asked in vain for what an attempt needs to start."""

    reason: Annotated[str, Field(max_length=64)]
    """That of the condition StorageReady."""
    since: datetime | None = None
    """Since when it has been asked without a break; absent: nobody asks it now."""
    waited: float = 0.0
    """Seconds for which it had been asked before that."""
    renewals: Annotated[int, Field(exclude_if=not_)] = 0
    """How often the workers that it refuses were made anew."""
    renewed: datetime | None = None
    """When they were last."""
    renewed_to: Annotated[int, Field(exclude_if=not_)] = 0
    """The highest number of creation among them: those up to it go, where it refuses them still."""
    spec: Annotated[str, Field(max_length=64)] = ""
    """Hash of the fields of the spec that say how workers reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAsked(StatusPart):
    """The running attempt stands still, and its agents were asked where."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    number: Annotated[int, Field(ge=1)]
    """Of the request, within the attempt."""
    time: datetime
    """When it was asked: nobody is waited for longer than ten seconds."""
