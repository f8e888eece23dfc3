"""The story of a run, chapter by chapter: what each attempt did, what ended it, what it cost.

Layer: api. The status holds the open chapter and those that no agent has stored yet; slot 0's agent
stores the closed ones next to the run's checkpoints, where they stay
(docs/adr/0012-the-story-of-a-run.md). Only `core/run/story.py` writes chapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from trainrun_operator.api.run.status_parts import HandedCheckpoint, StatusPart, as_json

MAX_CHAPTERS = 8
"""Closed chapters that wait to be stored; beyond that the oldest are dropped."""

Bucket = Literal[
    "useful",
    "queue",
    "image",
    "backoff",
    "start",
    "rendezvous",
    "load",
    "first_step",
    "checkpoint_stall",
    "rework",
    "hang",
    "drain",
    "unknown",
]
"""What a run spends its time on, in display order; docs/explain.md explains each bucket."""

RecoveryStage = Literal[
    "detect",
    "decide",
    "stop",
    "flush",
    "pods",
    "start",
    "import",
    "rendezvous",
    "load",
    "script",
    "firstStep",
]
"""A part of a recovery; docs/warm-start.md explains each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(StatusPart):
    """A decision or an observation in a chapter."""

    time: datetime
    """When."""
    reason: Annotated[str, Field(max_length=64)]
    """CamelCase, the event's reason."""
    message: Annotated[str, Field(max_length=512)] = ""
    """The event's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter(StatusPart):
    """A part of a run's life: one attempt, with the recovery after it until the next one starts.

    Chapters follow each other without gaps, except while the run is suspended.
    """

    number: Annotated[int, Field(ge=1)]
    """Counts the chapters of a TrainRun."""
    attempt: int
    """The attempt that the chapter covers."""
    begun: datetime
    """When the attempt was started; without one, when the run began to wait for it."""
    workers: Annotated[int, Field(exclude_if=not_)] = 0
    """Workers of the attempt; 0: no attempt ran, the chapter covers the preparation of one."""
    world_size: Annotated[int, Field(exclude_if=not_)] = 0
    """Processes of the attempt."""
    resumed_from: HandedCheckpoint | None = None
    """The checkpoint that the attempt got; absent: it began from scratch."""
    resumed_via: Literal["Disks", "Buddies"] | None = None
    """Where it was until then: on the workers' disks, or in part on those of lost workers, whose
    buddies stored their copies; absent: in the store."""
    facts: Annotated[dict[str, str], Field(exclude_if=not_)] = field(default_factory=dict)
    """What it was started with: image, replicas, hash of the template, limits."""
    reports: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether the script is known to report steps."""
    spawned: datetime | None = None
    """When its processes were started."""
    rendezvous_seconds: Annotated[float, Field(exclude_if=not_)] = 0.0
    """From `spawned` until a process asked for its checkpoint, on the slowest worker."""
    load_seconds: Annotated[float, Field(exclude_if=not_)] = 0.0
    """From then until all processes had it, on the slowest worker."""
    first_step: datetime | None = None
    """When its first step was reported."""
    stepped: datetime | None = None
    """When its last known step was reported."""
    reached: int | None = None
    """The highest step."""
    stall_seconds: Annotated[float, Field(exclude_if=not_)] = 0.0
    """How long `report(checkpoint=)` waited for room, on the rank that waited longest."""
    saves: Annotated[int, Field(exclude_if=not_)] = 0
    """Checkpoints that a rank reported, committed or not; 0: not known."""
    save_seconds: Annotated[float, Field(exclude_if=not_)] = 0.0
    """By how much a save made its step longer on average, on the slowest rank; 0: not known."""
    read_from: Annotated[str, Field(max_length=256, exclude_if=not_)] = ""
    """Where its steps were read, if the script reports none: form, rank and line of its output."""
    began_with: int | None = None
    """The first step in its output."""
    repeated: Annotated[int, Field(exclude_if=not_)] = 0
    """How many steps an earlier attempt had already done, as outputs show."""
    ended: datetime | None = None
    """When it was given up, or got its verdict."""
    end: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Incident, Suspend, TemplateChange, Yielded, TakenOver, Skipped, Succeeded or Failed."""
    doing: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """What the run waits for since `since`, while no attempt runs: the reason of the last pass."""
    since: datetime | None = None
    """When that began."""
    waits: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """Seconds of waiting, by reason."""
    notes: Annotated[tuple[Note, ...], Field(exclude_if=not_)] = ()
    """Decisions and observations, oldest first."""
    dropped_notes: Annotated[int, Field(exclude_if=not_)] = 0
    """Notes for which there was no room."""
    closed: datetime | None = None
    """When the next chapter began, or the verdict was written; the chapter is final then."""
    survived: int | None = None
    """The step that the run resumed from, or keeps; absent: from scratch."""
    incident: Annotated[dict[str, Any], Field(exclude_if=not_)] = field(default_factory=dict)
    """What ended it, as in `status.incidents`; absent if nothing failed."""
    verdict: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Reason of the verdict, if the run ended here."""
    spent: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """Seconds from `begun` to `closed`, by bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput(StatusPart):
    """What the run spent its time on, suspensions left out."""

    text: Annotated[str, Field(max_length=32)] = ""
    """`93.1 %`: the share of useful time; absent if the script reports no steps."""
    time: datetime
    """When this was calculated."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by bucket; their sum is the whole time. See docs/explain.md."""


_CHAPTER = TypeAdapter(Chapter)


def chapter_object(chapter: Chapter) -> dict[str, Any]:
    """The chapter as JSON, as it is stored."""
    return as_json(_CHAPTER, chapter)


def chapter_text(chapter: Chapter) -> str:
    """The same as compact text."""
    return _CHAPTER.dump_json(chapter, by_alias=True, exclude_none=True).decode()


def chapter_size(chapter: Chapter) -> int:
    """Bytes of the chapter as compact JSON in UTF-8."""
    return len(chapter_text(chapter).encode())


def chapter_from(stored: Mapping[str, Any]) -> Chapter:
    """The chapter read from JSON; raises ValueError that names every wrong field."""
    return _CHAPTER.validate_python(stored)
