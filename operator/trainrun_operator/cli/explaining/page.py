"""A life as one static page: to send, to keep, to read on a phone. No scripts, nothing fetched.

Layer: cli; pure. All texts are escaped, and what looks like a secret is left out: output of
training processes is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

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
from trainrun_operator.cli.explaining.page_parts import curves_section, lines_of
from trainrun_operator.cli.explaining.stacks import stack_lines
from trainrun_operator.cli.explaining.style import STYLE
from trainrun_operator.cli.explaining.text import ORDER, WORDS
from trainrun_operator.cli.pages.frame import framed, safe
from trainrun_operator.cli.wording import seconds as in_words
from trainrun_operator.core.run.times import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainrun_operator.api.run.story import Chapter
    from trainrun_operator.cli.explaining.extras import Extras
    from trainrun_operator.cli.explaining.life import Life


def page(life: Life, extras: Extras) -> str:
    """The whole page."""
    parts = [
        _head(life, extras),
        _goodput(life),
        _advice(life),
        _timeline(life),
        curves_section(extras.curves),
        *_chapters(life, extras),
        _checkpoints(life),
    ]
    body = "\n".join(part for part in parts if part)
    return framed(f"Run {life.name}", body, style=STYLE)


def _head(life: Life, extras: Extras) -> str:
    said = headline(life)
    state = "bad" if " failed" in said else "good" if " succeeded" in said else "open"
    notes = "".join(
        f'<p class="note">{safe(remark)}</p>' for remark in (*life.remarks, *extras.remarks)
    )
    return (
        f'<header class="{state}"><h1>{safe(life.name)}</h1><p>{safe(said)}</p>'
        f'<p class="dim">{safe(life.uri)}</p></header>{notes}'
    )


def _goodput(life: Life) -> str:
    spent = life.seconds
    if not sum(spent.values()):
        return ""
    rows = "".join(
        f'<tr><td><i class="{bucket}"></i>{safe(WORDS[bucket])}</td>'
        f"<td>{100 * spent[bucket] / sum(spent.values()):.1f} %</td>"
        f"<td>{safe(in_words(spent[bucket]))}</td></tr>"
        for bucket in BUCKETS
        if bucket in spent
    )
    return (
        f"<section><h2>Where the time went</h2><p>{safe(goodput_sentence(life))}</p>"
        f'<div class="bar tall">{_segments(spent, sum(spent.values()))}</div>'
        f'<table class="sums">{rows}</table></section>'
    )


def _segments(spent: Mapping[str, float], whole: float) -> str:
    return "".join(
        f'<i class="{bucket}" style="width:{100 * spent[bucket] / whole:.3f}%" '
        f'title="{safe(WORDS[bucket])}: {safe(in_words(spent[bucket]))}"></i>'
        for bucket in ORDER
        if spent.get(bucket)
    )


def _advice(life: Life) -> str:
    found = advice(life)
    items = "".join(f"<li>{safe(item.text)}</li>" for item in found)
    said = f"<ul>{items}</ul>" if found else "<p>Nothing that these numbers show.</p>"
    return f"<section><h2>What to change</h2>{said}</section>"


def _timeline(life: Life) -> str:
    if not life.chapters:
        return ""
    begin = life.chapters[0].begun
    end = life.until
    whole = max((end - begin).total_seconds(), 0.001)
    rows = "".join(_row(chapter, begin, whole) for chapter in life.chapters)
    return (
        f"<section><h2>Timeline</h2><div class=lines>{rows}</div>"
        f'<p class="scale"><span>{_moment(begin)}</span><span>{_moment(end)}</span></p></section>'
    )


def _row(chapter: Chapter, begin: datetime, whole: float) -> str:
    left = min(100 * (chapter.begun - begin).total_seconds() / whole, 100.0)
    width = min(100 * sum(chapter.spent.values()) / whole, 100.0 - left)
    name = f"attempt {chapter.attempt}" if chapter.workers else "preparing"
    told = f"rank {chapter.incident['rank']} " if "rank" in chapter.incident else ""
    rank = f"<span>{safe(told)}</span>" if told else ""
    mark = f"{rank}&#10007;" if chapter.incident else ""
    return (
        f'<a class="line" href="#chapter-{chapter.number}-{chapter.attempt}"><b>{name}</b>'
        f'<span class="track"><span class="bar" style="margin-left:{left:.3f}%;width:{width:.3f}%">'
        f"{_segments(chapter.spent, max(sum(chapter.spent.values()), 0.001))}</span></span>"
        f"<em>{mark}</em></a>"
    )


def _chapters(life: Life, extras: Extras) -> Iterator[str]:
    changed = changes(life)
    for number, chapter in enumerate(life.chapters):
        said = "".join(f'<li class="change">{safe(text)}</li>' for text in changed.get(number, ()))
        for moment, text in sorted(sentences(chapter), key=lambda item: item[0]):
            said += f"<li><time>{moment:%H:%M:%S}</time> {safe(text)}</li>"
        said += "".join(f"<li>{safe(text)}</li>" for text in waits_of(chapter))
        yield (
            f'<section id="chapter-{chapter.number}-{chapter.attempt}" class="chapter">'
            f"<h3>{safe(title(chapter, life))}</h3>"
            f'<p class="dim">{_moment(chapter.begun)}, {in_words(sum(chapter.spent.values()))}</p>'
            f"<ul>{said}</ul>{_incident(chapter, life)}"
            f"{_lines(chapter, extras)}</section>"
        )


def _lines(chapter: Chapter, extras: Extras) -> str:
    failed = chapter.incident and chapter.workers
    return lines_of(extras.logs.get(chapter.attempt, ())) if failed else ""


def _incident(chapter: Chapter, life: Life) -> str:
    told = list(incident_lines(chapter, life))
    if not told:
        return ""
    plain = [line for line in told[1:] if not line.startswith("| ")]
    tail = "\n".join(line[2:] for line in told if line.startswith("| "))
    facts = "".join(f"<li>{safe(line)}</li>" for line in plain)
    log = f"<pre>{safe(tail)}</pre>" if tail else ""
    stood = "\n".join(stack_lines(life.hangs.get(str(chapter.incident.get("evidence")), ())))
    stacks = f"<p>Where the ranks stood:</p><pre>{safe(stood)}</pre>" if stood else ""
    head = f"<strong>{safe(told[0])}</strong>"
    return f'<div class="incident">{head}<ul>{facts}</ul>{log}{stacks}</div>'


def _checkpoints(life: Life) -> str:
    if not life.checkpoints:
        return ""
    rows = "".join(
        f"<tr><td>{info.id.step}</td><td>{info.id.attempt}</td><td>{safe(info.state)}</td>"
        f"<td>{_committed(info.modified)}</td></tr>"
        for info in life.checkpoints
    )
    return (
        "<section><h2>Checkpoints</h2><table><tr><th>step</th><th>attempt</th><th>state</th>"
        f"<th>committed</th></tr>{rows}</table></section>"
    )


def _committed(modified: float) -> str:
    return _moment(datetime.fromtimestamp(modified, UTC)) if modified else "-"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
