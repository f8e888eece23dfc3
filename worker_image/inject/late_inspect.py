"""Stands for the module `inspect` in the agent's archive, and becomes it when it is needed.

Layer: outside of all packages; `build.py` puts it there as `inspect.py`, before the standard
library's. With what that imports it is a twelfth of a worker's start, and while all is well the
only ones who want it are `dataclasses` and asyncio, for the two functions that stand here.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.machinery import PathFinder
from pathlib import Path

_CO_COROUTINE = 0x80
_loading = threading.RLock()
_own_spec = __spec__


def get_annotations(thing: object, **options: object) -> dict[str, object]:
    """What `dataclasses` asks of each class."""
    if options or not isinstance(thing, type):
        return __getattr__("get_annotations")(thing, **options)
    return dict(vars(thing).get("__annotations__", ()))


def iscoroutinefunction(function: object) -> bool:
    """What asyncio asks of each handler of a signal."""
    code = getattr(function, "__code__", None)
    if code is None:
        return __getattr__("iscoroutinefunction")(function)
    return bool(code.co_flags & _CO_COROUTINE)


def __getattr__(name: str):
    """Become the real module: its code runs here, over what stands here."""
    this = sys.modules[__name__]
    with _loading:
        if this.__spec__ is _own_spec:
            real = PathFinder.find_spec(__name__, [str(Path(os.__file__).parent)])
            this.__spec__, this.__file__ = real, real.origin
            real.loader.exec_module(this)
    try:
        return vars(this)[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
