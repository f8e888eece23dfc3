"""A run's life as a report: its state, where its time went, each chapter, and what to change.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainrun_operator.api.run.story import chapter_object
from trainrun_operator.cli.explaining.advice import advice, lost_steps
from trainrun_operator.cli.explaining.life import Extras, Life
from trainrun_operator.cli.explaining.narrative import beginning, changes, section, section_id
from trainrun_operator.cli.formatting import clock, counted, stamp
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.report.model import (
    Bar,
    BarKind,
    Bars,
    Document,
    Recommendations,
    Section,
    Table,
    TableRow,
    TextLine,
    Tone,
)
from trainrun_operator.cli.sources import checkpoint_object
from trainrun_operator.cli.tasks.views import in_story
from trainrun_operator.core.run.times import BUCKETS, goodput

WORDS: dict[str, tuple[str, str]] = {
    "start": ("s", "starting workers"),
    "rendezvous": ("v", "imports, rendezvous"),
    "load": ("l", "finding and loading checkpoints"),
    "first_step": ("f", "until the first step"),
    "useful": ("=", "steps that count"),
    "checkpoint_stall": ("c", "waits for uploads"),
    "rework": ("r", "steps done again later"),
    "hang": ("h", "making no progress"),
    "unknown": ("?", "not known"),
    "drain": ("d", "saving, stopping, uploading"),
    "backoff": ("b", "backing off"),
    "queue": ("q", "waiting for room"),
    "image": ("i", "pulling images"),
}
"""Sign and label of a bucket, in the drawing order of an attempt: roughly by time."""


def report_of(life: Life, extras: Extras | None = None) -> Document:
    """The whole report; with `extras`, what a page adds."""
    more = extras or Extras()
    text, tone = headline(life)
    return Document(
        name=f"Run {life.name}",
        headline=text,
        tone=tone,
        lead=tuple(map(TextLine, filter(None, (_goodput(life),)))),
        facts=(("storage", life.uri),),
        remarks=(*life.remarks, *more.remarks),
        sections=tuple(_sections(life, more)),
        advice=Recommendations(
            title="What to change",
            items=advice(life),
            otherwise="What to change: nothing that these numbers show.",
        ),
        data=_data(life),
    )


def headline(life: Life) -> tuple[str, Tone]:
    """State, duration and number of attempts."""
    whole, state, tone = sum(life.seconds.values()), *_state(life)
    took = f"after {in_words(whole)}" if whole else "after an unknown time"
    steps = f", step {life.reached}" if life.reached is not None else ""
    return f"Run {life.name} {state} {took}: {counted(len(life.ran), 'attempt')}{steps}.", tone


def _state(life: Life) -> tuple[str, Tone]:
    last = life.chapters[-1] if life.chapters else None
    if last is None or last.closed is None:
        going = "is still running" if life.hung is None else "hangs"
        led = going if life.status is not None else "has no recorded end"
        return "was stopped" if life.abandoned else led, "plain"
    if last.verdict:
        why = "" if last.verdict == "Succeeded" else f" ({last.verdict})"
        if life.succeeded:
            return f"succeeded{why}", "good"
        return f"failed{why}", "bad"
    suspended = life.status is not None and life.status.is_true("Suspended")
    return "is suspended" if suspended else "has no recorded end", "plain"


def _goodput(life: Life) -> str:
    """How much of the time made steps that count."""
    spent = life.seconds
    share = goodput(spent)
    if share is None:
        return ""
    whole = in_words(sum(spent.values()))
    if not life.reports:
        return f"Goodput is not known: the script reports no steps. The run took {whole}."
    useful = in_words(spent.get("useful", 0.0))
    return f"Goodput {100 * share:.1f} %: {useful} of {whole} went into steps that count."


def _sections(life: Life, extras: Extras) -> Iterator[Section]:
    if life.chapters:
        yield Section(title="Where the time went", blocks=(_bars(life),))
    if extras.curves:
        title = "What the output shows" if life.reads_output else "What rank 0 reported"
        yield Section(title=title, blocks=extras.curves)
    changed = changes(life)
    for number, chapter in enumerate(life.chapters):
        failed = chapter.incident and chapter.workers
        logs = extras.logs.get(chapter.attempt, ()) if failed else ()
        yield section(chapter, life, changed=changed.get(number, ()), logs=logs)
    if claims := tuple(_claims(life)):
        yield Section(
            title="Attempts without a recorded story (claims in the storage)", blocks=claims
        )
    if life.checkpoints or _staged(life):
        yield _checkpoints(life)
    if life.tasks is not None:
        yield in_story(life.tasks)


def _bars(life: Life) -> Bars:
    begin, end, spent = life.chapters[0].begun, life.until, life.seconds
    whole = max((end - begin).total_seconds(), 0.001)
    bars = [
        Bar(
            name=f"attempt {chapter.attempt}" if chapter.workers else "preparing",
            start=max((chapter.begun - begin).total_seconds() / whole, 0.0),
            parts={
                bucket: chapter.spent[bucket] / whole
                for bucket in WORDS
                if chapter.spent.get(bucket)
            },
            mark=_mark(chapter.incident.get("rank")) if chapter.incident else "",
            section=section_id(chapter),
        )
        for chapter in life.chapters
    ]
    kinds = [
        BarKind(
            name=bucket,
            sign=WORDS[bucket][0],
            words=f"{WORDS[bucket][1]} ({bucket})",
            amount=in_words(spent[bucket]),
            share=spent[bucket] / sum(spent.values()),
        )
        for bucket in BUCKETS
        if bucket in spent
    ]
    return Bars(
        bars=tuple(bars), kinds=tuple(kinds), scale=(clock(begin, day=True), clock(end, day=True))
    )


def _mark(rank: object) -> str:
    return "✗" if rank is None else f"rank {rank} ✗"


def _claims(life: Life) -> Iterator[TextLine]:
    """Attempts of which the storage knows only that they were started."""
    recorded = {chapter.attempt for chapter in life.ran}
    for record in life.attempts:
        if record.attempt not in recorded:
            yield TextLine(f"attempt {record.attempt}, {beginning(record.resume, life)}")
            if record.ended:
                yield TextLine(f"the attempt before ended: {record.ended}", deeper=True)


def _checkpoints(life: Life) -> Section:
    good = sum(info.state == "good" for info in life.checkpoints)
    rows = tuple(
        TableRow(
            cells=(str(info.id.step), str(info.id.attempt), info.state, stamp(info.modified)),
            below=(f"not used: {info.reason}",) if info.state == "bad" else (),
        )
        for info in life.checkpoints
    )
    table = Table(heads=("step", "attempt", "state", "committed"), rows=rows)
    title, left = f"Checkpoints, {good} of {len(rows)} good", _staged(life)
    return Section(title=title, blocks=(table, *left) if rows else left)


def _staged(life: Life) -> tuple[TextLine, ...]:
    """The newest step that only the workers' disks have."""
    step = life.status.progress.staged if life.status is not None else None
    return () if step is None else (TextLine(f"step {step} is on the workers' disks"),)


def _data(life: Life) -> dict[str, object]:
    """docs/explain.md is its schema."""
    changed = changes(life)
    return {
        "version": 1,
        "run": life.name,
        "uri": life.uri,
        "summary": headline(life)[0],
        "phase": life.status.phase if life.status is not None else None,
        "goodput": life.goodput,
        "seconds": life.seconds,
        "chapters": [
            {
                **chapter_object(chapter),
                "lostSteps": lost_steps(chapter),
                "changes": list(changed.get(number, ())),
                "stacks": list(life.stacks_of(chapter)),
            }
            for number, chapter in enumerate(life.chapters)
        ],
        "attempts": [
            {
                "attempt": record.attempt,
                "resumedFrom": record.resume
                and {"attempt": record.resume.attempt, "step": record.resume.step},
                "endedBefore": record.ended,
                "setAside": list(record.set_aside),
            }
            for record in life.attempts
        ],
        "checkpoints": [checkpoint_object(info) for info in life.checkpoints],
        "tasks": None if life.tasks is None else life.tasks.counts,
        "advice": [item.data for item in advice(life)],
        "remarks": list(life.remarks),
    }
