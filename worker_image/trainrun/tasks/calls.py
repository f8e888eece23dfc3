"""Calls of tasks: their options, their references to results that may not be there yet.

Layer: tasks, pure. Names and defaults of options are those of Ray's core where it has the same
thing. Inside arguments a reference stands for the result itself: a task gets values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, TypeVar

from trainrun.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One result of a call, or a value of `put`."""

    key: str
    index: int = 0

    def __reduce__(self) -> tuple[type[ObjectRef], tuple[str, int]]:
        """Made by a call, which a task's process replaces by the value."""
        return ObjectRef, (self.key, self.index)

    def __repr__(self) -> str:
        """As messages name it."""
        return f"ObjectRef({self.key[:12]}{f'.{self.index}' if self.index else ''})"


def object_name(key: str, number: int, index: int) -> str:
    """Its name in the keep; `number`: of the try that made it, since a worker that is cut off may
    still store what another try has committed meanwhile. A value of `put` has 0."""
    return f"{key}-{number}/{index}"


RetryExceptions = bool | tuple[str, ...]
"""False: none; True: all; names of classes with or without their module: of the exception or of any
of its bases. Not the classes: one that was made inside of a function cannot be pickled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Of one task, by its decorator or for one call by `.options()`."""

    max_retries: int = 3
    """Further tries after its process has died; 0: none; -1: no limit."""
    retry_exceptions: RetryExceptions = False
    """Exceptions that are retried, too, from the same budget."""
    timeout: float | None = None
    """Seconds after which a try is killed, and counts as one of the retries; None: no limit."""
    num_returns: int = 1
    """Results, each with a reference of its own; more than one: the function returns a tuple."""
    cpus: float = 1.0
    gpus: int = 0
    memory: int | None = None
    """Bytes that its processes may use; more: it is killed, which counts as one of the retries."""
    version: str = ""
    """Stands for the code in the task's key; empty: a hash of the function's source does."""
    keep: Literal["store", "node"] = "store"
    """`node`: results stay on the node that made them, and are made again when it goes."""
    max_reconstructions: int | None = None
    """Times that a lost result is made again; None: as for the program; -1: no limit."""
    on_change: Literal["accept", "fail"] = "accept"
    """What a rebuilt result with another content means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Of all tasks of a program: what `tasks.run` takes."""

    lineage: Literal["on", "off"] = "on"
    """`off`: nothing that is lost is made again."""
    lineage_limit: int = 1 << 30
    """Bytes of arguments that are kept for rebuilds; the oldest finished calls are forgotten."""
    max_reconstructions: int = 3
    """For tasks that say nothing of their own."""


Options = TypeVar("Options", TaskOptions, ProgramOptions)
Reader = Callable[[Any], Any]
"""From an option as it was written to its value. Raises ValueError or TypeError."""

_DURATION = re.compile(
    r"(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?(?<!^)", re.ASCII
)
_SIZE = re.compile(r"(\d{1,15})([KMGT]i?)?", re.ASCII)


def changed(options: Options, of: str, given: dict[str, Any]) -> Options:
    """The same options with those that are given, read; `of` says whose they are.

    Raises InvalidSpec, which names each option that cannot be used, and TypeError for a name that
    is none.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name in given.keys() - defaults.keys():
        raise TypeError(f"{of} has no option {name!r}. It has {', '.join(sorted(defaults))}")
    values: dict[str, Any] = {}
    wrong = []
    for name, value in given.items():
        read, what = _READERS[name]
        try:
            values[name] = None if value is None is defaults[name] else read(value)
        except (ValueError, TypeError):
            wrong.append(f"{of}: {name}={value!r} must be {what}")
    if wrong:
        raise InvalidSpec("; ".join(wrong))
    return replace(options, **values)


def seconds(value: Any) -> float:
    """`"1h30m"`, `"500ms"` or a number of seconds above 0. Raises ValueError or TypeError."""
    if isinstance(value, str):
        hours, minutes, whole, thousandths = (int(part or 0) for part in _parts(_DURATION, value))
        value = hours * 3600 + minutes * 60 + whole + thousandths / 1000
    if value == 0:
        raise ValueError(value)
    return _number(value)


def _parts(pattern: re.Pattern[str], text: str) -> tuple[str | None, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return found.groups()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(value)
    return float(value)


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(value)
    return value


def _size(value: Any, least: int) -> int:
    if isinstance(value, str):
        number, unit = _parts(_SIZE, value)
        base = 1024 if unit and unit.endswith("i") else 1000
        value = int(number or 0) * base ** " KMGT".index((unit or " ")[0])
    return _whole(value, least)


def _exceptions(value: Any) -> RetryExceptions:
    if isinstance(value, bool):
        return value
    listed = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    return tuple(map(_exception_name, listed))


def _exception_name(one: Any) -> str:
    if isinstance(one, str) and one:
        return one
    if not issubclass(one, BaseException):
        raise ValueError(one)
    return f"{one.__module__}.{one.__qualname__}"


def _one_of(*words: str) -> tuple[Reader, str]:
    def read(value: Any) -> Any:
        return words[words.index(value)]

    return read, " or ".join(f'"{word}"' for word in words)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_LIMIT = "a whole number: -1 for no limit, 0 for none"
_READERS: dict[str, tuple[Reader, str]] = {
    "max_retries": (partial(_whole, least=-1), _LIMIT),
    "retry_exceptions": (_exceptions, "True, False, or a list of exception classes or their names"),
    "timeout": (seconds, 'a text such as "10m", a number of seconds above 0, or None'),
    "num_returns": (partial(_whole, least=1), "a whole number from 1"),
    "cpus": (_number, "a number from 0"),
    "gpus": (partial(_whole, least=0), "a whole number from 0"),
    "memory": (partial(_size, least=1), 'a number of bytes above 0, a text such as "1Gi", or None'),
    "version": (_text, 'a text such as "2"'),
    "keep": _one_of("store", "node"),
    "max_reconstructions": (partial(_whole, least=-1), _LIMIT),
    "on_change": _one_of("accept", "fail"),
    "lineage": _one_of("on", "off"),
    "lineage_limit": (partial(_size, least=0), 'a number of bytes, or a text such as "1Gi"'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`f.remote(...)`: made by the function, given to the driver."""

    key: str
    function: str
    """`module:qualname`, as a worker finds it; `__main__` for the program's own module."""
    arguments: bytes = field(repr=False)
    """A pickle of `(args, kwargs)`."""
    inputs: tuple[ObjectRef, ...] = ()
    """Every reference in the arguments, however deep."""
    options: TaskOptions = field(default_factory=TaskOptions)
    shown: str = ""
    """The call in short, for people: `tokenize('s3://a/0001')`; secrets are hidden."""
    code: str = ""
    """Digest of the module's file."""

    @property
    def parents(self) -> tuple[str, ...]:
        """Keys of its inputs, each once, in their order."""
        return tuple(dict.fromkeys(ref.key for ref in self.inputs))
