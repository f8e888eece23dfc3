"""The timing of an attempt: its steps, owed steps, checkpoint loads, calls of `should_save()`.

Layer: agent, pure bookkeeping on the monotonic clock. Invariants: no step is owed while a process
waits for its agent (a checkpoint to read, room in a full backlog, the outcome of a vote) or is in a
long section; the count restarts when such a time ends, and with every report. A transfer that never
ends excuses ranks only for a limited time. After it was suspended, an agent knows nothing: it has
not read the messages of that time yet. The slowest step excludes the first one of an attempt, which
imports and compiles.

A notice waits for the next call of `should_save()`: evaluation loops and compilations make none.
The reported wait is never longer than the real one: a call is noticed at the next check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainrun.contract.agent_state import LongSection, Problem
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.local_files import CallGate
from trainrun.contract.messages import SectionBegun

LATE = 5.0
"""Seconds without a tick or check after which the agent or its machine was suspended, and with it
the ranks."""

LONGEST_WAIT = 4 * 3600.0
"""Seconds for which waiting for the agent excuses a rank from steps: at 140 MB/s a checkpoint of
1 TB takes half of that. Anything longer hangs, in a store or a file system."""


@dataclass(slots=True, kw_only=True)
class StepClock:
    """How long processes have owed a step, and which long sections they are in; of one attempt."""

    excused: Callable[[], bool] = bool
    """Whether a process waits for something that it cannot influence."""
    away: Callable[[], bool] = bool
    """Whether the store is known to be away, which is reported and waited for without limit."""
    slowest: float = 0.0
    """The longest time in seconds that a step was owed before it came; 0: unknown."""
    _reported: bool = False
    _since: float = 0.0
    _ticked: float = 0.0
    _free: float = 0.0
    """The last time when no process waited for the agent, or the store was known to be away."""
    _waiting: int = 0
    _sections: dict[tuple[int, int], tuple[SectionBegun, float]] = field(default_factory=dict)
    """By rank and number, with when each began."""

    def start(self, now: float) -> None:
        """The processes were started."""
        self._since = self._ticked = self._free = now

    def tick(self, now: float) -> None:
        """Called about once a second."""
        gap = now - self._ticked
        if not self._waits() or self.away():
            self._free = now
        if gap > LATE:
            self._since = now
            # The processes were most likely suspended too: do not count the gap.
            for key, (section, since) in self._sections.items():
                self._sections[key] = section, since + gap
        self._ticked = now

    def stepped(self, now: float) -> None:
        """A process has reported."""
        owed = self.owes(now)
        if self._reported and owed is not None:
            self.slowest = max(self.slowest, owed)
        self._reported = True
        self.moved(now)

    def moved(self, now: float) -> None:
        """A process has reported or otherwise shown progress."""
        self._since = now

    def begin_wait(self) -> None:
        """A process begins to wait for its agent."""
        self._waiting += 1

    def end_wait(self, now: float) -> None:
        """The process has its answer, or has ended."""
        self._waiting -= 1
        self._since = now

    def begun(self, rank: int, section: SectionBegun, now: float) -> None:
        """A rank has entered a long section."""
        self._sections[rank, section.number] = (section, now)

    def ended(self, rank: int, number: int, now: float) -> None:
        """The rank has left the section."""
        if self._sections.pop((rank, number), None) is not None:
            self._since = now

    def left(self, rank: int, now: float) -> None:
        """The rank's process has ended, so it has left all sections."""
        for key in [key for key in self._sections if key[0] == rank]:
            self.ended(*key, now)

    def owes(self, now: float) -> float | None:
        """Seconds for which a step has been owed; None: no step is owed, or unknown."""
        if self._sections or now - self._ticked > LATE:
            return None
        if not self._waits():
            return max(now - self._since, 0.0)
        late = now - max(self._since, self._free) - LONGEST_WAIT
        return late if late > 0 else None

    def _waits(self) -> bool:
        return self._waiting > 0 or self.excused()

    def section(self, now: float) -> LongSection | None:
        """The open section that will exceed its timeout first, or has exceeded it longest."""
        until = min(now, self._ticked + LATE)
        found = [
            LongSection(
                rank=rank, name=begun.name, timeout=begun.seconds, lasts=max(until - since, 0.0)
            )
            for (rank, _), (begun, since) in sorted(self._sections.items())
        ]
        return min(found, key=lambda section: section.timeout - section.lasts, default=None)


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """What the ranks of one attempt have reported, and whether they ignored the checkpoint."""

    ranks: tuple[int, ...]
    resume: CheckpointId | None
    metrics: Mapping[str, object] = field(default_factory=dict)
    """Last metrics of the lowest rank that reports any."""
    first_report: float | None = None
    """When the first report came."""
    last_report: float | None = None
    """When the newest report came."""
    finished: set[int] = field(default_factory=set)
    """Ranks that called `trainrun.finish()`."""
    asked_for_checkpoint: bool = False
    """A rank called `trainrun.get_checkpoint()`."""
    loaded: bool = False
    """A rank has requested its files."""
    ignored: Problem | None = None
    """A rank began below the step of its checkpoint."""
    _metrics_rank: int | None = None
    _reported_ranks: set[int] = field(default_factory=set)

    def report(self, rank: int, step: int, metrics: Mapping[str, object], now: float) -> None:
        """Take a report into account."""
        if self.first_report is None:
            self.first_report = now
        self.last_report = now
        if rank not in self._reported_ranks:
            self._reported_ranks.add(rank)
            self._look_for_ignored_resume(rank, step)
        if metrics and (self._metrics_rank is None or rank <= self._metrics_rank):
            self.metrics, self._metrics_rank = metrics, rank

    @property
    def all_finished(self) -> bool:
        """Every rank has called `trainrun.finish()`."""
        return self.finished.issuperset(self.ranks)

    def _look_for_ignored_resume(self, rank: int, step: int) -> None:
        if self.resume is None or step >= self.resume.step or self.ignored is not None:
            return
        again = "loaded it but restarted its step count. Report a step that grows over all epochs"
        over = "started over. Load it with trainrun.get_checkpoint() and continue at its step + 1"
        self.ignored = Problem(
            type="StepsCountAnew" if self.loaded else "ResumeIgnored",
            reason="StartedBelowResumeStep",
            message=f"the first report of rank {rank} is step {step}, but it was handed the "
            f"checkpoint of step {self.resume.step}: the script {again if self.loaded else over}",
        )


@dataclass(slots=True)
class Loading:
    """When processes requested a checkpoint, and how long they waited; of one attempt.

    A context manager for the time that a process waits; several may be in it at once.
    """

    first: float | None = None
    """When the first one asked, on the monotonic clock."""
    last: float | None = None
    """When the last one got its answer."""
    _waiting: int = 0

    def __enter__(self) -> None:
        """A process asks."""
        self.first = self.first if self.first is not None else time.monotonic()
        self._waiting += 1

    def __exit__(self, *_: object) -> None:
        """It has its answer, or has ended."""
        self._waiting -= 1
        self.last = time.monotonic()

    def before(self, spawned: float) -> float:
        """Seconds from the spawn until the first request; 0: none yet."""
        return 0.0 if self.first is None else max(self.first - spawned, 0.0)

    def seconds(self, now: float) -> float:
        """Seconds from the first request to the last answer."""
        if self.first is None:
            return 0.0
        end = now if self._waiting or self.last is None else self.last
        return end - self.first


@dataclass(slots=True, kw_only=True)
class Asking:
    """How often the processes of a worker call `should_save()`; of one attempt."""

    files: Mapping[int, CallGate]
    """Control files by rank."""
    longest: float = 0.0
    """The longest time in seconds between two calls of a rank, including the time since its last
    one; 0 before any first call."""
    fewest: int = 0
    """Calls of the living rank that has made the fewest."""
    pause: float = 0.0
    """Seconds since its last call, or since it was first checked."""
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By rank, its number of calls and when a check first found that number."""
    _looked: float = 0.0

    def look(self, living: tuple[int, ...], now: float, *, stopped: bool) -> None:
        """Check the calls; `now` is monotonic; `stopped`: ranks may be waiting in a call."""
        nothing_known = stopped or now - self._looked > LATE
        self._looked = now
        for rank in living:
            calls = self.files[rank].calls
            before = self._seen.get(rank)
            if before is None or nothing_known or calls != before[0]:
                self._seen[rank] = (calls, now)
            elif calls:
                self.longest = max(self.longest, now - before[1])
        self.fewest, since = min((self._seen[rank] for rank in living), default=(0, now))
        self.pause = now - since
