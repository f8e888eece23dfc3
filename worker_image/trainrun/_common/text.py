"""Texts from outside, made harmless where they enter.

Layer: leaf, pure. Whatever a training process prints or a kubelet quotes ends up in statuses,
events and terminals: a code point that UTF-8 cannot hold must not stop anybody there. Cleaning what
is clean changes nothing and costs next to nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate

LONGEST_TEXT = 4096
"""Characters of a text that are kept; what ours send is shorter."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]\x0f?|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[()][0AB]"
)
"""Colours, cursor movements, titles, links and character sets of terminals."""
_LINE_ENDS = re.compile(r"\r\n?")
_HARMFUL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of writing
    r"\ud800-\udfff]"  # halves of characters: UTF-8 has none
)


def cleaned(text: str) -> str:
    """The text in code points that can be written and shown anywhere, cut at LONGEST_TEXT.

    What is left out within a line is shown as U+FFFD; colours go without a trace.
    """
    text = shortened(text, LONGEST_TEXT)
    if text.isascii() and text.isprintable():  # nearly all
        return text
    text = _LINE_ENDS.sub("\n", without_escapes(text))
    return _HARMFUL.sub("\ufffd", text)


def without_escapes(text: str) -> str:
    """The text without what colours it or moves the cursor of a terminal."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def one_line(text: str) -> str:
    """The text with a space in the place of each line end and what surrounds it: for events, tables
    and whatever else takes one line."""
    if "\n" not in text and text.isprintable():  # nearly all
        return text
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def shortened(text: str, longest: int) -> str:
    """At most so many characters of the text, with a sign where something is missing."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def cut(text: str, limit: int) -> str:
    """At most so many bytes of the text as JSON, with a sign where something is missing."""
    if room(text) <= limit:
        return text
    sizes = accumulate(room(char) for char in text)
    kept = sum(size <= limit - room("…") for size in sizes)
    return f"{text[:kept]}…"


def newest_of(
    lines: tuple[str, ...], limit: int, *, size: Callable[[str], int] = len
) -> tuple[str, ...]:
    """The last lines that take so much together at most."""
    sizes = accumulate(size(line) for line in reversed(lines))
    kept = sum(taken <= limit for taken in sizes)
    return lines[len(lines) - kept :]


def room(text: str) -> int:
    """Bytes as JSON, inside the quotes: output of training processes is full of escapes."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2
