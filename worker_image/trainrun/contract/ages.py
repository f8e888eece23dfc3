"""Stored messages: copies, aging, and whether a message is news compared with another.

Layer: contract, pure. Ages, remaining times and progress change without an event. A field declares
that once, in its type; how a stored message ages, and whether a message is news, follows from that.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Annotated, Any, TypeVar, cast

from trainrun.contract.wire import default_of

T = TypeVar("T")


class Passing(enum.Enum):
    """How a field changes by itself."""

    AGE = enum.auto()
    REMAINING = enum.auto()
    PROGRESS = enum.auto()


Age = Annotated[float, Passing.AGE]
"""Seconds since something happened, on the sender's clock when it sends."""
Remaining = Annotated[float, Passing.REMAINING]
"""A future moment, such as a deadline, as the seconds until then, on the sender's clock when it
sends."""
Changing = Annotated[T, Passing.PROGRESS]
"""Differs from message to message in a healthy attempt."""


def aged(message: T, *, by: float) -> T:
    """The message as it would be sent `by` seconds later if nothing happened in between."""

    def older(value: Any) -> Any:
        return aged(value, by=by)

    plan = _plan_of(message)
    new = {name: value + by for name, value in _present(message, plan.ages)}
    new |= {name: max(0.0, value - by) for name, value in _present(message, plan.remaining)}
    return _with(message, plan, new, older)


def essence(message: T) -> T:
    """The message without fields that change by themselves: ages are 0, the others have defaults.

    Two messages with the same essence differ only by the time that has passed.
    """
    plan = _plan_of(message)
    new = {name: 0.0 for name, _ in _present(message, plan.ages)}
    plain: Callable[[Any], Any] = essence
    return _with(message, plan, new | plan.unsent, plain)


def passing(cls: Any) -> dict[str, Passing]:
    """The fields of a message that change by themselves."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = {field.name: _passing(hints[field.name]) for field in dataclasses.fields(cls)}
    return {name: kind for name, kind in found.items() if kind is not None}


def _present(message: object, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The present fields among these names, with their values."""
    for name in names:
        if (value := getattr(message, name)) is not None:
            yield name, value


def _with(message: T, plan: _Plan, new: dict[str, Any], inner: Callable[[Any], Any]) -> T:
    """The message with these fields replaced, and with `inner` applied to the messages in it."""
    for name in plan.holding:
        if value := getattr(message, name):  # most heartbeats have nothing in most of these fields
            several = isinstance(value, tuple)
            new[name] = tuple(map(inner, value)) if several else inner(value)
    return changed(message, **new) if new else message


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The fields of a message that change by themselves or may contain such fields."""

    ages: tuple[str, ...]
    remaining: tuple[str, ...]
    unsent: dict[str, Any]
    """Default values of those that are not ages."""
    holding: tuple[str, ...]
    """Fields that contain messages with such fields."""


def _plan_of(message: object) -> _Plan:
    cls: type = type(message)  # mypy holds that a type[T] may be unhashable
    return _plan(cls)


_NOTHING = _Plan(ages=(), remaining=(), unsent={}, holding=())


@functools.cache
def _plan(cls: Any) -> _Plan:
    if not dataclasses.is_dataclass(cls):  # a field need not contain messages
        return _NOTHING
    hints = typing.get_type_hints(cls, include_extras=True)
    fields, kinds = {field.name: field for field in dataclasses.fields(cls)}, passing(cls)
    others = [name for name, kind in kinds.items() if kind is not Passing.AGE]
    return _Plan(
        ages=tuple(name for name, kind in kinds.items() if kind is Passing.AGE),
        remaining=tuple(name for name, kind in kinds.items() if kind is Passing.REMAINING),
        unsent={name: _empty(fields[name], hints[name]) for name in others},
        holding=tuple(
            name
            for name in fields
            if name not in kinds and any(_plan(part) != _NOTHING for part in _parts(hints[name]))
        ),
    )


def _parts(hint: Any) -> list[Any]:
    inner = [part for arg in typing.get_args(hint) for part in _parts(arg)]
    return [hint, *inner]


def _passing(hint: Any) -> Passing | None:
    marks = (mark for part in _parts(hint) for mark in getattr(part, "__metadata__", ()))
    return next((mark for mark in marks if isinstance(mark, Passing)), None)


def _empty(field: dataclasses.Field[Any], hint: Any) -> Any:
    default = default_of(field)
    return typing.get_args(hint)[0]() if default is dataclasses.MISSING else default


def changed(message: T, **fields: Any) -> T:
    """A copy of the message with these fields replaced.

    Like `dataclasses.replace` at less than half the cost, for frozen dataclasses with slots and
    without `__post_init__`: an operator copies such messages several times per heartbeat, and per
    worker in each pass.
    """
    cls: type = type(message)  # mypy holds that a type[T] may be unhashable
    values_of, setters = _access(cls)
    copy: Any = object.__new__(cls)
    for put, value in zip(setters.values(), values_of(message), strict=True):
        put(copy, value)
    for name, value in fields.items():
        setters[name](copy, value)
    return cast("T", copy)


_Setter = Callable[[Any, Any], None]


@functools.cache
def _access(cls: type) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, _Setter]]:
    """A getter for all fields at once, and a setter for each that works although it is frozen."""
    names = [field.name for field in dataclasses.fields(cls)]
    if len(names) < 2 or hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__} cannot be copied this way")
    return attrgetter(*names), {name: getattr(cls, name).__set__ for name in names}
