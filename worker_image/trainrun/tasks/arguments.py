"""Arguments of a call: packed with the references in them, and shown in short.

Layer: tasks. The task's process puts values in the place of references while it unpickles.
"""

from __future__ import annotations

import io
import pickle
import reprlib
from typing import TYPE_CHECKING, Any

from trainrun.contract.masking import masked
from trainrun.errors import InvalidSpec
from trainrun.tasks import keys
from trainrun.tasks.refs import ObjectRef
from trainrun.tasks.values import PROTOCOL, Folder, Unpicklable

if TYPE_CHECKING:
    import inspect

_SHOWN, _SHOWN_EACH = 160, 60
"""Characters of a call, and of one of its arguments."""
MOST = 64 << 20
"""Bytes of the arguments of one call."""


def dumps(value: object) -> tuple[bytes, tuple[ObjectRef, ...]]:
    """A pickle of this, and each reference in it once, in their order. Raises what pickle does."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), tuple(pickler.refs)


def packed(function: str, bound: inspect.BoundArguments) -> tuple[bytes, tuple[ObjectRef, ...]]:
    """A pickle of `(args, kwargs)`, and the references in it.

    Raises InvalidSpec where an argument cannot be pickled, with its name.
    """
    try:
        data, refs = dumps((bound.args, bound.kwargs))
    except Exception as error:
        raise InvalidSpec(_unpicklable(function, bound, error)) from error
    if len(data) > MOST:
        raise InvalidSpec(
            f"the arguments of {function} take {len(data) >> 20} MiB; at most {MOST >> 20} MiB go"
            " with a call. Pass large values as references: tasks.put(value)"
        )
    return data, refs


def encoded(of: str, value: object, unstable: set[str]) -> bytes:
    """The value as it stands in a key; see `keys.encoded`. Raises InvalidSpec, which names it."""
    try:
        return keys.encoded(value, unstable)
    except Exception as error:
        why = "it contains itself" if isinstance(error, RecursionError) else _told(error)
        raise InvalidSpec(f"no key can be made of {of}: {why}. Pass plain data") from error


def shown(function: str, bound: inspect.BoundArguments) -> str:
    """The call in short, for people: `tokenize('s3://a/0001')`; secrets are hidden."""
    named = (f"{name}={_SHORT.repr(value)}" for name, value in bound.arguments.items())
    # The name of a parameter may say that it holds a secret. Arrays have a repr of several lines.
    given = (" ".join(masked(text).partition("=")[2].split()) for text in named)
    return f"{function}({_cut(', '.join(_cut(text, _SHOWN_EACH) for text in given), _SHOWN)})"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _unpicklable(function: str, bound: inspect.BoundArguments, error: Exception) -> str:
    for name, value in bound.arguments.items():
        try:
            dumps(value)
        except Unpicklable as its:
            return f"the argument {name} of {function}: {its}. Pass the task's reference instead"
        except Exception as its:  # noqa: BLE001 - whatever its own code raises
            return (
                f"the argument {name} of {function} cannot be pickled: {_told(its)}."
                " Pass what it is made from, and make it inside of the task"
            )
    return f"the arguments of {function} cannot be pickled: {_told(error)}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=PROTOCOL)
        self.refs: dict[ObjectRef, None] = {}

    def reducer_override(self, value: object) -> Any:
        if type(value) is ObjectRef:
            self.refs[value] = None
        if isinstance(value, Folder):
            raise Unpicklable(f"other nodes do not have the folder {value}")
        return NotImplemented


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 4 * _SHOWN_EACH
