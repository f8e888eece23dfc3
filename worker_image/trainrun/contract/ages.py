"""What changes in a message although nothing happens: ages, remaining times, progress.

Layer: contract, pure, leaf. A field says so in its type, once; how a kept message grows old, and
which of two messages is news, follows from that.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

T = TypeVar("T")


class Passing(enum.Enum):
    """How a field changes by itself."""

    AGE = enum.auto()
    REMAINING = enum.auto()
    PROGRESS = enum.auto()


Age = Annotated[float, Passing.AGE]
"""Seconds since something happened, on the sender's clock when it sends."""
Remaining = Annotated[float, Passing.REMAINING]
"""A moment to come, such as a deadline, told as the seconds until then, on the sender's clock when
it sends."""
Changing = Annotated[T, Passing.PROGRESS]
"""Differs from message to message in an attempt that goes well."""


def aged(message: T, *, by: float) -> T:
    """The message as it would be sent `by` seconds later, if nothing has happened since."""

    def older(passing: Passing, value: Any, _empty: Any) -> Any:
        if value is None or passing is Passing.PROGRESS:
            return value
        return value + by if passing is Passing.AGE else max(0.0, value - by)

    return _changed(message, older)


def essence(message: T) -> T:
    """The message without what changes by itself: ages of 0, the rest as if it had not been sent.

    Two messages with the same essence say the same but for the time that has passed.
    """

    def plain(passing: Passing, value: Any, empty: Any) -> Any:
        return empty if passing is not Passing.AGE or value is None else 0.0

    return _changed(message, plain)


def passing(cls: type) -> dict[str, Passing]:
    """The fields of a message that change by themselves."""
    return {name: found for name, found, _ in _plan(cls) if found is not None}


Change = Callable[[Passing, Any, Any], Any]
"""From how a field changes, its value and what stands for an absent one, to its new value."""


def _changed(message: T, change: Change) -> T:
    if isinstance(message, tuple):
        return typing.cast("T", tuple(_changed(item, change) for item in message))
    if not dataclasses.is_dataclass(message) or isinstance(message, type):
        return message
    cls: type = type(message)  # mypy holds that a type[T] may be unhashable
    new = {}
    for name, found, empty in _plan(cls):
        value = getattr(message, name)
        if found is not None:
            new[name] = change(found, value, empty)
        elif value:  # most heartbeats have nothing in most of these fields
            new[name] = _changed(value, change)
    return dataclasses.replace(message, **new) if new else message


@functools.cache
def _plan(cls: type) -> tuple[tuple[str, Passing | None, Any], ...]:
    """The fields to look at: those that change by themselves, with what an absent one is, and those
    that hold messages with such fields (None)."""
    hints = typing.get_type_hints(cls, include_extras=True)
    plan: list[tuple[str, Passing | None, Any]] = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        found = _passing(hint)
        if found is not None:
            plan.append((field.name, found, _empty(field, hint)))
        elif any(map(_moves, _parts(hint))):
            plan.append((field.name, None, None))
    return tuple(plan)


def _moves(part: Any) -> bool:
    return dataclasses.is_dataclass(part) and bool(_plan(typing.cast("type", part)))


def _parts(hint: Any) -> list[Any]:
    inner = [part for arg in typing.get_args(hint) for part in _parts(arg)]
    return [hint, *inner]


def _passing(hint: Any) -> Passing | None:
    marks = (mark for part in _parts(hint) for mark in getattr(part, "__metadata__", ()))
    return next((mark for mark in marks if isinstance(mark, Passing)), None)


def _empty(field: dataclasses.Field[Any], hint: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return typing.get_args(hint)[0]()
