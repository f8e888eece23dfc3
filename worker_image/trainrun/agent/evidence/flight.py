"""PyTorch's flight recorder: what NCCL was asked for last, where the script has it on.

Layer: agent. On means `TORCH_FR_BUFFER_SIZE` (before PyTorch 2.9 `TORCH_NCCL_TRACE_BUFFER_SIZE`) is
above 0; it is written when a byte comes into its pipe (`TORCH_NCCL_DEBUG_INFO_PIPE_FILE`), and by
the watchdog itself. What is there is kept as it is: a pickle, which is never loaded here.
"""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path

from trainrun.agent.evidence import procfs
from trainrun.agent.evidence.dumps import within

SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_FILES = ("comm_lib_trace_rank_", "nccl_trace_rank_")
"""In `$XDG_CACHE_HOME/torch` or `~/.cache/torch`, and in /tmp, as the version of PyTorch has it."""
WRITTEN_WITHIN = 2.0
"""Seconds that it may take to write."""
LARGEST = 256 * 1024
"""Bytes that are kept."""
READ_WITHIN = WRITTEN_WITHIN + 1.0
"""Seconds in which it must have been written and read: its folder may be the one that hangs."""


def dumped(pid: int, rank: int) -> dict[str, object] | None:
    """What the recorder of a process has written last; None: it is off, or has written nothing."""
    return within(READ_WITHIN, lambda: _dumped(pid, rank))


def _dumped(pid: int, rank: int) -> dict[str, object] | None:
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
    """Ask for a new dump; says whether somebody listens."""
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
            content = dump.read(LARGEST + 1)
    except OSError:
        return None
    return {
        "file": str(file),
        "whole": len(content) <= LARGEST,
        "base64": base64.b64encode(content[:LARGEST]).decode(),
    }
