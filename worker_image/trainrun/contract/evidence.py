"""An agent's findings about its processes: their code, their connections, their stacks.

Layer: contract, leaf; parts of the agent's state. Evidence is a summary, reported before a hanging
attempt is ended, and bounded where it is made; the store has the full stacks, at
`layout.hang_key`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from trainrun.contract.ages import Age, Changing


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """A file of the training code."""

    path: str
    """Absolute path in the container."""
    digest: str
    """Digest of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankConnections:
    """Whether the processes of a worker connect to those of others, as far as the agent can see."""

    known: bool = False
    """A process has opened the master port, or has contacted its agent: it knows its rank."""
    elsewhere: bool = False
    """A rank is connected to others through another port."""
    placed: bool = False
    """A rank has asked the library for its place."""
    leaders: tuple[int, ...] = ()
    """Ranks whose process has started a rank 0 of another group, as a launcher does."""
    launcher: str = ""
    """The program that started it."""
    mpi: bool = False
    """All ranks have loaded MPI without an MPI launcher: each is rank 0 of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """Progress of a training in its attempt, as posted by its framework instead of the script.

    For display only, and only if the script itself reports nothing: a posted step never counts as a
    reported one.
    """

    step: int | None = None
    """The current step."""
    total: int | None = None
    """The step at which the training ends."""
    percent: int | None = None
    """How much is done, 0 to 100."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the newest post, JSON-safe (see `contract.metrics`)."""
    remaining: float | None = None
    """Seconds from the newest post until the end, at the attempt's pace so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputProgress:
    """Progress of a training in its attempt, as read from its output.

    It counts only if the script itself reports nothing, and never for budgets.
    """

    rank: int
    """The rank that prints it."""
    form: str
    """What prints such lines: `nanoGPT`, `tqdm`; or `pattern 1`, the user's."""
    line: str
    """The line from which it was recognised (at most 120 characters)."""
    first: int = 0
    """The first step in it."""
    step: Changing[int | None] = None
    """The highest step. Absent: its numbers begin again with each epoch."""
    total: int | None = None
    """The step at which the training ends, if it says so."""
    metrics: Changing[dict[str, Any]] = field(default_factory=dict)
    """The newest value of each metric, JSON-safe (see `contract.metrics`)."""
    began: Age | None = None
    """Seconds since its first sign of life: a line that moved against the one before it."""
    moved: Age | None = None
    """Seconds since its newest one."""
    owes: Changing[float | None] = None
    """As `AgentState.owes`, since its last sign of life."""
    slowest: Changing[float] = 0.0
    """Longest time in seconds between two signs of life; 0: not known."""


MOST_FRAMES = 16
"""Maximum frames of a summary, the innermost ones."""
NAME_WIDTH = 80
"""Maximum characters of a function's name."""
FILE_WIDTH = 120
"""Maximum characters of the end of its file's path."""
KERNEL_WIDTH = 160
"""Maximum characters of the kernel call that a process waits in."""
MOST_LINES, LINE_WIDTH = 5, 200
"""Last lines of a rank's output, and characters of each."""
EVIDENCE_SECONDS = 10.0
"""Maximum seconds to wait for evidence, from the request on."""

ReadBy = Literal[
    "",  # no stack could be read
    "faulthandler",  # the process wrote it itself, on a signal that it handles
    "py-spy",  # read from its memory
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call on a stack."""

    name: str
    """`DataLoader.__next__`, or as much of it as is known."""
    file: str
    """The end of its path, including parent folders."""
    line: int = 0
    own: bool = False
    """The file is the script's own: neither the standard library's nor an installed package's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """The state of one rank."""

    rank: int
    step: int | None = None
    """The last step that it reported in this attempt."""
    state: str = ""
    """State in /proc of the thread that runs the script: R runs, S sleeps, D waits in the kernel, T
    is stopped, Z has ended. Empty: not known."""
    cpu: float = 0.0
    """Cores used during the observation, by all its threads, without child processes."""
    stack: tuple[Frame, ...] = ()
    """Stack of the thread that runs the script, innermost first."""
    read_by: ReadBy = ""
    kernel: str = ""
    """The kernel call that it waits in: `read of /data/shard-7`, `fuse_wait`; empty: not known."""
    helpers_lost: int = 0
    """Number of child processes that have ended without being waited for."""
    gpu: bool = False
    """It has opened a GPU: waiting for it may mean spinning, as with CUDA."""
    last_lines: tuple[str, ...] = ()
    """Last lines of its output, masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of one worker; unchanged until the next request."""

    attempt: int
    number: int
    """Number of the request that it answers."""
    ranks: tuple[RankEvidence, ...] = ()
    """The ranks whose processes were alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """Find out where the ranks of `attempt` hang. Each number is answered once."""

    attempt: int
    number: int
