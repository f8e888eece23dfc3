"""Calls of tasks: their options, and references to results that may not exist yet.

Layer: tasks, pure. Options have the names and defaults of Ray core where Ray has them. A reference
inside the arguments stands for the result: the task receives the value.
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
        """Pickle as a call, which the task's process replaces with the value."""
        return ObjectRef, (self.key, self.index)

    def __repr__(self) -> str:
        """As messages name it."""
        return f"ObjectRef({self.key[:12]}{f'.{self.index}' if self.index else ''})"


def object_name(key: str, number: int, index: int) -> str:
    """Name of a stored result. `number` is the try that made it, since a worker that is cut off may
    still upload after another try has committed. A value of `put` has 0."""
    return f"{key}-{number}/{index}"


RetryExceptions = bool | tuple[str, ...]
"""False: none. True: all. Else names of classes, with or without module, of the exception or one of
its bases. Names, since a class that a function defines cannot be pickled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of one task, set by its decorator or for one call by `.options()`."""

    max_retries: int = 3
    """Retries after its process dies; 0: none; -1: no limit."""
    retry_exceptions: RetryExceptions = False
    """Exceptions that are also retried, from the same budget."""
    timeout: float | None = None
    """Seconds after which a try is killed, which costs a retry; None: no limit."""
    num_returns: int = 1
    """Number of results, each with its own reference; above 1 the function returns a tuple."""
    cpus: float = 1.0
    gpus: int = 0
    memory: int | None = None
    """Bytes that its processes may use. Above it they are killed, which costs a retry."""
    version: str = ""
    """Stands for the code in the task's key; empty: a hash of the function's source."""
    keep: Literal["store", "node"] = "store"
    """`node`: results stay on the node that made them, and are rebuilt if it is lost."""
    max_reconstructions: int | None = None
    """How often a lost result is rebuilt; None: the program's limit; -1: no limit."""
    on_change: Literal["accept", "fail"] = "accept"
    """What to do if a rebuilt result has different content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Options of all tasks of a program, which `tasks.run` takes."""

    lineage: Literal["on", "off"] = "on"
    """`off`: lost results are not rebuilt."""
    lineage_limit: int = 1 << 30
    """Bytes of arguments kept for rebuilds; above it the oldest finished calls are dropped."""
    max_reconstructions: int = 3
    """Limit for tasks that do not set their own."""


Options = TypeVar("Options", TaskOptions, ProgramOptions)
Reader = Callable[[Any], Any]
"""Turns an option as written into its value. Raises ValueError or TypeError."""

_DURATION = re.compile(
    r"(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?(?<!^)", re.ASCII
)
_SIZE = re.compile(r"(\d{1,15})([KMGT]i?)?", re.ASCII)


def changed(options: Options, of: str, given: dict[str, Any]) -> Options:
    """The options with the `given` ones checked and replaced; `of` names their owner in messages.

    Raises InvalidSpec, which names each invalid option, and TypeError for an unknown name.
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
    """One `f.remote(...)`, made by the function for the driver."""

    key: str
    function: str
    """`module:qualname` for the worker to import; `__main__` is the program's own module."""
    arguments: bytes = field(repr=False)
    """A pickle of `(args, kwargs)`."""
    inputs: tuple[ObjectRef, ...] = ()
    """Every reference in the arguments, at any depth."""
    options: TaskOptions = field(default_factory=TaskOptions)
    shown: str = ""
    """The call in short, for messages: `tokenize('s3://a/0001')`, secrets masked."""
    code: str = ""
    """Digest of the module's file."""

    @property
    def parents(self) -> tuple[str, ...]:
        """Keys of its inputs, each once, in order."""
        return tuple(dict.fromkeys(ref.key for ref in self.inputs))
