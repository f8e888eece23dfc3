"""Checkpoints of the same step compared, file by file, by size and checksum.

Layer: cli; pure. Only what two undisturbed runs save alike is compared: many formats hold the time
or random names, and differ from themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course, Files

Contents = Mapping[int, "Files"]
"""By step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Checkpoints that a run saved after its resume, beside the undisturbed ones."""

    steps: tuple[int, ...] = ()
    """That were compared."""
    step: int = 0
    """The first one where they differ."""
    files: tuple[str, ...] = ()
    """Those that do there; none: they are equal."""
    of: int = 0
    """Files that were compared there."""


def agreed(one: Course, other: Course) -> Contents:
    """What both undisturbed runs saved alike; of other files nothing can be said."""
    found: dict[int, Files] = {}
    for (attempt, step), files in one.contents.items():
        also = other.contents.get((attempt, step), {})
        same = {name: told for name, told in files.items() if also.get(name) == told}
        if same:
            found[step] = same
    return found


def compare(course: Course, contents: Contents) -> Compared:
    """What the last attempt of a run saved, beside that."""
    after = course.handed.step if course.handed is not None else -1
    steps = []
    for (attempt, step), files in sorted(course.contents.items()):
        if attempt != course.last or step <= after or step not in contents:
            continue
        steps.append(step)
        wrong = [name for name, told in contents[step].items() if files.get(name) != told]
        if wrong:
            of = len(contents[step])
            return Compared(steps=tuple(steps), step=step, files=tuple(sorted(wrong)), of=of)
    return Compared(steps=tuple(steps))
