"""A report: what a command shows, whatever its subject.

Layer: cli; pure. Each command builds one; `terminal` and `page` show it and know nothing of
commands. Texts are raw: the module that shows them strips and escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Tone = Literal["plain", "good", "bad", "note"]
Point = tuple[int, float]
"""Step and value; the value may be NaN or infinite."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A sentence, wrapped if it is too long."""

    text: str
    tone: Tone = "plain"
    at: datetime | None = None
    """When it happened."""
    deeper: bool = False
    """It adds to the line before it."""


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Lines that are shown as they are: output, stacks, a command to copy."""

    lines: tuple[str, ...]
    title: str = ""
    folded: bool = False
    """A page shows it on a click."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row of a table."""

    cells: tuple[str, ...]
    below: tuple[str, ...] = ()
    """Sentences about it."""
    tone: Tone = "plain"
    link: str = ""
    """Address of a page about it, escaped; a terminal leaves it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under heads."""

    heads: tuple[str, ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarKind:
    """What a part of a bar stands for."""

    name: str
    """A page has a color of this name."""
    sign: str
    """The character that draws it in a terminal."""
    words: str
    amount: str = ""
    """Total in all bars; empty: bars that do not add up have none, and a page lists no totals."""
    share: float = 0.0
    """Share of all bars, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a chart."""

    name: str
    parts: Mapping[str, float]
    """Length of each kind, from 0 to 1 of the width, in drawing order."""
    start: float = 0.0
    mark: str = ""
    section: str = ""
    """Id of the section about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars below each other on one scale, and the totals of their kinds."""

    bars: tuple[Bar, ...]
    kinds: tuple[BarKind, ...]
    scale: tuple[str, str]
    """Labels of its two ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Pictures of some metrics, each with the curves of the same runs."""

    names: tuple[str, ...]
    """Names of the runs."""
    pictures: Mapping[str, Mapping[int, Sequence[Point]]]
    """Metric, position of the run in `names`, points by step."""
    compared: bool = False
    """The first run is what the others are compared with."""
    along: str = "step"
    """What the horizontal axis counts."""


Block = TextLine | Preformatted | Table | Bars | Curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Some blocks under a title."""

    title: str
    blocks: tuple[Block, ...]
    at: datetime | None = None
    """When it begins; its lines are ordered by time."""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change."""

    kind: str
    """For programs."""
    text: str
    remedy: str = ""
    """What to do, if the text only says what is wrong."""
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    """The numbers behind it, for programs."""

    @property
    def data(self) -> dict[str, object]:
        """For programs."""
        return {"kind": self.kind, "text": self.text, "numbers": dict(self.numbers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendations:
    """What to do: shown at the end in a terminal, at the top of a page."""

    title: str
    items: tuple[Advice, ...]
    otherwise: str
    """Shown if there is no advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    name: str
    """Its subject: `Run llama`."""
    headline: str
    """The state of the subject, in a sentence."""
    tone: Tone = "plain"
    lead: tuple[TextLine | Preformatted, ...] = ()
    """What to read first."""
    facts: tuple[tuple[str, str], ...] = ()
    """Label and value; a fact without a label continues the one before."""
    remarks: tuple[str, ...] = ()
    """What could not be read, or is missing."""
    sections: tuple[Section, ...] = ()
    ending: tuple[str, ...] = ()
    """What to know at the end, one sentence each; lines that may be copied."""
    advice: Recommendations | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    """The same for programs, in the documented schema of the command."""
