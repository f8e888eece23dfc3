"""The program's main module, imported by another process: as multiprocessing's spawn does it.

Layer: tasks. Not by its functions: they fix the start method of the program's own processes, and
leave `python -m package` out.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MainModule:
    """What another process needs to import it."""

    name: str
    """Of a program that was started by `python -m name`; else empty."""
    path: str
    """Its file; empty: there is none, as with `python -c`."""
    sys_path: tuple[str, ...]
    argv: tuple[str, ...]
    folder: str
    """The working folder."""
    pid: int
    """Of the process that has described it."""


def describe() -> MainModule:
    """Describe that of this process."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    return MainModule(
        name=spec.name if spec is not None and spec.name != "__main__" else "",
        path=str(Path(path).absolute()) if path else "",
        sys_path=tuple(str(Path(entry).absolute()) for entry in sys.path),
        argv=tuple(sys.argv),
        folder=str(Path.cwd()),
        pid=os.getpid(),
    )


def load(main: MainModule) -> None:
    """Make it this process's, without what it guards by `if __name__ == "__main__"`.

    Raises whatever its import raises."""
    os.chdir(main.folder)
    sys.path[:], sys.argv[:] = main.sys_path, main.argv
    if not main.name and not main.path:
        return
    module = types.ModuleType("__mp_main__")
    if main.name:
        content = runpy.run_module(main.name, run_name="__mp_main__", alter_sys=True)
    else:
        content = runpy.run_path(main.path, run_name="__mp_main__")
    module.__dict__.update(content)
    for value in content.values():  # what is pickled here is read where it is `__main__`'s
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__mp_main__":
            value.__module__ = "__main__"
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
