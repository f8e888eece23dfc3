"""JSON of the API server, however deep its users have nested it.

Layer: kube, leaf. The API server takes objects of 10,000 levels where a schema is open. Python's
parser gives up before, and with that one object a whole list, or watch, could not be read.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 300
"""Levels that are kept of what has too many: more than any object that can be used, so that whoever
reads this one refuses it."""

TEXT = rb'[^"\\]*+(?:\\.[^"\\]*+)*+("?)'
"""The rest of a string, perhaps without its end. It never goes back, for which one state would be
kept for each of a million escapes."""
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
