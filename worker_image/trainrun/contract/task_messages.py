"""What a program of tasks asks its agent, and what is replied.

Layer: contract, pure; a part of `contract.messages`. Whatever may be large goes by files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

Fields = Mapping[str, object]
"""A message as JSON has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDone:
    """The store has done it."""

    written: bool = False
    """The batch stands at its position."""
    sizes: tuple[int | None, ...] = ()
    """One for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTasks:
    """A call of `trainrun.tasks.keep.Keep`."""

    type: ClassVar[str] = "tasks"
    call: str
    """The name of the method."""
    position: int = 0
    """Of a batch to append, or behind which to read."""
    path: str = ""
    """The file to store, or to make: of an object, or of batches, each with a line end."""
    names: tuple[str, ...] = ()
    """Of objects."""

    def read(self, given: Fields) -> TasksDone:
        """Raises KeyError and TypeError."""
        sizes: list[int | None] = given["sizes"]  # type: ignore[assignment]
        return TasksDone(written=bool(given["written"]), sizes=tuple(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """What the ranks of an attempt know, and nobody else."""

    key: str = field(repr=False)
    """Hexadecimal."""
    uri: str
    """Address of the folder `tasks/`, for people."""
    lost: tuple[tuple[int, int], ...] = ()
    """Attempt and rank of those that were lost last: see `contract.answer.LostRank`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAttemptKey:
    """Tell it."""

    type: ClassVar[str] = "attempt-key"

    def read(self, given: Fields) -> AttemptKey:
        """Raises KeyError, TypeError and ValueError."""
        lost = tuple((attempt, rank) for attempt, rank in given["lost"])  # type: ignore[attr-defined]
        return AttemptKey(key=str(given["key"]), uri=str(given["uri"]), lost=lost)


def read_ask(given: Fields) -> AskTasks:
    """Raises ValueError and KeyError."""
    position, names = given.get("position", 0), given.get("names", [])
    if not isinstance(position, int) or not isinstance(names, list):
        raise ValueError(f"position {position!r:.80} or names {names!r:.80} is wrong")
    return AskTasks(
        call=str(given["call"]),
        position=position,
        path=str(given.get("path", "")),
        names=tuple(map(str, names)),
    )
