"""The documents of this repository and what stands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
)

SIDES = (ROOT / "operator", ROOT / "worker_image")
PLACES = (ROOT, *SIDES, SIDES[0] / "trainrun_operator", SIDES[1] / "trainrun")
"""What a path may be relative to."""

NAMED = re.compile(r"`(\w+)` in `([^`]+\.py)`")
"""How a document names something of the code: `name` in `path`."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\w+\.(?:py|yaml))\n")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        """The file that its first line names; empty: a fragment."""
        match = _NAME.match(self.text)
        return match[1] if match else ""

    def __str__(self) -> str:
        return f"{self.document.name}:{self.name or self.text.splitlines()[0][:40]}"


def blocks(document: Path) -> list[Block]:
    return [Block(document, m[1], m[2]) for m in _BLOCK.finditer(document.read_text())]


def all_blocks(language: str) -> list[Block]:
    return [b for document in DOCUMENTS for b in blocks(document) if b.language == language]


def commands_below(document: Path, heading: str) -> list[str]:
    """The lines of the first block of commands below a heading."""
    text = document.read_text().partition(f"{heading}\n")[2]
    match = next(m for m in _BLOCK.finditer(text) if not m[1])
    return match[2].splitlines()


def tables(text: str) -> list[list[list[str]]]:
    """Every table as rows of cells, heads left out."""
    found: list[list[list[str]]] = []
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
        elif rows:
            found.append(rows[2:])
            rows = []
    return found


def find(name: str) -> Path:
    """The file that a document calls so."""
    return next(place / name for place in PLACES if (place / name).exists())


def anchor_of(heading: str) -> str:
    """The anchor of a heading (without its #s), as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def heading_of(text: str, anchor: str) -> str:
    """The heading, with its #s, that an anchor leads to."""
    heads = re.findall(r"^#+ .*$", text, re.MULTILINE)
    return next(head for head in heads if anchor_of(head.lstrip("# ")) == anchor)


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of the same or a higher level."""
    level = heading.split(" ", maxsplit=1)[0]
    begin = text.index(f"{heading}\n")
    rest = text[begin + len(heading) :]
    end = re.search(rf"^#{{1,{len(level)}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest
