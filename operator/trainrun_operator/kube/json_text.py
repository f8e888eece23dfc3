"""Streaming parser for the API server's JSON: any depth, one list item at a time, line by line.

Layer: kube, leaf. The API server accepts objects of 10,000 levels where a schema is open.
Python's parser fails earlier, and one such object would make a whole list or watch unreadable.
A page of twenty objects can be thirty megabytes, and some ten times as much once parsed: so one
object is parsed at a time, while the text still arrives. A line of a watch is one event of any
length (a pod can exceed 128 kB, where aiohttp's own line reader fails); an unfinished line at the
end is not an event.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

DEEPEST = 300
"""Levels kept of a value with too many: more than any usable object has, so that the reader of this
one refuses it."""

TEXT = rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)'
"""The rest of a string, perhaps without its end. It never backtracks: that would keep a state for
each of a million escapes."""
STRING_REST = re.compile(TEXT, re.DOTALL)
TOKEN = re.compile(rb'"' + TEXT + rb"|[\[\]{}]", re.DOTALL)
"""A string, the last one perhaps without its end; or a bracket outside all strings."""


def decoded(text: bytes) -> Any:
    """The value; if it has too many levels for the parser, its deep parts are empty.

    Raises ValueError if the text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_shallow(text))


def _shallow(text: bytes) -> bytes:
    """The text without everything deeper than DEEPEST levels."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in TOKEN.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST:
                kept.append(text[begin : token.end()])
                begin = len(text)
        elif token[0] in (b"]", b"}"):
            if depth == DEEPEST:
                begin = token.start()
            depth -= 1
    return b"".join([*kept, text[begin:]])


class Items:
    """Splits the text of a list into objects; takes it in parts of any size."""

    def __init__(self) -> None:
        self._text = b""
        """Unfinished text: at most one object, and the newest part."""
        self._at = 0
        """The position in `_text` up to which it was scanned."""
        self._open = False
        """Whether that position is within a string."""
        self._depth = 0
        self._name = b""
        """The newest field name of the list itself."""
        self._inside = False
        """Whether we are between the brackets of `items`."""
        self._envelope: list[bytes] = []
        """The list without its objects."""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """The text of each object that is now complete."""
        text, begin = self._text + part, 0
        end, at = len(text), self._at
        if self._open:
            rest = STRING_REST.match(text, at)
            assert rest is not None, "it matches every text"
            at, self._open = rest.end(), not rest[1]
            if self._open:
                self._text, self._at = text, at
                return
        for token in TOKEN.finditer(text, at):
            match token[0][:1]:
                case b'"' if not token[1]:
                    self._open = self._depth > 1  # a name of the list itself is needed whole
                    end = token.end() if self._open else token.start()
                    break
                case b'"':
                    self._name = token[0] if self._depth == 1 else self._name
                case b"{" | b"[":
                    self._depth += 1
                    if self._inside and self._depth == 3:
                        begin = token.start()
                    elif self._depth == 2 and token[0] == b"[" and self._name == b'"items"':
                        self._inside = True
                        self._envelope.append(text[begin : token.end()])
                case _:
                    self._depth -= 1
                    if self._inside and self._depth == 2:
                        yield text[begin : token.end()]
                        begin = token.end()
                    elif self._inside and self._depth == 1:
                        self._inside, begin = False, token.start()
        self._text, self._at = text[begin:], end - begin

    def rest(self) -> Any:
        """The list without its objects, after the last part. Raises ValueError if not JSON."""
        return decoded(b"".join([*self._envelope, self._text]))


async def json_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any]]:
    """Every complete line as JSON. Raises ValueError for a line that is not JSON."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join([*parts, end])
            parts.clear()
            if line.strip():
                yield decoded(line)
        parts.append(rest)
        # A flood of events must not block the rest of the operator.
        await asyncio.sleep(0)


async def text_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Every line without its line end, including an unfinished last one."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        await asyncio.sleep(0)
    if rest:
        yield rest.decode(errors="replace")
