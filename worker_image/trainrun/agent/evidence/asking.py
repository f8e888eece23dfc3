"""Getting the stacks of a process: from its memory by py-spy, or from itself by faulthandler.

Layer: agent. Both may fail, and neither may harm: py-spy only reads, without stopping the process;
a signal is sent to a process alone that has said that it listens, and that has a handler for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from trainrun.agent.evidence import dumps, procfs
from trainrun.contract.evidence import Frame, ReadBy

PY_SPY = "py-spy"
PY_SPY_SECONDS = 4.0
"""It reads symbols of the interpreter first, which takes a second for a large one."""
WRITTEN_WITHIN = 2.0
"""Seconds in which a process must have begun to write its stacks, and ended."""
QUIET = 0.1
"""Seconds without a new byte after which it has ended."""
LARGEST_DUMP = 64 * 1024
"""Bytes of a dump that are kept: the last ones, where the main thread is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """What was got."""

    frames: tuple[Frame, ...] = ()
    """Of the main thread, innermost first."""
    text: str = ""
    """Of all threads, as it was written."""
    read_by: ReadBy = ""
    remark: str = ""
    """Why there are none, or not from py-spy."""


def by_py_spy(pid: int) -> Stacks:
    """Read the memory of the process, if the program is there and may."""
    program = shutil.which(PY_SPY)
    if program is None:
        return Stacks(remark=f"{PY_SPY} is not installed")
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        # Its exit code may be lost, since the agent waits for all its children at once.
        done = subprocess.run(
            command, capture_output=True, timeout=PY_SPY_SECONDS, text=True, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Stacks(remark=f"{PY_SPY}: {error}"[:200])
    try:
        frames = dumps.of_py_spy(done.stdout, pid)
    except (ValueError, TypeError, KeyError, AttributeError):
        lines = done.stderr.strip().splitlines() or ["it has written no stacks"]
        return Stacks(remark=f"{PY_SPY}: {lines[0]}"[:200])
    if not frames:
        return Stacks(remark=f"{PY_SPY} has found no Python in it")
    return Stacks(frames=frames, text=done.stdout[:LARGEST_DUMP], read_by="py-spy")


def by_signal(pid: int, signal: int, file: Path) -> Stacks:
    """Have the process write its stacks, if it listens."""
    if not signal:
        return Stacks(remark="the process has not imported trainrun, or its system has no signal")
    if not procfs.takes(pid, signal):
        return Stacks(remark=f"the process does not listen for signal {signal} any more")
    try:
        before = file.stat().st_size
        os.kill(pid, signal)
        text = _written(file, before)
    except OSError as error:
        return Stacks(remark=f"no stacks by signal: {error.strerror}")
    if not text:
        return Stacks(remark=f"no stacks within {WRITTEN_WITHIN:g} s of the signal")
    return Stacks(frames=dumps.of_faulthandler(text), text=text, read_by="faulthandler")


def _written(file: Path, before: int) -> str:
    """What is appended to the file from now on, until nothing comes any more."""
    end = time.monotonic() + WRITTEN_WITHIN
    size, changed = before, time.monotonic()
    while (now := time.monotonic()) < end and (size == before or now - changed < QUIET):
        time.sleep(0.02)
        if (newest := file.stat().st_size) != size:
            size, changed = newest, time.monotonic()
    with file.open("rb") as dump:
        dump.seek(max(before, size - LARGEST_DUMP))
        return dump.read(LARGEST_DUMP).decode(errors="replace")
