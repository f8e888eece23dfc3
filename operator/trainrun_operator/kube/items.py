"""The objects of a list, one after the other, while its text still comes in.

Layer: kube, leaf; pure. A page of twenty objects is thirty megabytes if their users want that, and
some ten times as much once it is parsed: so one object is parsed at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainrun_operator.kube.decoding import TEXT, TOKEN, decoded

_GOES_ON = re.compile(TEXT, re.DOTALL)


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
        self._around: list[bytes] = []
        """The list without its objects."""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """The text of each object that is whole now."""
        text, begin = self._text + part, 0
        end, at = len(text), self._at
        if self._open:
            rest = _GOES_ON.match(text, at)
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
                        self._around.append(text[begin : token.end()])
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
        return decoded(b"".join([*self._around, self._text]))
