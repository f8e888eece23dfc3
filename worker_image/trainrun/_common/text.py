"""Cleans texts from outside where they enter.

Layer: leaf, pure. Output of training processes and messages of kubelets appear in statuses, events
and terminals, where a code point that UTF-8 cannot encode must not cause errors. Cleaning a clean
text changes nothing and costs next to nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate

LONGEST_TEXT = 4096
"""Characters kept of a text; our own texts are shorter."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]\x0f?|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[()][0AB]"
)
"""Colours, cursor movements, titles, links and character sets of terminals."""
_LINE_ENDS = re.compile(r"\r\n?")
_HARMFUL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks
    r"\ud800-\udfff]"  # surrogates, which UTF-8 cannot encode
)


def cleaned(text: str) -> str:
    """The text with only code points that can be written and displayed anywhere, cut at
    LONGEST_TEXT.

    Other code points become U+FFFD; colours are removed.
    """
    text = shortened(text, LONGEST_TEXT)
    if text.isascii() and text.isprintable():  # nearly all
        return text
    text = _LINE_ENDS.sub("\n", without_escapes(text))
    return _HARMFUL.sub("\ufffd", text)


def without_escapes(text: str) -> str:
    """The text without terminal sequences for colours and cursor movement."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def one_line(text: str) -> str:
    """The text in one line, each line end and the white space around it replaced by a space: for
    events, tables and the like."""
    if "\n" not in text and text.isprintable():  # nearly all
        return text
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def shortened(text: str, longest: int) -> str:
    """At most `longest` characters of the text; ends with "…" if it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def cut(text: str, limit: int) -> str:
    """At most `limit` bytes of the text as JSON; ends with "…" if it was cut."""
    if room(text) <= limit:
        return text
    sizes = accumulate(room(char) for char in text)
    count = sum(size <= limit - room("…") for size in sizes)
    return f"{text[:count]}…"


def newest_of(
    lines: tuple[str, ...], limit: int, *, size: Callable[[str], int] = len
) -> tuple[str, ...]:
    """The last lines whose total size is at most `limit`."""
    sizes = accumulate(size(line) for line in reversed(lines))
    count = sum(taken <= limit for taken in sizes)
    return lines[len(lines) - count :]


def room(text: str) -> int:
    """Bytes of the text as JSON, without the quotes: training output is full of escapes."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2
