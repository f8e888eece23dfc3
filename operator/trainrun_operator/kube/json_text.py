"""JSON text of the API server: however deep, one object of a list after the other, line by line.

Layer: kube, leaf. The API server takes objects of 10,000 levels where a schema is open.
Python's parser gives up before, and with that one object a whole list, or watch, could not be read.
A page of twenty objects is thirty megabytes if their users want that, and some ten times as much
once it is parsed: so one object is parsed at a time, while the text still comes in. A line of a
watch is one event and may be of any length (a pod can have more than 128 kB, where aiohttp's own
reader of lines gives up); an unfinished line at its end is no event.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

DEEPEST = 300
"""Levels that are kept of what has too many: more than any object that can be used, so that whoever
reads this one refuses it."""

TEXT = rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)'
"""The rest of a string, perhaps without its end. It never goes back, for which one state would be
kept for each of a million escapes."""
STRING_REST = re.compile(TEXT, re.DOTALL)
TOKEN = re.compile(rb'"' + TEXT + rb"|[\[\]{}]", re.DOTALL)
"""A string, the last one perhaps without its end; or a bracket outside of any."""


def decoded(text: bytes) -> Any:
    """The value; where it has too many levels for the parser, its deep parts are empty.

    Raises ValueError for what is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_shallow(text))


def _shallow(text: bytes) -> bytes:
    """The same without what lies inside of DEEPEST mappings and lists."""
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
    """Takes the text of a list in parts of any size."""

    def __init__(self) -> None:
        self._text = b""
        """What is not dealt with yet: at most one object, and the newest part."""
        self._at = 0
        """How far that was looked at."""
        self._open = False
        """Whether that is within a string."""
        self._depth = 0
        self._name = b""
        """Of the newest field of the list itself."""
        self._inside = False
        """Between the brackets of `items`."""
        self._envelope: list[bytes] = []
        """The list without its objects."""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """The text of each object that is whole now."""
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
        """The list without its objects, once all was fed. Raises ValueError if that is no JSON."""
        return decoded(b"".join([*self._envelope, self._text]))


async def json_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any]]:
    """Every whole line as JSON. Raises ValueError for a line that is none."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join([*parts, end])
            parts.clear()
            if line.strip():
                yield decoded(line)
        parts.append(rest)
        # A flood of events must not keep the rest of the operator waiting.
        await asyncio.sleep(0)


async def text_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Every line without its end, an unfinished one at the end too."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        await asyncio.sleep(0)
    if rest:
        yield rest.decode(errors="replace")
