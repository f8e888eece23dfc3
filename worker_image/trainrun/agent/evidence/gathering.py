"""Gathers evidence of a hang when the operator asks, reports it at once, stores it in background.

Layer: agent. Nothing waits for it: a rank without results in time is reported as such, and
heartbeats continue meanwhile. Each request is answered once.

The agent gathers what it can about a hanging rank within seconds, in a thread, since it may block
on a process, a program or a file of /proc. py-spy reads the stacks from the rank's memory, or the
rank writes them itself with faulthandler. Both may fail, and neither may do harm: py-spy only reads
and does not stop the process; the signal is sent only to a process that announced it and has a
handler for it.
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
"""Seconds until the agent reports what it has: the heartbeat takes time, too."""
STORED_WITHIN = 300.0
"""Seconds to retry storing the evidence."""
PY_SPY = "py-spy"
PY_SPY_SECONDS = 4.0
"""It first reads the interpreter's symbols, which takes a second for a large one."""
WRITTEN_WITHIN = 2.0
"""Time limit in seconds for a process to write its stacks completely."""
QUIET = 0.1
"""Seconds without a new byte after which its dump is complete."""
LARGEST_DUMP = 64 * 1024
"""Bytes kept of a dump: the last ones, which hold the main thread."""
WINDOW = 0.5
"""Seconds over which the CPU use of a process is measured."""
DEAF = ("T", "t", "D", "Z", "X")
"""States in which a process handles no signal."""
STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "in the kernel"}


@dataclass(slots=True, kw_only=True)
class EvidenceCollector:
    """Gathers evidence on request; of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    evidence: Evidence | None = None
    """The result of the current request; None: not ready yet, or no request."""
    _request: EvidenceRequest | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def want(self, request: EvidenceRequest | None, subjects: Iterable[Subject]) -> None:
        """The operator's current request, or None; `subjects`: the ranks to examine."""
        if request == self._request:
            return
        self._request, self.evidence = request, None
        if request is not None:
            LOG.info("the gang makes no progress: gathering evidence from its ranks")
            task = background.run(self._gather(request, tuple(subjects)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stored(self) -> None:
        """Wait until all evidence is stored or given up."""
        await asyncio.gather(*self._tasks)

    async def _gather(self, request: EvidenceRequest, subjects: tuple[Subject, ...]) -> None:
        threads = (dumps.in_thread(partial(look_at, subject)) for subject in subjects)
        looks = list(map(asyncio.wrap_future, threads))
        if looks:
            await asyncio.wait(looks, timeout=IN_TIME)
        found = [_result(look, subject) for look, subject in zip(looks, subjects, strict=True)]
        evidence = tuple(result.evidence for result in found)
        if request == self._request:
            self.evidence = Evidence(attempt=request.attempt, number=request.number, ranks=evidence)
            self.news()
        await self._store(request, [result.record for result in found])

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
    """The evidence of a rank; only its step if that took too long."""
    if look.done() and look.exception() is None:
        return look.result()
    why = repr(look.exception()) if look.done() else f"no evidence within {IN_TIME:g} s"
    LOG.warning("rank %d: %s", subject.rank, why)
    look.cancel()
    evidence = RankEvidence(rank=subject.rank, step=subject.step)
    return Found(
        evidence=evidence,
        record={"rank": subject.rank, "step": subject.step, "pid": subject.pid, "remark": why},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A rank to examine."""

    rank: int
    pid: int
    """Of the process that the agent started, which may be a shell."""
    spokesman: Hello | None
    """The hello of the process that reports for the rank; None: none yet."""
    step: int | None
    last_lines: tuple[str, ...]
    stacks: Path
    """The file that it writes its stacks to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The evidence of a rank: what is reported and what is stored."""

    evidence: RankEvidence
    record: dict[str, object]
    """JSON; masked."""


def look_at(subject: Subject) -> Found:
    """Examine a rank; takes a few seconds at most, unless the kernel blocks."""
    pid, signal = _spokesman(subject)
    begin, before = time.monotonic(), procfs.look(pid)
    state = before.state if before is not None else ""
    kernel = procfs.waits_for(pid)
    stacks = _stacks(pid, signal, subject.stacks, state)
    time.sleep(max(0.0, begin + WINDOW - time.monotonic()))
    after, passed = procfs.look(pid), time.monotonic() - begin
    used = procfs.cores(before, after, passed) if before is not None and after is not None else 0.0
    lines = tuple(map(masked, subject.last_lines))
    evidence = RankEvidence(
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
    return Found(evidence=evidence, record=_record(evidence, pid, stacks, lines))


def _record(
    evidence: RankEvidence, pid: int, stacks: Stacks, lines: tuple[str, ...]
) -> dict[str, object]:
    recorded = dumps.of_flight_recorder(pid, evidence.rank) if evidence.state not in DEAF else None
    return {
        "rank": evidence.rank,
        "step": evidence.step,
        "pid": pid,
        "state": evidence.state,
        "cpu": evidence.cpu,
        "readBy": evidence.read_by,
        "remark": masked(stacks.remark),
        "stacks": masked(stacks.text),
        "kernel": evidence.kernel,
        "kernelStack": procfs.kernel_stack(pid),
        "helpersLost": evidence.helpers_lost,
        "gpu": evidence.gpu,
        "lastLines": list(lines),
        "flightRecorder": recorded,
    }


def _spokesman(subject: Subject) -> tuple[int, int]:
    """The process that runs the script, and the signal that makes it dump stacks; 0: none."""
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
    """How many children have ended and were not waited for by their parent."""
    children = (procfs.look(child) for child in procfs.children_of(pid))
    return sum(child is not None and child.state == "Z" for child in children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """The stacks of one process."""

    frames: tuple[Frame, ...] = ()
    """Of the main thread, innermost first."""
    text: str = ""
    """The dump of all threads."""
    read_by: ReadBy = ""
    remark: str = ""
    """Why there are none, or none from py-spy."""


def by_py_spy(pid: int) -> Stacks:
    """Read the memory of the process, if py-spy is installed and allowed to."""
    program = shutil.which(PY_SPY)
    if program is None:
        return Stacks(remark=f"{PY_SPY} is not installed")
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        # Its exit code may be lost, since the agent reaps all its children.
        done = subprocess.run(
            command, capture_output=True, timeout=PY_SPY_SECONDS, text=True, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Stacks(remark=f"{PY_SPY}: {error}"[:200])
    try:
        frames = dumps.of_py_spy(done.stdout, pid)
    except (ValueError, TypeError, KeyError, AttributeError):
        lines = done.stderr.strip().splitlines() or ["it printed no stacks"]
        return Stacks(remark=f"{PY_SPY}: {lines[0]}"[:200])
    if not frames:
        return Stacks(remark=f"{PY_SPY} found no Python in the process")
    return Stacks(frames=frames, text=done.stdout[:LARGEST_DUMP], read_by="py-spy")


def by_signal(pid: int, signal: int, file: Path) -> Stacks:
    """Make the process write its stacks, if it handles the signal."""
    if not signal:
        return Stacks(remark="the process has not imported trainrun, or its system has no signal")
    if not procfs.takes(pid, signal):
        return Stacks(remark=f"the process no longer handles signal {signal}")
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
    """Text appended to the file from now on, until it stops growing."""
    end = time.monotonic() + WRITTEN_WITHIN
    size, changed = before, time.monotonic()
    while (now := time.monotonic()) < end and (size == before or now - changed < QUIET):
        time.sleep(0.02)
        if (newest := file.stat().st_size) != size:
            size, changed = newest, time.monotonic()
    with file.open("rb") as dump:
        dump.seek(max(before, size - LARGEST_DUMP))
        return dump.read(LARGEST_DUMP).decode(errors="replace")
