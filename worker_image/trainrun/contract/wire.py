"""Transport of messages between agent and operator: paths, size limits, dataclasses as JSON.

Layer: contract. Invariants: unknown fields are ignored (a newer peer may send more), missing fields
take their defaults (an older peer may send less), values equal to their default are not sent
(except the version and the kind), and only finite numbers are sent as JSON numbers (`metrics`
encodes the others). `worlds/kubernetes/fetch.py` repeats AGENT_PATH: it runs before anything can be
imported.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from trainrun._common.text import cleaned

HEARTBEAT_PATH = "/v1/heartbeat"
"""POST to the operator: an `AgentState`; the response is an `Answer`."""
OPERATORS_HEADER = "TrainRun-Operators"
"""Header of all responses, whether this operator leads or not: `address:port` of all operators of
the installation, the leader first, separated by commas. Absent: they are not known."""
AGENT_PATH = "/v1/agent"
"""GET from the operator: the agent as a zip file."""
CHECKPOINTS_PATH = "/v1/checkpoints/"
"""GET from an agent of the same node: prefix of `<name>/<file>` of a checkpoint."""
STAGED_PATH = "/v1/staged/"
"""GET from an agent of another node: prefix of `<checkpoint>`, which lists the staged part of its
worker, and of `<checkpoint>/<rank>/<file>`."""

LARGEST_HEARTBEAT = 256 * 1024
"""Maximum bytes of an `AgentState` as JSON, for both the agent and the operator."""
LARGEST_STORY_ENTRY = 16 * 1024
"""Maximum bytes of an entry of the run's story."""
LARGEST_INTEGER = 2**53
"""Largest integer that any JSON reader represents exactly."""
LARGEST_NUMBER = 1e10
"""Maximum seconds: 300 years."""


def checked(value: Any) -> Any:
    """Check a received scalar; cleans a text. Raises ValueError, naming the expected range, for a
    number that is out of range or not finite."""
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST_NUMBER):
        raise ValueError(f"a finite number of seconds up to {LARGEST_NUMBER:.0e}")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError(f"an integer up to {LARGEST_INTEGER}")
    return value


# ------------------------------------------------------------ dataclasses <-> JSON

VERSION = 1
"""Version of `AgentState` and `Answer`; the operator refuses messages of another version."""

T = TypeVar("T")

Check = Callable[[Any], Any]
"""Maps a received scalar to the value to use; raises ValueError naming the expected value."""

ALWAYS_SENT = ("kind", "version")
"""Fields that determine how to read the rest."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose values are their own JSON form."""


class MalformedMessage(ValueError):
    """An unreadable message: names the field, the value and the expected value."""


def parsed(text: str | bytes) -> object:
    """Parse JSON. Raises MalformedMessage."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"not readable JSON: {error}") from error


def encode(message: object) -> Any:
    """Return the JSON-safe form of a dataclass, tuple, mapping or scalar."""
    if type(message) in _PLAIN:
        return message
    if isinstance(message, (tuple, list)):
        return [encode(item) for item in message]
    if isinstance(message, dict):
        return {key: encode(item) for key, item in message.items()}
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        return _encoded(message)
    return message


def _encoded(message: object) -> dict[str, Any]:
    cls: type = type(message)  # mypy holds that a type[object] may be unhashable
    fields = {}
    for name, default in _sent(cls):
        value = getattr(message, name)
        # The first comparison is almost free and holds for most fields.
        if value is default or (type(value) is type(default) and value == default):
            continue
        fields[name] = value if type(value) in _PLAIN else encode(value)
    return fields


def unchecked(value: Any) -> Any:
    """The check for messages that our own side wrote: accepts all values."""
    return value


def decode(cls: type[T], data: object, *, check: Check = unchecked) -> T:
    """Read a `cls` from its JSON form; `check` is called for each scalar.

    Raises MalformedMessage if a required field is missing or a value has the wrong type.
    """
    try:
        return typing.cast("T", _reader(typing.cast("typing.Hashable", cls))(data, check))
    except _Wrong as wrong:
        path = "".join(wrong.path).lstrip(".")
        raise MalformedMessage(f"{path or cls.__name__}: {wrong}") from wrong


class _Wrong(Exception):
    """A wrong value. Its path is built while the exception propagates, so good values cost
    nothing."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []

    def at(self, place: str) -> _Wrong:
        """Prepend a part of the path: `.field` or `[item]`."""
        self.path.insert(0, place)
        return self


_Reader = Callable[[Any, Check], Any]


@functools.cache
def _reader(hint: Any) -> _Reader:
    """The reader of values of this type; cached, since the same types are read all the time."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if origin is tuple:
        return _list(_reader(args[0]))
    if origin is dict:
        return _mapping(_reader(args[1]))
    if origin is typing.Literal:
        return _literal(args)
    return _object(hint) if dataclasses.is_dataclass(hint) else _scalar(hint)


def _object(cls: Any) -> _Reader:
    hints = typing.get_type_hints(cls)
    fields = [
        (field.name, _reader(hints[field.name]), default_of(field) is dataclasses.MISSING)
        for field in dataclasses.fields(cls)
    ]

    def read(data: Any, check: Check) -> Any:
        _expect(isinstance(data, dict), "an object", data)
        values = {}
        for name, reader, required in fields:
            if name in data:
                try:
                    values[name] = reader(data[name], check)
                except _Wrong as wrong:
                    raise wrong.at(f".{name}") from None
            elif required:
                raise _Wrong(f"field {name} is missing")
        return cls(**values)

    return read


def _list(reader: _Reader) -> _Reader:
    def read(data: Any, check: Check) -> tuple[Any, ...]:
        _expect(isinstance(data, list), "a list", data)
        items = []
        for number, item in enumerate(data):
            try:
                items.append(reader(item, check))
            except _Wrong as wrong:
                raise wrong.at(f"[{number}]") from None
        return tuple(items)

    return read


def _mapping(reader: _Reader) -> _Reader:
    def read(data: Any, check: Check) -> dict[str, Any]:
        _expect(isinstance(data, dict), "an object", data)
        items = {}
        for key, item in data.items():
            try:
                items[key] = reader(item, check)
            except _Wrong as wrong:
                raise wrong.at(f".{key}") from None
        return items

    return read


def _literal(choices: tuple[Any, ...]) -> _Reader:
    def read(data: Any, _check: Check) -> Any:
        _expect(data in choices, f"one of {', '.join(map(str, choices))}", data)
        return data

    return read


def _union(args: tuple[Any, ...]) -> _Reader:
    """A reader of an optional value, or of one of several messages distinguished by `kind`."""
    optional = type(None) in args
    choices = [arg for arg in args if arg is not type(None)]
    only, several = _reader(choices[0]), choices if len(choices) > 1 else ()
    kinds = {arg: typing.get_args(typing.get_type_hints(arg)["kind"]) for arg in several}
    readers = {kind: _reader(arg) for arg, names in kinds.items() for kind in names}

    def read(data: Any, check: Check) -> Any:
        if data is None and optional:
            return None
        if not readers:
            return only(data, check)
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in readers:
            raise _Wrong(f"unknown kind {kind!r}")
        return readers[kind](data, check)

    return read


def _scalar(kind: Any) -> _Reader:
    if kind is Any:
        return lambda data, _check: data
    name = {float: "a number", int: "an integer"}.get(kind, f"a {kind.__name__}")
    # In Python, unlike JSON, a bool is an int.
    fits, refused = ((int, float), bool) if kind is float else (kind, bool if kind is int else ())

    def read(data: Any, check: Check) -> Any:
        _expect(isinstance(data, fits) and not isinstance(data, refused), name, data)
        try:
            return check(float(data) if kind is float else data)
        except (ValueError, OverflowError) as error:
            raise _Wrong(f"expected {error}, got {data!r:.80}") from error

    return read


@functools.cache
def _sent(cls: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a message, each with the value that is not sent (none: MISSING)."""
    return tuple(
        (field.name, dataclasses.MISSING if field.name in ALWAYS_SENT else default_of(field))
        for field in dataclasses.fields(cls)
    )


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The value of an absent field; MISSING if it is required."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _expect(holds: bool, wanted: str, value: object) -> None:
    if not holds:
        raise _Wrong(f"expected {wanted}, got {value!r:.80}")
