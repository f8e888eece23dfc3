"""Frozen dataclasses <-> JSON-safe dictionaries, for the messages in `trainrun.protocol`.

Invariants: unknown fields are ignored (a newer peer may send more), missing fields take their
defaults (an older peer may send less), values equal to their default are not sent (but for the
version and the kind), and only finite numbers travel bare (`trainrun.metrics` wraps the others).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")

ALWAYS_SENT = ("kind", "version")
"""Fields that tell the reader how to read the rest."""


class MalformedMessage(ValueError):
    """A message that cannot be read: names the field, the value and what was expected."""


def encode(message: object) -> Any:
    """Return the JSON-safe form of a dataclass, tuple, mapping or scalar."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        return {
            field.name: encode(value)
            for field in dataclasses.fields(message)
            if not _is_default(field, value := getattr(message, field.name))
            or field.name in ALWAYS_SENT
        }
    if isinstance(message, (tuple, list)):
        return [encode(item) for item in message]
    if isinstance(message, dict):
        return {key: encode(item) for key, item in message.items()}
    return message


def decode(cls: type[T], data: object, *, path: str = "") -> T:
    """Read a `cls` from its JSON form.

    Raises MalformedMessage where a required field is missing or a value has the wrong type.
    """
    if not isinstance(data, dict):
        raise MalformedMessage(f"{path or cls.__name__}: expected an object, got {data!r:.80}")
    kind: type = cls  # mypy holds that a type[T] may be unhashable
    hints = _hints(kind)
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in data:
            where = f"{path}.{field.name}" if path else field.name
            values[field.name] = _read(hints[field.name], data[field.name], where)
        elif not _has_default(field):
            raise MalformedMessage(f"{path or cls.__name__}: field {field.name} is missing")
    return cls(**values)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return (
        field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    )


def _is_default(field: dataclasses.Field[Any], value: object) -> bool:
    if field.default is not dataclasses.MISSING:
        return type(value) is type(field.default) and value == field.default
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return False


def _read(hint: Any, value: Any, path: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        choices = [arg for arg in args if arg is not type(None)]
        return _read(_choose(choices, value, path), value, path)
    if origin is tuple:
        _expect(isinstance(value, list), path, "a list", value)
        return tuple(_read(args[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        _expect(isinstance(value, dict), path, "an object", value)
        return {str(key): _read(args[1], item, f"{path}.{key}") for key, item in value.items()}
    if origin is typing.Literal:
        _expect(value in args, path, f"one of {', '.join(map(str, args))}", value)
        return value
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), value, path=path)
    return _scalar(hint, value, path)


def _choose(choices: list[Any], value: Any, path: str) -> Any:
    """Pick the member of a union: by its `kind` for messages, the only other one otherwise."""
    if len(choices) == 1:
        return choices[0]
    kind = value.get("kind") if isinstance(value, dict) else None
    for choice in choices:
        if dataclasses.is_dataclass(choice) and kind in typing.get_args(_hints_of_kind(choice)):
            return choice
    raise MalformedMessage(f"{path}: unknown kind {kind!r}")


def _hints_of_kind(choice: Any) -> Any:
    return _hints(choice)["kind"]


def _scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is float:
        _expect(isinstance(value, (int, float)) and value is not True, path, "a number", value)
        return float(value)
    if hint is int:
        _expect(isinstance(value, int) and not isinstance(value, bool), path, "an integer", value)
    elif hint in (str, bool):
        _expect(isinstance(value, hint), path, f"a {hint.__name__}", value)
    return value


def _expect(holds: bool, path: str, wanted: str, value: object) -> None:
    if not holds:
        raise MalformedMessage(f"{path}: expected {wanted}, got {value!r:.80}")
