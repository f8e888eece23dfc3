"""Evidence for the operator: gathered when it asks, told at once, stored in the background.

Layer: agent. Nobody waits for it: a rank of which nothing is known in time is told as just that,
and heartbeats go on meanwhile. Each request is answered once.

Of a rank that stands still everything is found out that can be within seconds, in a thread, since
some of it waits: for a process, a program, a file of /proc. Stacks are read from its memory by
py-spy, or it writes them itself by faulthandler. Both may fail, and neither may harm: py-spy only
reads, without stopping the process; a signal is sent to a process alone that has said that it
listens, and that has a handler for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from trainrun._common.backoff import Backoff
from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.evidence import dumps
from trainrun.agent.processes import procfs
from trainrun.contract.evidence import (
    EVIDENCE_SECONDS,
    KERNEL_WIDTH,
    LINE_WIDTH,
    MOST_LINES,
    Evidence,
    EvidenceRequest,
    Frame,
    RankEvidence,
    ReadBy,
)
from trainrun.contract.masking import masked
from trainrun.contract.messages import Hello
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

IN_TIME = EVIDENCE_SECONDS - 3.0
"""Seconds after which is told what is known: the way to the operator takes time, too."""
STORED_WITHIN = 300.0
"""Seconds for which a store that is away is tried again."""
PY_SPY = "py-spy"
PY_SPY_SECONDS = 4.0
"""It reads symbols of the interpreter first, which takes a second for a large one."""
WRITTEN_WITHIN = 2.0
"""Seconds in which a process must have begun to write its stacks, and ended."""
QUIET = 0.1
"""Seconds without a new byte after which it has ended."""
LARGEST_DUMP = 64 * 1024
"""Bytes of a dump that are kept: the last ones, where the main thread is."""
WINDOW = 0.5
"""Seconds over which the CPU of a process is measured."""
DEAF = ("T", "t", "D", "Z", "X")
"""States in which a process takes no signal."""
STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "in the kernel"}


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    told: Evidence | None = None
    """What the newest request has led to; None while it is asked for, and once nobody asks."""
    _request: EvidenceRequest | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def want(self, request: EvidenceRequest | None, subjects: Iterable[Subject]) -> None:
        """The operator wants this, or nothing any more; `subjects`: where the ranks are."""
        if request == self._request:
            return
        self._request, self.told = request, None
        if request is not None:
            LOG.info("the gang stands still: looking where its ranks are")
            task = background.run(self._gather(request, tuple(subjects)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stored(self) -> None:
        """Wait until all is stored, or given up."""
        await asyncio.gather(*self._tasks)

    async def _gather(self, request: EvidenceRequest, subjects: tuple[Subject, ...]) -> None:
        threads = (dumps.in_thread(partial(look_at, subject)) for subject in subjects)
        looks = list(map(asyncio.wrap_future, threads))
        if looks:
            await asyncio.wait(looks, timeout=IN_TIME)
        found = [_result(look, subject) for look, subject in zip(looks, subjects, strict=True)]
        told = tuple(it.told for it in found)
        if request == self._request:
            self.told = Evidence(attempt=request.attempt, number=request.number, ranks=told)
            self.news()
        await self._store(request, [it.record for it in found])

    async def _store(self, request: EvidenceRequest, ranks: list[dict[str, Any]]) -> None:
        backoff, end = Backoff(0.5, 30.0), asyncio.get_running_loop().time() + STORED_WITHIN
        while asyncio.get_running_loop().time() < end:
            try:
                await self.storage.write_hang(request, ranks)
            except TrainRunError as error:
                LOG.info("the evidence of a hang waits for the store: %s", error)
                await asyncio.sleep(backoff.next())
            else:
                return


def _result(look: asyncio.Future[Found], subject: Subject) -> Found:
    """What was found of a rank; or just its step, where that took too long."""
    if look.done() and look.exception() is None:
        return look.result()
    why = repr(look.exception()) if look.done() else f"nothing was found out in {IN_TIME:g} s"
    LOG.warning("rank %d: %s", subject.rank, why)
    look.cancel()
    told = RankEvidence(rank=subject.rank, step=subject.step)
    return Found(
        told=told,
        record={"rank": subject.rank, "step": subject.step, "pid": subject.pid, "remark": why},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Where to look for a rank."""

    rank: int
    pid: int
    """Of the process that the agent has started, which may be a shell."""
    spokesman: Hello | None
    """How the process that speaks for the rank has introduced itself; None: it has not."""
    step: int | None
    last_lines: tuple[str, ...]
    stacks: Path
    """Where it writes them when asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is told of a rank, and what is stored."""

    told: RankEvidence
    record: dict[str, object]
    """JSON; masked."""


def look_at(subject: Subject) -> Found:
    """Find out about a rank; takes some seconds at most, unless the kernel keeps us waiting."""
    pid, signal = _spokesman(subject)
    begin, before = time.monotonic(), procfs.look(pid)
    state = before.state if before is not None else ""
    kernel = procfs.waits_for(pid)
    stacks = _stacks(pid, signal, subject.stacks, state)
    time.sleep(max(0.0, begin + WINDOW - time.monotonic()))
    after, passed = procfs.look(pid), time.monotonic() - begin
    used = procfs.cores(before, after, passed) if before is not None and after is not None else 0.0
    lines = tuple(map(masked, subject.last_lines))
    told = RankEvidence(
        rank=subject.rank,
        step=subject.step,
        state=state,
        cpu=used,
        stack=stacks.frames,
        read_by=stacks.read_by,
        kernel=kernel[:KERNEL_WIDTH],
        helpers_lost=_helpers_lost(pid),
        gpu=procfs.uses_gpu(pid),
        last_lines=tuple(line[:LINE_WIDTH] for line in lines[-MOST_LINES:]),
    )
    return Found(told=told, record=_record(told, pid, stacks, lines))


def _record(
    told: RankEvidence, pid: int, stacks: Stacks, lines: tuple[str, ...]
) -> dict[str, object]:
    recorded = dumps.of_flight_recorder(pid, told.rank) if told.state not in DEAF else None
    return {
        "rank": told.rank,
        "step": told.step,
        "pid": pid,
        "state": told.state,
        "cpu": told.cpu,
        "readBy": told.read_by,
        "remark": masked(stacks.remark),
        "stacks": masked(stacks.text),
        "kernel": told.kernel,
        "kernelStack": procfs.kernel_stack(pid),
        "helpersLost": told.helpers_lost,
        "gpu": told.gpu,
        "lastLines": list(lines),
        "flightRecorder": recorded,
    }


def _spokesman(subject: Subject) -> tuple[int, int]:
    """The process that runs the script, and the signal for which it listens; 0: none."""
    hello = subject.spokesman
    if hello is not None and procfs.look(hello.pid) is not None:
        return hello.pid, hello.stacks
    return subject.pid, 0


def _stacks(pid: int, signal: int, file: Path, state: str) -> Stacks:
    read = by_py_spy(pid)
    if read.frames:
        return read
    if state in DEAF:
        return Stacks(remark=f"the process is {STATES.get(state, 'gone')}; {read.remark}")
    asked = by_signal(pid, signal, file)
    return asked if asked.frames else Stacks(remark=f"{asked.remark}; {read.remark}")


def _helpers_lost(pid: int) -> int:
    """Children that have ended, and of which their parent has not taken note."""
    seen = (procfs.look(child) for child in procfs.children_of(pid))
    return sum(it is not None and it.state == "Z" for it in seen)


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
