"""One rank that stands still: everything that can be found out about it within seconds.

Layer: agent. Runs in a thread, since some of it waits: for a process, a program, a file of /proc.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun.agent.evidence import flight, procfs
from trainrun.agent.evidence.asking import Stacks, by_py_spy, by_signal
from trainrun.agent.processes.children import children_of
from trainrun.agent.processes.group import TrainingProcess
from trainrun.contract.evidence import KERNEL_WIDTH, LINE_WIDTH, MOST_LINES, RankEvidence
from trainrun.contract.masking import masked
from trainrun.contract.messages import Hello

WINDOW = 0.5
"""Seconds over which the CPU of a process is measured."""
DEAF = ("T", "t", "D", "Z", "X")
"""States in which a process takes no signal."""
STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "in the kernel"}


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


def subjects_of(
    living: Iterable[TrainingProcess], last_step: Callable[[int], int], stacks: Mapping[int, Path]
) -> tuple[Subject, ...]:
    """Where to look for these processes; the last step of a rank is -1 before the first."""
    return tuple(
        Subject(
            rank=process.rank,
            pid=process.pid,
            spokesman=process.hello,
            step=step if (step := last_step(process.rank)) >= 0 else None,
            last_lines=process.pump.tail.last_lines if process.pump is not None else (),
            stacks=stacks[process.rank],
        )
        for process in living
    )


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
        "flightRecorder": flight.dumped(pid, told.rank) if told.state not in DEAF else None,
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
    seen = (procfs.look(child) for child in children_of(pid))
    return sum(it is not None and it.state == "Z" for it in seen)
