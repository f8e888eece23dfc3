"""Stacks as faulthandler and py-spy write them, read into frames.

Layer: agent, pure but for a look into sources, from which the class of a method is known.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from pathlib import PurePath
from typing import Any

from trainrun.contract.evidence import FILE_WIDTH, MOST_FRAMES, NAME_WIDTH, Frame

LARGEST_SOURCE = 256 * 1024
"""Bytes of a file that is read for the names of its classes."""

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*:$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')

_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python[\d.]+/|^<frozen ")
"""Files of the standard library and of packages."""


def of_faulthandler(text: str) -> tuple[Frame, ...]:
    """The stack of the main thread, innermost first: the oldest one, which is written last."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            number = int(found["line"]) if found["line"].isdigit() else 0
            threads[-1].append(frame(found["name"], found["file"], number))
    return tuple(threads[-1][:MOST_FRAMES]) if threads else ()


def of_py_spy(text: str, pid: int) -> tuple[Frame, ...]:
    """The same from `py-spy dump --json`. Raises ValueError."""
    threads = json.loads(text)
    main = next((t for t in threads if t.get("os_thread_id") == pid), None)
    if main is None:
        main = next((t for t in threads if t.get("thread_name") == "MainThread"), None)
    calls: list[dict[str, Any]] = main["frames"] if main is not None else []
    return tuple(
        frame(str(call["name"]), str(call["filename"]), int(call["line"] or 0))
        for call in calls[:MOST_FRAMES]
    )


def frame(name: str, file: str, line: int) -> Frame:
    """A frame within its bounds."""
    own = _INSTALLED.search(file) is None and not file.startswith(f"{sys.prefix}/lib")
    known = method(file, line, name) if own else name
    return Frame(name=known[:NAME_WIDTH], file=file[-FILE_WIDTH:], line=line, own=own)


def method(file: str, line: int, name: str) -> str:
    """`Loader.__next__` for `__next__`, where the source tells; else the name alone."""
    owner = next(
        (owner for first, last, function, owner in _methods(file) if first <= line <= last
         and function == name),
        "",
    )  # fmt: skip
    return f"{owner}.{name}" if owner else name


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
