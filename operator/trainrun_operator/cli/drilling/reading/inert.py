"""Pickles read without running anything of them: each class or function that a pickle names becomes
a record of what it was given.

Layer: cli.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import IO, Any

Persistent = Callable[[Any], object]
"""What stands for an object that is stored outside the pickle, by its id."""


class Ordered(dict[object, object]):
    """In place of an OrderedDict: a state_dict has attributes besides, which mean nothing here."""


PLAIN: dict[str, Callable[..., object]] = {
    "collections.OrderedDict": Ordered,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "__builtin__.set": set,
    "__builtin__.frozenset": frozenset,
}
"""Classes that only hold what they are given."""


class Inert:
    """In place of an object of any class, or of what any function would return."""

    NAME = ""

    def __new__(cls, *args: object, **_named: object) -> Inert:
        """Take note of the arguments."""
        made = object.__new__(cls)
        made.args, made.state = args, None
        made.added, made.items = [], {}
        return made

    args: tuple[object, ...]
    added: list[object]
    """As to a list."""
    items: dict[object, object]
    """As to a dict."""
    state: object

    def __init__(self, *_args: object, **_named: object) -> None:
        """Everything is done in `__new__`, which a pickle may call alone."""

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value

    def append(self, value: object) -> None:
        """As a list does."""
        self.added.append(value)

    add = append


@cache
def inert(name: str) -> type[Inert]:
    """The stand-in of this class or function."""
    return type(name, (Inert,), {"NAME": name})


def read_pickles(
    file: IO[bytes],
    *,
    size: int,
    persistent: Persistent | None = None,
    known: Mapping[str, Callable[..., object]] = PLAIN,
) -> Iterator[object]:
    """The values of a file that holds pickles and nothing else; `known`: what is called after all,
    by its name. Raises what a damaged file raises, and UnpicklingError for an object that is stored
    outside while `persistent` is None."""

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Callable[..., object]:
            full = f"{module}.{name}"
            return known.get(full) or inert(full)

        def persistent_load(self, pid: object) -> object:
            if persistent is None:
                raise pickle.UnpicklingError(f"an object outside the pickle: {pid!s:.40}")
            return persistent(pid)

    while file.tell() < size:
        yield Reader(file).load()
