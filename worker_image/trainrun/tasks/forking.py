"""May this process fork? Not with several threads or a GPU context; and who has made them.

Layer: tasks, leaf.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path


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
