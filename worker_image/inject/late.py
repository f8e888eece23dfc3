"""Stands for modules of the standard library that hardly any agent needs, until one does.

Layer: outside of all packages. `run.py` imports it before all that imports them; that is enough.
With what they import they are a tenth of a worker's start. While all is well `locale` is
imported by `subprocess` in vain, as is `textwrap` by `traceback` and `ipaddress` by `urllib.parse`;
`dataclasses` and asyncio want two functions of `inspect`.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType

_LIBRARY = os.__file__.rpartition(os.sep)[0]
"""Where the real ones are."""
_CO_COROUTINE = 0x80
_loading = threading.RLock()


class Late(ModuleType):
    """A module that is loaded when somebody wants more of it than it was given.

    Not `importlib.util.LazyLoader`: to import such a module a second time loads it.
    """

    def load(self) -> None:
        """Run the real module's code here, over what stands here."""
        with _loading:
            if self.__spec__ is None:
                real = PathFinder.find_spec(self.__name__, [_LIBRARY])
                self.__spec__, self.__file__ = real, real.origin
                real.loader.exec_module(self)

    def __getattr__(self, name: str) -> object:
        self.load()
        try:
            return vars(self)[name]
        except KeyError:
            message = f"module {self.__name__!r} has no attribute {name!r}"
            raise AttributeError(message) from None


inspect = Late("inspect")


def get_annotations(thing: object, **options: object) -> dict[str, object]:
    """What `dataclasses` asks of each class."""
    if options or not isinstance(thing, type):
        inspect.load()
        return inspect.get_annotations(thing, **options)
    return dict(vars(thing).get("__annotations__", ()))


def iscoroutinefunction(function: object) -> bool:
    """What asyncio asks of each handler of a signal."""
    code = getattr(function, "__code__", None)
    if code is None:
        inspect.load()
        return inspect.iscoroutinefunction(function)
    return bool(code.co_flags & _CO_COROUTINE)


vars(inspect).update(get_annotations=get_annotations, iscoroutinefunction=iscoroutinefunction)
for module in (inspect, *map(Late, ("ipaddress", "locale", "textwrap"))):
    sys.modules.setdefault(module.__name__, module)  # what is loaded already stays
