"""Stacks as faulthandler and py-spy write them, read into frames.

Layer: agent, pure but for a look into sources, from which the class of a method is known. Nobody
waits for them: they may lie on the file system that the script hangs in.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from trainrun.contract.evidence import FILE_WIDTH, MOST_FRAMES, NAME_WIDTH, Frame

T = TypeVar("T")

LARGEST_SOURCE = 256 * 1024
"""Bytes of a file that is read for the names of its classes."""
READ_WITHIN = 0.5
"""Seconds in which the files of one stack must have been read; they take a hundredth."""

_MORE_THREADS = "..."
"""The last line of a dump of more than 100 threads: the main one, the oldest, is not in it."""

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*:$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')

_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python[\d.]+/|^<frozen ")
"""Files of the standard library and of packages."""


class Call(NamedTuple):
    """As it was written."""

    name: str
    file: str
    line: int


def of_faulthandler(text: str) -> tuple[Frame, ...]:
    """The stack of the main thread, innermost first: the oldest one, which is written last."""
    threads: list[list[Call]] = []
    for line in text.splitlines():
        if line == _MORE_THREADS:
            return ()
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            number = int(found["line"]) if found["line"].isdigit() else 0
            threads[-1].append(Call(found["name"], found["file"], number))
    return _frames(threads[-1]) if threads else ()


def of_py_spy(text: str, pid: int) -> tuple[Frame, ...]:
    """The same from `py-spy dump --json`. Raises ValueError."""
    threads = json.loads(text)
    main = next((t for t in threads if t.get("os_thread_id") == pid), None)
    if main is None:
        main = next((t for t in threads if t.get("thread_name") == "MainThread"), None)
    calls: list[dict[str, Any]] = main["frames"] if main is not None else []
    return _frames(
        [Call(str(call["name"]), str(call["filename"]), int(call["line"] or 0)) for call in calls]
    )


def _frames(calls: Sequence[Call]) -> tuple[Frame, ...]:
    """Frames within their bounds, the names of methods with their classes where those are known."""
    calls = calls[:MOST_FRAMES]
    names = within(READ_WITHIN, lambda: [_name(call) for call in calls])
    return tuple(
        Frame(name=name[:NAME_WIDTH], file=call.file[-FILE_WIDTH:], line=call.line, own=_own(call))
        for call, name in zip(calls, names or [call.name for call in calls], strict=True)
    )


def _own(call: Call) -> bool:
    installed = _INSTALLED.search(call.file) is not None
    return not installed and not call.file.startswith(f"{sys.prefix}/lib")


def _name(call: Call) -> str:
    """`Loader.__next__` for `__next__`, where the source tells; else the name alone."""
    owner = next(
        (owner for first, last, function, owner in _methods(call.file if _own(call) else "")
         if first <= call.line <= last and function == call.name),
        "",
    )  # fmt: skip
    return f"{owner}.{call.name}" if owner else call.name


@functools.lru_cache(maxsize=64)
def _methods(file: str) -> tuple[tuple[int, int, str, str], ...]:
    """First and last line, name and class of each method in a file."""
    try:
        if PurePath(file).suffix != ".py":
            return ()
        with open(file, "rb") as source:
            tree = ast.parse(source.read(LARGEST_SOURCE))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    return tuple(
        (child.lineno, child.end_lineno or child.lineno, child.name, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """What `work` returns; None where it takes longer. Its thread is left to itself then."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()), name="bounded", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None
