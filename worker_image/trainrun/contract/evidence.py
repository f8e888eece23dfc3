"""What an agent finds out about its processes: their code, whether they meet, where they stand.

Layer: contract, leaf; parts of the agent's state. Evidence is a summary, told before an attempt
that stands still is ended, and bounded where it is made; all stacks are in the store, in the object
that `layout.hang_key` names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """A file that belongs to the code."""

    path: str
    """Absolute, in the container."""
    digest: str
    """Of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankConnections:
    """Whether the processes of a worker meet those of others, as far as its agent has seen."""

    known: bool = False
    """Some process has opened the master port, or has spoken to its agent: it knows its rank."""
    elsewhere: bool = False
    """A rank is connected to others by a port of its own."""
    placed: bool = False
    """A rank has asked the library for its place."""
    leaders: tuple[int, ...] = ()
    """Ranks whose process has started a rank 0 of another group, as a launcher does."""
    launcher: str = ""
    """The program that did."""
    mpi: bool = False
    """Each rank has loaded MPI, without a launcher of MPI: it is rank 0 of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """How far a training is in its attempt, as its framework has posted it without the script.

    For display alone, and where the script itself reports nothing: a step that was posted is none
    that was reported, whatever it says.
    """

    step: int | None = None
    """The step that it is at."""
    total: int | None = None
    """The step at which it ends."""
    percent: int | None = None
    """How much of it is done, 0 to 100."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the newest post, JSON-safe (see `contract.metrics`)."""
    remaining: float | None = None
    """Seconds from the newest post until it ends, if it goes on as in this attempt so far."""


MOST_FRAMES = 16
"""Frames of a summary, the innermost ones."""
NAME_WIDTH = 80
"""Characters of the name of a function."""
FILE_WIDTH = 120
"""Characters of the end of its file's path."""
KERNEL_WIDTH = 160
"""Characters of what a process waits for in the kernel."""
MOST_LINES, LINE_WIDTH = 5, 200
"""Last lines of a rank's output, and characters of each."""
EVIDENCE_SECONDS = 10.0
"""For which evidence is waited at most, from the moment at which it is asked for."""

ReadBy = Literal[
    "",  # no stack could be read
    "faulthandler",  # the process wrote it itself, asked by a signal for which it listens
    "py-spy",  # read from its memory
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call on a stack."""

    name: str
    """`DataLoader.__next__`, or what is known of it."""
    file: str
    """The end of its path, with the folders around it."""
    line: int = 0
    own: bool = False
    """The file is none of the standard library's or of an installed package: the script's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """One rank, as it was found."""

    rank: int
    step: int | None = None
    """The last one that it has reported in this attempt."""
    state: str = ""
    """As /proc shows it: R runs, S sleeps, D waits in the kernel, T is stopped, Z has ended; of the
    thread that runs the script. Empty: not known."""
    cpu: float = 0.0
    """Cores that it used while it was looked at; of all its threads, not of its helpers."""
    stack: tuple[Frame, ...] = ()
    """Of the thread that runs the script, innermost first."""
    read_by: ReadBy = ""
    kernel: str = ""
    """What it waits for in the kernel: `read of /data/shard-7`, `fuse_wait`; empty: not known."""
    helpers_lost: int = 0
    """Processes that it started and that have ended without being waited for."""
    gpu: bool = False
    """It has opened a GPU: to wait for it may be to spin, as it is with CUDA."""
    last_lines: tuple[str, ...] = ()
    """Of its output, masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Of one worker; the same until another one is asked for."""

    attempt: int
    number: int
    """Of the request that it answers."""
    ranks: tuple[RankEvidence, ...] = ()
    """Those whose processes lived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """Find out where the ranks of `attempt` stand. Each number is answered once."""

    attempt: int
    number: int
