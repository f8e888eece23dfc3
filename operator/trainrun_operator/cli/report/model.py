"""A report: what a command has to tell, whatever it is about.

Layer: cli; pure. The room of each command gathers one; `terminal` and `page` show it and know
nothing of commands. Texts are as they were found: whoever shows them strips and escapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Tone = Literal["plain", "good", "bad", "note"]
Point = tuple[int, float]
"""Step and value; the value may be no finite number."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A sentence, wrapped where it is too long."""

    text: str
    tone: Tone = "plain"
    at: datetime | None = None
    """When that happened."""
    deeper: bool = False
    """It tells more of the one before."""


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Lines that are shown as they are: output, stacks, a command to copy."""

    lines: tuple[str, ...]
    title: str = ""
    folded: bool = False
    """A page shows it when it is asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """Of a table."""

    cells: tuple[str, ...]
    below: tuple[str, ...] = ()
    """Sentences about it."""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under heads."""

    heads: tuple[str, ...]
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarKind:
    """What parts of bars are made of."""

    name: str
    """A page has a color of this name."""
    sign: str
    """One character, which a terminal draws it with."""
    words: str
    amount: str = ""
    """In all bars."""
    share: float = 0.0
    """Of all bars, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One line of a picture."""

    name: str
    parts: Mapping[str, float]
    """How long each kind is, from 0 to 1 of the width, in the order in which they are drawn."""
    start: float = 0.0
    mark: str = ""
    section: str = ""
    """The section that tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars below each other over one scale, and the sums of what they are made of."""

    bars: tuple[Bar, ...]
    kinds: tuple[BarKind, ...]
    scale: tuple[str, str]
    """What stands at its ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Pictures of some metrics, each with the curves of the same runs."""

    names: tuple[str, ...]
    """Of the runs."""
    pictures: Mapping[str, Mapping[int, Sequence[Point]]]
    """Metric, position of the run in `names`, points by step."""
    compared: bool = False
    """The first run is what the others are compared with."""


Block = TextLine | Preformatted | Table | Bars | Curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Some blocks under a title."""

    title: str
    blocks: tuple[Block, ...]
    at: datetime | None = None
    """When it begins; its lines are by time."""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change."""

    kind: str
    """For programs."""
    text: str
    remedy: str = ""
    """What to do, where the text says only what is wrong."""
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    """Behind it, for programs."""

    @property
    def data(self) -> dict[str, object]:
        """For programs."""
        return {"kind": self.kind, "text": self.text, "numbers": dict(self.numbers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendations:
    """What to do about all that: at the end of a terminal, at the top of a page."""

    title: str
    items: tuple[Advice, ...]
    otherwise: str
    """What is said where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All of it."""

    name: str
    """What it is about: `Run llama`."""
    headline: str
    """How that stands, in a sentence."""
    tone: Tone = "plain"
    lead: tuple[TextLine | Preformatted, ...] = ()
    """What to read first."""
    facts: tuple[tuple[str, str], ...] = ()
    """In a word or two, and what it is; without a word it goes on with the one before."""
    remarks: tuple[str, ...] = ()
    """What could not be read, or is missing."""
    sections: tuple[Section, ...] = ()
    ending: tuple[str, ...] = ()
    """What to know at last, a sentence each; lines that may be copied."""
    advice: Recommendations | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    """The same for programs, as documented for the command."""
