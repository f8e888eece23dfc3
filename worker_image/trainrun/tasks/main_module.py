"""Import the program's main module in another process, and decide whether that process may fork.

Layer: tasks. It does what multiprocessing's spawn does, but not with its functions: those fix the
start method of the program's own processes and do not support `python -m package`.
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
    """For a program started with `python -m name`; else empty."""
    path: str
    """Its file; empty if there is none, as with `python -c`."""
    sys_path: tuple[str, ...]
    argv: tuple[str, ...]
    folder: str
    """The working folder."""
    pid: int
    """Process id of the process that described it."""


def describe() -> MainModule:
    """Describe the main module of this process."""
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
    """Import it as this process's main module, without its `if __name__ == "__main__"` part.

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
    for value in content.values():  # pickles made here are read where the module is `__main__`
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__mp_main__":
            value.__module__ = "__main__"
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


class Watch:
    """Watches the import of a program, to name the module that starts a thread."""

    def __init__(self) -> None:
        self._culprits = dict.fromkeys(threads(), "")
        """Module by thread."""
        self._importing = ""
        """The module being imported."""

    def __enter__(self) -> Watch:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):
            sys.meta_path.remove(self)
        self._look()

    def find_spec(self, name: str, *_: object) -> None:
        """Called before each import: find nothing, but look for new threads."""
        self._look()
        self._importing = name

    def _look(self) -> None:
        for thread in threads():
            self._culprits.setdefault(thread, self._importing)

    def why_not_fork(self) -> str:
        """Return why this process must not fork; empty if it may."""
        if gpus := _open_gpus():
            what = f"importing the program opened a GPU ({gpus})"
        else:
            _settle()
            here = threads()
            if len(here) == 1:
                return ""
            culprits = sorted({self._culprits.get(thread, "") for thread in here} - {""})
            what = f"importing {' and '.join(culprits) or 'a module'} started threads"
        return (
            f"{what}, so tasks cannot be forked: each one starts a new interpreter, which takes "
            "longer. Do this inside functions instead"
        )


def threads() -> list[str]:
    """Return the ids of this process's threads, those of libraries included."""
    return [entry.name for entry in Path("/proc/self/task").iterdir()]


def _settle() -> None:
    """Fork once without need: OpenBLAS ends its threads before a fork and restarts them on demand.
    Otherwise every program that imports numpy would have threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns about threads
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
