"""Values as entries: a digest for each leaf, by its path. Equal digests mean equal values; the
order of dicts and sets, tuples in place of lists, and which objects are shared mean nothing.

Layer: cli; pure.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol, runtime_checkable

from trainrun_operator.cli.drilling.reading.inert import Inert

DEEPEST = 16
"""Levels of nesting that have paths of their own."""
MOST = 200_000
"""Entries of one file."""
PLAIN = re.compile(
    r"(numpy|_codecs|collections|datetime|pathlib|decimal|fractions|builtins|torch\._utils)\b"
    r"|torch\.\w+$"
)
"""Classes and functions whose objects are their values. Another class may keep what it likes, such
as a cache: of its objects only tensors and arrays are compared."""


@runtime_checkable
class Leaf(Protocol):
    """A value that knows its own digest, such as a tensor."""

    def canonical(self) -> bytes:
        """The same for equal values."""


def entries(value: object, at: str = "") -> Iterator[tuple[str, bytes]]:
    """(path, digest) of each leaf. Raises ValueError where there are too many, and what a leaf
    raises."""
    digests = Digests()
    for number, (path, leaf) in enumerate(_leaves(value, at, around=(), own=False)):
        if number >= MOST:
            raise ValueError(number)
        yield path, digests.of(leaf)


def _leaves(
    value: object, at: str, *, around: tuple[int, ...], own: bool
) -> Iterator[tuple[str, object]]:
    """`around`: ids of what it is in; `own`: one of that is of a class that is not plain."""
    own = own or _is_own(value)
    if id(value) in around:
        return
    inside = _inside(value, own=own) if len(around) < DEEPEST else None
    if inside:
        for name, each in inside:
            path = f"{at}.{name}" if at else name
            yield from _leaves(each, path, around=(*around, id(value)), own=own)
    elif not own or isinstance(value, Leaf | Inert):
        yield at, value


def _is_own(value: object) -> bool:
    return isinstance(value, Inert) and not PLAIN.match(value.NAME)


class Digests:
    """Of the values of one file."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}
        """By id, with the object, so that no other one gets its id. Empty digest: begun."""

    def of(self, value: object) -> bytes:
        """The digest of a value with all that is in it."""
        if value is None or isinstance(value, bool | str | int | float | complex):
            return blake2b(_plain(value), digest_size=16).digest()
        known = self._known.get(id(value))
        if known is None:
            self._known[id(value)] = (value, b"")  # met again inside itself, it is a cycle
            found = blake2b(b"".join(self._parts(value)), digest_size=16).digest()
            self._known[id(value)] = (value, found)
            return found
        return known[1]

    def _parts(self, value: object) -> Iterator[bytes]:
        match value:
            case bytes() | bytearray():
                yield b"bytes %d %d" % (len(value), zlib.crc32(value))
            case list() | tuple():
                yield b"list"
                yield from map(self.of, value)
            case set() | frozenset():
                yield b"set"
                yield from sorted(map(self.of, value))
            case dict():
                yield b"dict"
                yield from sorted(self.of(k) + self.of(v) for k, v in value.items())
            case Inert():
                yield value.NAME.encode()
                yield from map(self.of, (value.args, value.added, value.items, value.state))
            case Leaf():
                yield value.canonical()
            case _:  # a class or function
                yield str(getattr(value, "NAME", "") or getattr(value, "__name__", "")).encode()


def _plain(value: object) -> bytes:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return repr(value).encode()


def _inside(value: object, *, own: bool) -> list[tuple[str, object]] | None:
    """The named parts of a value that has any; None: it is a leaf."""
    match value:
        case dict():
            return [(f"{key!s:.60}", each) for key, each in value.items()]
        case list() | tuple() if any(isinstance(it, list | tuple | dict | Inert) for it in value):
            return [(str(number), each) for number, each in enumerate(value)]
        case Inert() if own and _is_own(value):
            parts = (value.args, value.added, value.items)
            state = value.state if isinstance(value.state, dict) else {"state": value.state}
            return [*(_inside(state, own=own) or []), *(("", it) for it in parts)]
        case _:
            return None
