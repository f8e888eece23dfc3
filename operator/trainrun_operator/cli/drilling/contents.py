"""Checkpoints of the same step compared, file by file and entry by entry, by content.

Layer: cli; pure. What differs between two undisturbed runs proves nothing and is not compared: the
time, random names. Nor do bytes prove anything where they are all that can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Content, Course, Files

RECORDS = re.compile(
    r": (loops\.|callbacks\.ModelCheckpoint.*\.current_score$"
    r"|.*(restart|attempt|resume|elapsed|uptime|_time\b))"
)
"""Entries that a sound script has otherwise after a restart: they count restarts or its own time.
Lightning's loops reset their validation counters, and its ModelCheckpoint forgets the score it saw
last."""

Contents = Mapping[int, "Files"]
"""By step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Checkpoints that a run saved after its resume, beside the undisturbed ones."""

    steps: tuple[int, ...] = ()
    """Of which anything was compared."""
    step: int = 0
    """The first one where something differs."""
    wrong: tuple[str, ...] = ()
    """Entries that do there, and files that are missing; none: they are equal."""
    equal: tuple[str, ...] = ()
    """All other entries that were compared there."""
    unclear: tuple[str, ...] = ()
    """Files whose bytes differ at any step, and whose content cannot be read."""


def agreed(one: Course, other: Course) -> Contents:
    """What both undisturbed runs saved alike; of anything else nothing can be said."""
    found: dict[int, Files] = {}
    for (attempt, step), files in one.contents.items():
        also = other.contents.get((attempt, step), {})
        same = {name: it for name in files.keys() & also if (it := _same(files[name], also[name]))}
        if same:
            found[step] = same
    return found


def _same(one: Content, other: Content) -> Content | None:
    if one.told == other.told:
        return one
    if one.entries is None or other.entries is None:
        return None
    entries = {k: digest for k, digest in one.entries.items() if other.entries.get(k) == digest}
    return replace(one, entries=entries) if entries else None


def compare(course: Course, contents: Contents) -> Compared:
    """What the last attempt of a run saved, beside that."""
    after = course.handed.step if course.handed is not None else -1
    steps: list[int] = []
    unclear: set[str] = set()
    for (attempt, step), files in sorted(course.contents.items()):
        if attempt != course.last or step <= after or step not in contents:
            continue
        expected = contents[step]
        readable = {name: it for name, it in expected.items() if _comparable(it, files.get(name))}
        unclear |= expected.keys() - readable.keys()
        if not readable:
            continue
        steps.append(step)
        wrong = [e for name, it in readable.items() for e in _wrong(name, it, files.get(name))]
        if wrong:
            names = {e for name, it in readable.items() for e in _named(name, it)}
            equal = tuple(sorted(names - set(wrong)))
            return Compared(steps=tuple(steps), step=step, wrong=tuple(sorted(wrong)), equal=equal)
    return Compared(steps=tuple(steps), unclear=tuple(sorted(unclear)))


def _comparable(expected: Content, got: Content | None) -> bool:
    if got is None or got.told == expected.told:
        return True
    return expected.entries is not None and got.entries is not None


def _named(name: str, content: Content) -> dict[str, bytes | None]:
    """Its entries, with the name of the file before their own."""
    if content.entries is None:
        return {name: None}
    return {f"{name}: {at}" if at else name: digest for at, digest in content.entries.items()}


def _wrong(name: str, expected: Content, got: Content | None) -> list[str]:
    if got is None:
        return [name]
    if got.told == expected.told:
        return []
    entries = _named(name, got)
    return [
        at
        for at, digest in _named(name, expected).items()
        if entries.get(at) != digest and not RECORDS.search(at)
    ]
