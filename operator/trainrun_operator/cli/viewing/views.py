"""What the page shows, as HTML: the list of runs, and one run.

Layer: cli; pure. A view is a few parts with ids, so that only those that changed are sent again.
Everything that a run has told is escaped, and what looks like a secret is masked, by `safe`.
"""

from __future__ import annotations

import hashlib
import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from trainrun_operator.cli import formatting
from trainrun_operator.cli.explaining.life import Extras, Life
from trainrun_operator.cli.explaining.run_report import report_of as story_of
from trainrun_operator.cli.report.drawing import svg
from trainrun_operator.cli.report.model import (
    Bars,
    Curves,
    Document,
    Point,
    Preformatted,
    Section,
    Table,
    TableRow,
    TextLine,
    Tone,
)
from trainrun_operator.cli.report.page import advice, head, safe, section
from trainrun_operator.cli.status import report_of as status_of
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.cli.viewing.run_details import RunDetails

MOST_ROWS = 100
"""Rows of one page of the list."""
MOST_CHAPTERS = 30
"""Attempts on the page of a run, the newest."""
URGENT: tuple[Tone, ...] = ("bad", "note", "plain", "good")
"""Order of the phases above the list."""
TO_LIST = '<nav><a href="./">all runs</a></nav>'
"""Stands before all pages but the list."""
HEADS = {
    "pick": "",
    "name": "run",
    "phase": "phase",
    "step": "step",
    "spark": "",
    "goodput": "goodput",
    "failures": "failures",
    "cause": "last cause",
    "checkpoint": "checkpoint",
    "queue": "queue",
}
"""Columns of the list: what they are ordered by, and their heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """A page at one moment."""

    title: str
    parts: Mapping[str, str]
    """Elements by their ids, in order; together they are the page."""
    glue: Mapping[str, str] = field(default_factory=dict)
    """By id of a part, what stands before it: the elements that hold the parts."""
    before: str = ""
    """Stands before everything, and does not change."""

    @property
    def whole(self) -> str:
        """All parts."""
        return "".join(self.glue.get(key, "") + part for key, part in self.parts.items())


def link(page: str, **query: object) -> str:
    """An address on this page, escaped."""
    return safe_url(f"{page}?{urlencode({k: v for k, v in query.items() if v not in ('', None)})}")


def safe_url(address: str) -> str:
    """The address, escaped, but not masked: it leads nowhere else."""
    return address.replace("&", "&amp;").replace('"', "%22").replace("'", "%27").replace("<", "%3C")


def dom_id(text: str) -> str:
    """An id of an element that no text of a run can imitate."""
    return f"p{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def names_of(rows: Sequence[RunRow]) -> tuple[str, ...]:
    """The names of the runs; of namesakes, with their places."""
    count = Counter(row.name for row in rows)
    return tuple(row.name if count[row.name] == 1 else f"{row.name} ({row.place})" for row in rows)


def trouble(found: Iterable[str]) -> str:
    """What cannot be read now."""
    lines = "".join(f'<p class="note">{safe(text)}</p>' for text in found)
    return f'<div id="trouble" role="status">{lines}</div>'


# --------------------------------------------------------------------------------- the list


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAsked:
    """What of the list is asked for."""

    words: str = ""
    phase: str = ""
    sort: str = ""
    start: int = 0
    still: bool = False
    """Without scripts, it does not reload by itself."""

    def link(self, **changes: object) -> str:
        """The address of the list with these changes."""
        asked = {"q": self.words, "phase": self.phase, "sort": self.sort, "from": self.start or ""}
        return link("./", **{**asked, **changes})


def list_view(
    rows: Sequence[RunRow],
    found: Sequence[RunRow],
    asked: ListAsked,
    *,
    sparks: Mapping[str, Sequence[Point]],
    troubles: Iterable[str],
    now: datetime,
    loading: bool = False,
) -> PageView:
    """The list: `rows` are all, `found` those asked for, in order; `sparks` small curves by id."""
    shown = found[asked.start : asked.start + MOST_ROWS]
    heads = "".join(_head(name, text, asked) for name, text in HEADS.items())
    bare = "" if any(row.queue for row in rows) else " bare"
    parts = {
        "trouble": trouble(troubles),
        "summary": _summary(rows, asked, loading=loading),
    }
    drawn = {dom_id(row.id): _row(row, sparks.get(row.id, ()), now) for row in shown}
    parts |= {**drawn, "end": _turn(found, asked)}
    table = f'<div class="wide"><table class="runs{bare}"><thead><tr>{heads}</tr></thead><tbody>'
    first = next(iter(drawn), "end")
    ending = "</tbody></table></div>"
    glue = {first: table, "end": ending if drawn else f"{table}{ending}"}
    form = (
        '<form method="get" action="./" role="search"><input type="search" name="q" '
        f'value="{safe(asked.words)}" placeholder="name, namespace, cause, queue" '
        f'aria-label="filter"><input type="hidden" name="phase" value="{safe(asked.phase)}">'
        f'<input type="hidden" name="sort" value="{safe(asked.sort)}">'
        "<button>filter</button></form>"
    )
    choose = (
        '<form method="get" action="compare" id="chosen"><button>compare the checked runs</button>'
        f'<noscript><a href="{asked.link(still=1)}">without reloading meanwhile</a></noscript>'
        "</form>"
    )
    return PageView(
        title="Runs",
        parts=parts,
        glue=glue,
        before=f'<header><h1>Runs</h1><a href="nodes">nodes</a>{form}{choose}</header>',
    )


def _summary(rows: Sequence[RunRow], asked: ListAsked, *, loading: bool) -> str:
    """How many runs there are in each phase."""
    counts = Counter(row.phase for row in rows)
    tones = {row.phase: row.tone for row in rows}
    chips = "".join(
        f'<a class="chip {tones[phase]}{" on" * (phase == asked.phase)}" '
        f'href="{asked.link(phase="" if phase == asked.phase else phase, **{"from": ""})}">'
        f"<b>{count:,}</b> {safe(phase)}</a>"
        for phase, count in sorted(
            counts.items(), key=lambda item: (URGENT.index(tones[item[0]]), -item[1])
        )
    )
    more = " Still reading." if loading else ""
    empty = "" if rows or loading else " There are none yet."
    sweeps = sum(row.sweep for row in rows)
    what = formatting.counted(len(rows) - sweeps, "run")
    what += f", {formatting.counted(sweeps, 'sweep')}" if sweeps else ""
    return f'<p id="summary">{what}.{more}{empty} {chips}</p>'


def _head(name: str, text: str, asked: ListAsked) -> str:
    if not text:
        return f'<th class="{name}"></th>'
    turned = f"-{name}" if asked.sort == name else name
    mark = {name: " ▲", f"-{name}": " ▼"}.get(asked.sort, "")
    href = asked.link(sort=turned, **{"from": ""})
    return f'<th class="{name}"><a href="{href}">{text}{mark}</a></th>'


def _row(row: RunRow, points: Sequence[Point], now: datetime) -> str:
    kind = {"cluster": "", "local": "this machine, ", "stored": "storage, "}[row.kind]
    kind = f"sweep, {kind}" if row.sweep else kind
    saved = "" if row.saved_step is None else f"step {row.saved_step}"
    age = "" if row.saved is None else f"{_age(row.saved, now)} ago"
    picked = f'name="run" value="{html.escape(row.id)}" aria-label="compare {safe(row.name)}"'
    cells = {
        "pick": "" if row.sweep else f'<input type="checkbox" form="chosen" {picked}>',
        "name": f'<a href="{link("sweep" if row.sweep else "run", id=row.id)}">{safe(row.name)}</a>'
        f"<small>{safe(kind + row.place)}</small>",
        "phase": f'<b class="{row.tone}">{safe(row.phase)}</b><small>{safe(row.reason)}</small>',
        "step": safe(row.step) + (f"<small>{safe(row.best)}</small>" if row.best else ""),
        "spark": svg({1: points}, compared=False),
        "goodput": row.share,
        "failures": row.failed,
        "cause": safe(row.cause),
        "checkpoint": f"{safe(age or saved)}<small>{safe(saved if age else '')}</small>",
        "queue": safe(row.queue),
    }
    drawn = "".join(f'<td class="{name}">{cell}</td>' for name, cell in cells.items())
    return f'<tr id="{dom_id(row.id)}">{drawn}</tr>'


def _age(moment: datetime, now: datetime) -> str:
    """`<1 min`, `12 min`, `3.5 h`, `12 d`: coarse, so that rows do not change all the time."""
    passed = max((now - moment).total_seconds(), 0.0)
    if passed < 60:
        return "<1 min"
    if passed < 7200:
        return f"{passed / 60:.0f} min"
    return f"{passed / 3600:.1f} h" if passed < 48 * 3600 else f"{passed / 86400:.0f} d"


def _turn(found: Sequence[RunRow], asked: ListAsked) -> str:
    """Links to the pages of the list before and after."""
    links, end = "", asked.start + MOST_ROWS
    if asked.start:
        before = asked.link(**{"from": max(asked.start - MOST_ROWS, 0) or ""})
        links += f'<a href="{before}">before</a> '
    if end < len(found):
        links += f'<a href="{asked.link(**{"from": end})}">next</a>'
    last = min(end, len(found))
    if not links:
        return '<p id="end"></p>'
    return f'<p id="end">{asked.start + 1:,} to {last:,} of {len(found):,}. {links}</p>'


# --------------------------------------------------------------------------------- one run


def run_view(details: RunDetails, troubles: Iterable[str]) -> PageView:
    """The page of one run."""
    row, state, life = details.row, details.state, details.life
    parts = {"trouble": trouble((*troubles, *details.troubles.values()))}
    if life is not None:
        curves = details.reader.curves.blocks(details.newer)
        story = story_of(life, Extras(curves=curves, logs=details.extras.logs))
    else:
        story = Document(name=f"Run {row.name}", headline=f"Run {row.name}: {row.phase}.")
    top = story
    if state is not None:
        led = {"cluster": "the operator", "local": "this machine", "stored": ""}[row.kind]
        top = status_of(row.name, state.status, led_by=led if row.active else "")
    remarks = (*top.remarks, *(story.remarks if top is not story else ()), *details.extras.remarks)
    facts = (*top.facts, *_at_stake(row), *(story.facts if top is not story else ()))
    lead = (*top.lead, *(story.lead if top is not story else _why_failed(life)))
    whole = Document(
        name=top.name, headline=top.headline, tone=top.tone, lead=lead, facts=facts,
        remarks=remarks, ending=top.ending,
    )  # fmt: skip
    parts["head"] = f'<div id="head">{head(whole)}</div>'
    parts["advice"] = f'<div id="advice">{"".join(advice(story.advice))}</div>'
    for part in _sections(story, top, details):
        key = dom_id(part.id or part.title)
        parts[key] = f'<div id="{key}">{section(part)}</div>'
    return PageView(title=top.name, parts=parts, before=TO_LIST)


def _why_failed(life: Life | None) -> Iterator[TextLine]:
    """What ended a run that failed, if only its story is known: a status says it by itself."""
    incident = life.chapters[-1].incident if life is not None and life.succeeded is False else {}
    if incident:
        message = str(incident.get("message", "")).partition("\n")[0]
        yield TextLine(f"{incident.get('cause', 'Unknown')}: {message}", "bad")


def _at_stake(row: RunRow) -> Iterator[tuple[str, str]]:
    """What a failure would cost a run that makes steps."""
    if not row.active or row.at_step < 0:
        return
    if row.saved is None or row.saved_step is None:
        yield "at stake", "all steps: it has no checkpoint yet"
    else:
        steps = formatting.counted(max(row.at_step - row.saved_step, 0), "step")
        yield "at stake", f"{steps}, those since the checkpoint {_age(row.saved, now_utc())} ago"


def _sections(story: Document, top: Document, details: RunDetails) -> Iterator[Section]:
    """Curves and times first, then what failed, then the newest attempts."""
    chapters = [part for part in story.sections if part.at is not None]
    others = [part for part in story.sections if part.at is None]
    for kind in (Curves, Bars):
        yield from (part for part in others if isinstance(part.blocks[0], kind))
    if top is not story:
        yield from top.sections
    if details.pods:
        yield _workers(details)
    if details.lines:
        title = f"Output of rank {details.rank}, its last lines"
        yield Section(title=title, blocks=(Preformatted(details.lines),), id="output")
    yield from reversed(chapters[-MOST_CHAPTERS:])
    if len(chapters) > MOST_CHAPTERS:
        left_out = (
            f"{len(chapters) - MOST_CHAPTERS:,} older attempts: `trainrun explain` shows all."
        )
        yield Section(title="Older attempts", blocks=(TextLine(left_out),))
    yield from (part for part in others if not isinstance(part.blocks[0], Curves | Bars))


def _workers(details: RunDetails) -> Section:
    """The worker pods by node."""
    nodes: dict[str, list[str]] = {}
    for pod in details.pods:
        slot = "?" if pod.slot is None else str(pod.slot)
        phase = "" if pod.phase == "Running" else f" {pod.phase}"
        nodes.setdefault(pod.node or "no node yet", []).append(f"{slot}{phase}")
    rows = tuple(
        TableRow(cells=(node, str(len(slots)), ", ".join(slots)))
        for node, slots in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    )
    title = f"Workers, {formatting.counted(len(details.pods), 'pod')}"
    return Section(title=title, blocks=(Table(heads=("node", "workers", "slots"), rows=rows),))


def now_utc() -> datetime:
    """The time."""
    return datetime.now(UTC)
