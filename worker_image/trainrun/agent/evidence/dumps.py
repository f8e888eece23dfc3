"""Dumps of a hanging rank: its stacks, and PyTorch's flight recorder.

Layer: agent. Parses stacks written by faulthandler and py-spy into frames, and reads the sources to
find the class of each method.

The flight recorder holds the last NCCL calls, if the script has switched it on:
`TORCH_FR_BUFFER_SIZE` (before PyTorch 2.9 `TORCH_NCCL_TRACE_BUFFER_SIZE`) is above 0. PyTorch
writes it when a byte arrives in its pipe (`TORCH_NCCL_DEBUG_INFO_PIPE_FILE`), and on its watchdog's
timeout. The agent stores the file unchanged: it is a pickle and never loaded here.

Every file access has a time limit: the script may hang in the same file system.
"""

from __future__ import annotations

import ast
import base64
import functools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

from trainrun.agent.processes import procfs
from trainrun.contract.evidence import FILE_WIDTH, MOST_FRAMES, NAME_WIDTH, Frame

T = TypeVar("T")

LARGEST_SOURCE = 256 * 1024
"""Bytes read of a source file to find its classes."""
READ_WITHIN = 0.5
"""Time limit in seconds for reading the files of one stack; usually they take a hundredth."""

_MORE_THREADS = "..."
"""The last line of a dump of more than 100 threads: it lacks the main thread, the oldest one."""

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*:$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')

_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python[\d.]+/|^<frozen ")
"""Files of the standard library and of packages."""

SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_FILES = ("comm_lib_trace_rank_", "nccl_trace_rank_")
"""In `$XDG_CACHE_HOME/torch` or `~/.cache/torch`, or in /tmp, depending on PyTorch's version."""
WRITTEN_WITHIN = 2.0
"""Seconds that the flight recorder may take to write."""
LARGEST_RECORD = 256 * 1024
"""Bytes kept of the flight recorder's file."""
RECORDED_WITHIN = WRITTEN_WITHIN + 1.0
"""Time limit in seconds for writing and reading it: its file system may hang."""


class Call(NamedTuple):
    """A frame as it was dumped."""

    name: str
    file: str
    line: int


def of_faulthandler(text: str) -> tuple[Frame, ...]:
    """The stack of the main thread, innermost first; the dump lists it last, as the oldest."""
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
    """Frames cut to their bounds; method names get their class if it is known."""
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
    """`Loader.__next__` for `__next__`, if the source shows it; otherwise only the name."""
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


def of_flight_recorder(pid: int, rank: int) -> dict[str, object] | None:
    """The newest dump of a process's flight recorder; None: it is off or has written nothing."""
    return within(RECORDED_WITHIN, lambda: _recorded(pid, rank))


def _recorded(pid: int, rank: int) -> dict[str, object] | None:
    environment = procfs.environment(pid)
    if not any(_is_on(environment.get(name, "")) for name in SIZES):
        return None
    places = _places(environment, rank)
    if _asked(environment, rank):
        begin = time.time()
        end = time.monotonic() + WRITTEN_WITHIN
        while time.monotonic() < end and not any(_is_newer(place, begin) for place in places):
            time.sleep(0.05)
    return next((found for place in places if (found := _read(place)) is not None), None)


def _is_on(size: str) -> bool:
    return size.isdigit() and int(size) > 0


def _places(environment: dict[str, str], rank: int) -> list[Path]:
    named = [environment[name] for name in FILES if environment.get(name)]
    home = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME', '/root')}/.cache"
    usual = [f"{folder}/{name}" for folder in (f"{home}/torch", "/tmp") for name in DEFAULT_FILES]
    return [Path(f"{stem}{rank}") for stem in (*named, *usual)]


def _asked(environment: dict[str, str], rank: int) -> bool:
    """Request a new dump; returns whether a process reads the pipe."""
    for name in PIPES:
        if not environment.get(name):
            continue
        try:
            pipe = os.open(f"{environment[name]}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            os.write(pipe, b"1")
        except OSError:
            continue
        finally:
            os.close(pipe)
        return True
    return False


def _is_newer(file: Path, begin: float) -> bool:
    try:
        return file.stat().st_mtime >= begin
    except OSError:
        return False


def _read(file: Path) -> dict[str, object] | None:
    try:
        with file.open("rb") as dump:
            content = dump.read(LARGEST_RECORD + 1)
    except OSError:
        return None
    return {
        "file": str(file),
        "whole": len(content) <= LARGEST_RECORD,
        "base64": base64.b64encode(content[:LARGEST_RECORD]).decode(),
    }


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """The result of `work`; None if it fails or takes longer: then its thread is abandoned."""
    found = in_thread(work)
    futures.wait([found], seconds)
    return found.result() if found.done() and found.exception() is None else None


def in_thread(work: Callable[[], T]) -> Future[T]:
    """The future result of `work`, in a daemon thread: the agent can exit even if the kernel blocks
    that thread."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised by result()
            found.set_exception(error)

    found.set_running_or_notify_cancel()
    threading.Thread(target=run, name="bounded", daemon=True).start()
    return found
