"""A life as plain text for a terminal of 80 columns.

Layer: cli. Colors are left to click, which leaves them out where there is no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from trainrun_operator.cli.explaining.advice import advice
from trainrun_operator.cli.explaining.narrative import (
    changes,
    goodput_sentence,
    headline,
    incident_lines,
    sentences,
    title,
    waits_of,
)
from trainrun_operator.cli.explaining.stacks import stack_lines
from trainrun_operator.cli.tasks.overview import summary_lines
from trainrun_operator.cli.wording import seconds as in_words
from trainrun_operator.cli.wrapping import wrapped
from trainrun_operator.core.run.times import BUCKETS

if TYPE_CHECKING:
    from trainrun_operator.api.run.story import Chapter
    from trainrun_operator.cli.explaining.life import Life

KEPT = "\N{SYMBOL FOR SPACE}"
"""A space at which no line is broken."""

BAR = 56
"""Columns of the timeline."""

SIGNS: dict[str, str] = {
    "useful": "=",
    "rework": "r",
    "checkpoint_stall": "c",
    "queue": "q",
    "image": "i",
    "backoff": "b",
    "start": "s",
    "rendezvous": "s",
    "load": "l",
    "first_step": "f",
    "hang": "h",
    "drain": "d",
    "unknown": "?",
}

WORDS: dict[str, str] = {
    "useful": "steps that count",
    "rework": "steps done again later",
    "checkpoint_stall": "waits for uploads",
    "queue": "waiting for room",
    "image": "pulling images",
    "backoff": "backing off",
    "start": "starting workers",
    "rendezvous": "imports, rendezvous",
    "load": "finding and loading checkpoints",
    "first_step": "until the first step",
    "hang": "standing still",
    "drain": "saving, stopping, uploading",
    "unknown": "not known",
}
"""A bucket in words, for tables."""

ORDER = (
    "start", "rendezvous", "load", "first_step", "useful", "checkpoint_stall", "rework", "hang",
    "unknown", "drain", "backoff", "queue", "image",
)  # fmt: skip
"""How the buckets of an attempt are drawn one after the other: about as they happen."""


def lines(life: Life) -> Iterator[str]:
    """The whole story."""
    color = "green" if "succeeded" in headline(life) else None
    yield from wrapped(headline(life), color="red" if "failed" in headline(life) else color)
    yield from wrapped(goodput_sentence(life))
    yield from wrapped(f"Storage: {life.uri}")
    for remark in life.remarks:
        yield from wrapped(f"! {remark}", color="yellow")
    if life.chapters:
        yield ""
        yield from _timeline(life)
    changed = changes(life)
    for number, chapter in enumerate(life.chapters):
        yield ""
        yield from _chapter(chapter, life, changed.get(number, ()))
    yield from _without_story(life)
    yield from _checkpoints(life)
    if life.tasks is not None:
        yield ""
        yield from summary_lines(life.tasks)
    yield from _table(life)
    yield from _advice(life)


def _timeline(life: Life) -> Iterator[str]:
    begin = life.chapters[0].begun
    whole = max((life.until - begin).total_seconds(), 0.001)
    for chapter in life.chapters:
        left = min(round(BAR * (chapter.begun - begin).total_seconds() / whole), BAR - 1)
        name = f"attempt {chapter.attempt}" if chapter.workers else "preparing"
        yield f"{name[:14]:<14} |{' ' * left}{_bar(chapter, whole, room=BAR - left)}".rstrip()
    last = in_words(whole)
    yield f"{'':<14} 0{' ' * (BAR - len(last))}{last}"
    used = {SIGNS[name] for name in life.seconds}
    meant: dict[str, str] = {}
    for name, sign in SIGNS.items():
        if sign in used:
            meant.setdefault(sign, f"{sign} {WORDS[name]}".replace(" ", KEPT))
    yield from (line.replace(KEPT, " ") for line in wrapped("  ".join(meant.values()), indent=15))


def _bar(chapter: Chapter, whole: float, *, room: int) -> str:
    """Its time in at most so many columns, whatever its clocks said."""
    drawn, at, told = "", 0.0, 0
    for bucket in ORDER:
        at += chapter.spent.get(bucket, 0.0)
        until = min(round(BAR * at / whole), room)
        drawn += SIGNS[bucket] * (until - told)
        told = until
    return drawn or "."


def _chapter(chapter: Chapter, life: Life, changed: tuple[str, ...]) -> Iterator[str]:
    head = f"{_clock(chapter.begun, day=True)}  {title(chapter, life)}"
    yield from wrapped(head, color="cyan")
    for change in changed:
        yield from wrapped(change, indent=11, color="yellow")
    for moment, text in sorted(sentences(chapter), key=lambda item: item[0]):
        yield from wrapped(f"{_clock(moment)} {text}", indent=2, hang=9)
    when = _clock(chapter.ended or chapter.begun)
    for number, text in enumerate(incident_lines(chapter, life)):
        if number:
            yield from wrapped(text, indent=11)
        else:
            yield from wrapped(f"{when} {text}", indent=2, hang=9, color="red")
    for line in stack_lines(life.hangs.get(str(chapter.incident.get("evidence")), ())):
        yield f"{' ' * 11}{line}"
    for text in waits_of(chapter):
        yield from wrapped(text, indent=11)


def _without_story(life: Life) -> Iterator[str]:
    """Attempts of which the storage knows nothing but that they were started."""
    told = {chapter.attempt for chapter in life.ran}
    rest = [record for record in life.attempts if record.attempt not in told]
    if not rest:
        return
    yield ""
    yield "Attempts without a recorded story (claims in the storage):"
    for record in rest:
        begin = f"from step {record.resume.step}" if record.resume else "from nothing"
        yield from wrapped(f"attempt {record.attempt}, {begin}", indent=2)
        if record.ended:
            yield from wrapped(f"the one before ended: {record.ended}", indent=4)


def _checkpoints(life: Life) -> Iterator[str]:
    if not life.checkpoints:
        return
    good = [info for info in life.checkpoints if info.state == "good"]
    bad = [info for info in life.checkpoints if info.state == "bad"]
    yield ""
    text = f"Checkpoints: {len(good)} good"
    if good:
        newest = max(good, key=lambda info: info.id)
        text += f", the newest of step {newest.id.step} (attempt {newest.id.attempt})"
    yield from wrapped(text)
    for info in bad:
        yield from wrapped(f"{info.id.name} is not used: {info.reason}", indent=2)


def _table(life: Life) -> Iterator[str]:
    spent = life.seconds
    whole = sum(spent.values())
    if not whole:
        return
    yield ""
    yield "Where the time went:"
    for bucket in BUCKETS:
        if bucket in spent:
            share = 100 * spent[bucket] / whole
            yield f"  {share:5.1f} %  {in_words(spent[bucket]):>8}  {WORDS[bucket]} ({bucket})"


def _advice(life: Life) -> Iterator[str]:
    found = advice(life)
    yield ""
    if not found:
        yield "What to change: nothing that these numbers show."
        return
    yield click.style("What to change:", bold=True)
    for item in found:
        yield from wrapped(f"- {item.text}", indent=0, hang=2)


def _clock(moment: datetime, *, day: bool = False) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}" if day else f"{moment:%H:%M:%S}"
