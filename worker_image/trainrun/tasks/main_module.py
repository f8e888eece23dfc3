"""The program's main module, imported by another process; and whether that one may fork then.

Layer: tasks. As multiprocessing's spawn does it, but not by its functions: they fix the start
method of the program's own processes, and leave `python -m package` out.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
import warnings
from contextlib import suppress
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


class Watch:
    """Looks on while a program is imported. At best it knows which module has started a thread."""

    def __init__(self) -> None:
        self._culprits = dict.fromkeys(threads(), "")
        """By thread."""
        self._importing = ""
        """The module that was looked for last."""

    def __enter__(self) -> Watch:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):
            sys.meta_path.remove(self)
        self._look()

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing, but look: called before each import."""
        self._look()
        self._importing = name

    def _look(self) -> None:
        for thread in threads():
            self._culprits.setdefault(thread, self._importing)

    def why_not_fork(self) -> str:
        """Return why this process must not fork; empty: it may."""
        if gpus := _open_gpus():
            what = f"the program has opened a GPU ({gpus})"
        else:
            _settle()
            here = threads()
            if len(here) == 1:
                return ""
            culprits = sorted({self._culprits.get(thread, "") for thread in here} - {""})
            what = f"{' and '.join(culprits) or 'a module'} has started threads"
        return (
            f"{what} when it was imported, so tasks cannot be forked: each task starts an "
            "interpreter and imports the program, which takes longer. Do that within functions"
        )


def threads() -> list[str]:
    """Return the ids of this process's threads, those of libraries included."""
    return [entry.name for entry in Path("/proc/self/task").iterdir()]


def _settle() -> None:
    """Fork once, for nothing: OpenBLAS ends its threads before a fork, and starts them when they
    are needed. Without it whoever imports numpy would have threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.12: that there are threads
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _open_gpus() -> str:
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("/dev/nvidia"):
                return target
    return ""
