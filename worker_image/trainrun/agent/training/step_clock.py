"""The moments of an attempt: its steps, what it owes, its checkpoint, its calls of `should_save()`.

Layer: agent, pure bookkeeping on the monotonic clock. Invariants: nothing is owed while a process
waits for its agent (a checkpoint to read, room in a full backlog, the outcome of a vote) or is in a
long section; what ends such a time begins the count anew, and so does every report. A transfer
that never ends excuses nobody for ever. An agent that stood still itself knows nothing: what was
said meanwhile it has not read yet. The slowest step is one that was owed and came: not the first of
an attempt, which imports and compiles.

A notice waits for the next call of `should_save()`: evaluation loops and compilations make none.
What is told of that is never more than what has passed: a call is seen at the look after it.
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
"""Seconds without a tick, or a look, after which the agent, or its machine, has stood still, and so
have the ranks."""

LONGEST_WAIT = 4 * 3600.0
"""Seconds for which waiting for the agent excuses from a step: a checkpoint of 1 TB is read or
stored in half of that at 140 MB/s. What takes longer hangs, in a store or a file system."""


@dataclass(slots=True, kw_only=True)
class StepClock:
    """How long processes have owed a step, and which long sections they are in; of one attempt."""

    excused: Callable[[], bool] = bool
    """Whether some process waits for something that is none of its doing."""
    away: Callable[[], bool] = bool
    """Whether the store is known to be away, which is told and waited for without end."""
    slowest: float = 0.0
    """Seconds for which a step was owed at most before it came; 0: nobody knows."""
    _reported: bool = False
    _since: float = 0.0
    _ticked: float = 0.0
    _free: float = 0.0
    """When last nobody waited for the agent, or it was known for what."""
    _waiting: int = 0
    _sections: dict[tuple[int, int], tuple[SectionBegun, float]] = field(default_factory=dict)
    """By rank and number, with when each began."""

    def start(self, now: float) -> None:
        """The processes are started."""
        self._since = self._ticked = self._free = now

    def tick(self, now: float) -> None:
        """Called about once a second."""
        gap = now - self._ticked
        if not self._waits() or self.away():
            self._free = now
        if gap > LATE:
            self._since = now
            # The processes have most likely stood still as well: it is no time of theirs.
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
        """A process has reported, or shown otherwise that it works."""
        self._since = now

    def waits(self) -> None:
        """A process begins to wait for its agent."""
        self._waiting += 1

    def goes_on(self, now: float) -> None:
        """It has waited, or has gone."""
        self._waiting -= 1
        self._since = now

    def begun(self, rank: int, section: SectionBegun, now: float) -> None:
        """A rank is in a long section."""
        self._sections[rank, section.number] = (section, now)

    def ended(self, rank: int, number: int, now: float) -> None:
        """It has left it."""
        if self._sections.pop((rank, number), None) is not None:
            self._since = now

    def left(self, rank: int, now: float) -> None:
        """Its process has ended, wherever it was."""
        for key in [key for key in self._sections if key[0] == rank]:
            self.ended(*key, now)

    def owes(self, now: float) -> float | None:
        """Seconds for which a step has been owed; None: none is, or nobody knows."""
        if self._sections or now - self._ticked > LATE:
            return None
        if not self._waits():
            return max(now - self._since, 0.0)
        late = now - max(self._since, self._free) - LONGEST_WAIT
        return late if late > 0 else None

    def _waits(self) -> bool:
        return self._waiting > 0 or self.excused()

    def section(self, now: float) -> LongSection | None:
        """The open section whose time is over first, or has been over longest."""
        until = min(now, self._ticked + LATE)
        found = [
            LongSection(
                rank=rank, name=begun.name, timeout=begun.seconds, lasts=max(until - since, 0.0)
            )
            for (rank, _), (begun, since) in sorted(self._sections.items())
        ]
        return min(found, key=lambda it: it.timeout - it.lasts, default=None)


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """What the ranks of one attempt have reported, and signs of a common mistake."""

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
    """A rank has asked for files of it."""
    ignored: Problem | None = None
    """A rank began below the step that it was handed."""
    _metrics_rank: int | None = None
    _heard: set[int] = field(default_factory=set)

    def report(self, rank: int, step: int, metrics: Mapping[str, object], now: float) -> None:
        """Take a report into account."""
        if self.first_report is None:
            self.first_report = now
        self.last_report = now
        if rank not in self._heard:
            self._heard.add(rank)
            self._look_for_ignored_resume(rank, step)
        if metrics and (self._metrics_rank is None or rank <= self._metrics_rank):
            self.metrics, self._metrics_rank = metrics, rank

    @property
    def all_finished(self) -> bool:
        """Every rank said that the training is complete."""
        return self.finished.issuperset(self.ranks)

    def _look_for_ignored_resume(self, rank: int, step: int) -> None:
        if self.resume is None or step >= self.resume.step or self.ignored is not None:
            return
        anew = "has loaded it and counts anew. Report a step that grows over all epochs"
        over = "starts over. Load it with trainrun.get_checkpoint() and go on from its step + 1"
        self.ignored = Problem(
            type="StepsCountAnew" if self.loaded else "ResumeIgnored",
            reason="StartedBelowResumeStep",
            message=f"the first report of rank {rank} is step {step}, but it was handed the "
            f"checkpoint of step {self.resume.step}: the script {anew if self.loaded else over}",
        )


@dataclass(slots=True)
class Loading:
    """When processes asked for a checkpoint, and how long they waited for it; of one attempt.

    Entered while a process waits, by any number at once.
    """

    first: float | None = None
    """When the first one asked, on the monotonic clock."""
    last: float | None = None
    """When the last one had its answer."""
    _waiting: int = 0

    def __enter__(self) -> None:
        """A process asks."""
        self.first = self.first if self.first is not None else time.monotonic()
        self._waiting += 1

    def __exit__(self, *_: object) -> None:
        """It has its answer, or has gone."""
        self._waiting -= 1
        self.last = time.monotonic()

    def before(self, spawned: float) -> float:
        """Seconds from the spawn until the first one asked; 0: none has."""
        return 0.0 if self.first is None else max(self.first - spawned, 0.0)

    def seconds(self, now: float) -> float:
        """Seconds from the first question to the last answer."""
        if self.first is None:
            return 0.0
        end = now if self._waiting or self.last is None else self.last
        return end - self.first


@dataclass(slots=True, kw_only=True)
class Asking:
    """How long the processes of a worker go without asking `should_save()`, in one attempt."""

    files: Mapping[int, CallGate]
    """Control files by rank."""
    longest: float = 0.0
    """Seconds between two calls of one rank at most, the time since its last one included; 0 while
    no rank has asked, as before its first call."""
    fewest: int = 0
    """Calls of the living rank that has made fewest."""
    pause: float = 0.0
    """Seconds since it has made the last of them, or was first seen."""
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By rank its calls, and when a look first found so many."""
    _looked: float = 0.0

    def look(self, living: tuple[int, ...], now: float, *, stopped: bool) -> None:
        """`now` is on the monotonic clock; `stopped`: ranks may be waiting in a call."""
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
