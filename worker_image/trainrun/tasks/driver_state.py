"""What a driver knows beyond its log: calls and their inputs, unreadable results, the next plan.

Layer: tasks, pure. `ReplayedState` has what the log says. This adds which call takes which result,
which results cannot be read, and which calls fail because of another one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from trainrun.errors import TrainRunError
from trainrun.tasks import LostReason
from trainrun.tasks.calls import Call, ObjectRef
from trainrun.tasks.records import Done, Given, Output, Rebuild, Record, Reset, TaskRun
from trainrun.tasks.replayed_state import Entry, ReplayedState
from trainrun.tasks.verdicts import cancelled_error, error_of, lost_error, name_of


@dataclass(frozen=True, slots=True)
class Ready:
    """The results exist."""

    outputs: tuple[Output, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Broken:
    """There will be no result, and why."""

    error: TrainRunError
    pickled: str = ""
    """The function's own exception, pickled, base64; empty if there is none."""


Outcome = Ready | Broken


@dataclass(slots=True)
class Plan:
    """What to do now. A dict serves as an ordered set."""

    records: list[Record] = field(default_factory=list)
    """To append; they take effect after `logged`."""
    starts: dict[tuple[int, TaskRun], None] = field(default_factory=dict)
    stops: list[tuple[int, TaskRun]] = field(default_factory=list)
    acknowledged: list[tuple[int, TaskRun]] = field(default_factory=list)
    """Ends that are in the log or no longer needed."""
    looks: list[tuple[str, int]] = field(default_factory=list)
    """Objects to search for; the answer is `present` or `lost`."""
    settled: dict[str, None] = field(default_factory=dict)
    """Keys whose outcome is new or has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Progress of the program."""

    total: int = 0
    """Tasks called so far."""
    done: int = 0
    """Tasks ever committed; never decreases within a program."""
    running: int = 0
    waiting: int = 0
    failed: int = 0
    """Tasks that will never have a result, including cancelled ones and those that need one."""
    retried: int = 0
    """Retries in the whole log."""
    rebuilt: int = 0
    """Rebuilds in the whole log."""


Phase = Literal["Idle", "Queued", "Running", "Logging"]
"""Logging: one of its records is being appended to the log."""


@dataclass(slots=True)
class Task:
    """A call of this program."""

    call: Call
    order: int
    cancelling: bool
    """Cancelled; the log may not show it yet."""
    phase: Phase = "Idle"
    unmet: int = 0
    """Missing inputs; up to date in every phase."""
    evicted: bool = False
    """Its arguments were dropped (`lineage_limit`)."""


class DriverState:
    """See the module."""

    def __init__(self, replayed: ReplayedState) -> None:
        self.replayed = replayed
        self.tasks: dict[str, Task] = {}
        self.giving: set[str] = set()
        """Values of `put` whose record is being appended."""
        self.off: dict[ObjectRef, str | None] = {}
        """Committed results that cannot be read, with the reason; None while they are searched
        for."""
        self.broken: dict[str, Broken] = {}
        """By key, including the calls of this program that the log shows as failed."""
        self.done = 0
        """Calls of this program ever committed."""
        self.dirty: dict[str, None] = {}
        """Keys to evaluate again."""
        self.plan = Plan()
        """The plan that `decide` returns next."""
        self.wants: Counter[str] = Counter()
        """Number of waiters by key."""
        self._takers: dict[ObjectRef, list[Task]] = {}

    def add(self, call: Call) -> Task:
        """Add a call that the program makes for the first time."""
        task = Task(call, len(self.tasks), self.entry(call.key).cancelled)
        self.tasks[call.key] = task
        for ref in dict.fromkeys(call.inputs):
            self._takers.setdefault(ref, []).append(task)
            task.unmet += not self.there(ref)
        return task

    def entry(self, key: str) -> Entry:
        """The key's entry in the log; an empty one if the log does not have it."""
        return self.replayed.entries.get(key) or Entry(key)

    def newest(self, key: str) -> TaskRun:
        """Its newest try."""
        entry = self.entry(key)
        return TaskRun(key=key, generation=entry.generation, number=entry.number)

    def current(self, run: TaskRun) -> bool:
        """This try is the newest and has no end in the log."""
        return self.entry(run.key).open and self.newest(run.key) == run

    def results(self, key: str) -> list[ObjectRef]:
        """The results of its newest commit."""
        return [ObjectRef(key, index) for index in range(len(self.entry(key).outputs))]

    def stored(self, ref: ObjectRef) -> bool:
        """Whether this is a committed result with an object of its own."""
        entry = self.entry(ref.key)
        outputs = entry.outputs if entry.done else ()
        return ref.index < len(outputs) and not outputs[ref.index].inline

    def there(self, ref: ObjectRef) -> bool:
        """Whether this result can be read, as far as the driver knows."""
        entry = self.entry(ref.key)
        there = entry.done and ref.index < len(entry.outputs) and ref not in self.off
        return there and not self._refused(entry)

    def _refused(self, entry: Entry) -> bool:
        """A rebuild gave different content, and the call does not accept that."""
        task = self.tasks.get(entry.key) if entry.changed else None
        return task is not None and task.call.options.on_change == "fail"

    def lost_refs(self, key: str) -> list[ObjectRef]:
        """The lost results of this key."""
        if not self.off:
            return []
        return [ref for ref in self.results(key) if self.off.get(ref) is not None]

    def fold(self, record: Done | Given | Rebuild | Reset) -> None:
        """Apply a record that may change which results of its key can be read."""
        before = self._takable(record.key)
        self.replayed.fold(record)
        after = self._takable(record.key)
        for ref in before ^ after:
            self.flip(ref, there=ref in after)

    def _takable(self, key: str) -> set[ObjectRef]:
        return {ref for ref in self.results(key) if self.there(ref)}

    def flip(self, ref: ObjectRef, *, there: bool) -> None:
        """Mark a result as readable, or as no longer readable."""
        for task in self._takers.get(ref, ()):
            task.unmet += -1 if there else 1
            if not (there and task.unmet):
                self.dirty[task.call.key] = None

    def touch(self, key: str) -> None:
        """Evaluate again every call that takes a result of this key."""
        task = self.tasks.get(key)
        count = max(len(self.entry(key).outputs), task.call.options.num_returns if task else 1)
        for index in range(count):
            for taker in self._takers.get(ObjectRef(key, index), ()):
                self.dirty[taker.call.key] = None

    def settle(self, key: str, broken: Broken | None) -> None:
        """Set the outcome of a key: `broken`, or what the log says."""
        self.broken.pop(key, None)
        if broken is not None:
            self.broken[key] = broken
        else:
            self.break_of(key)
        self.plan.settled[key] = None
        self.touch(key)

    def waited_for(self, key: str, refs: list[ObjectRef]) -> bool:
        """Whether a caller waits for this key, or a call that has yet to run takes one of
        `refs`."""
        takers = (taker for ref in refs for taker in self._takers.get(ref, ()))
        return self.wants[key] > 0 or any(self._waits(taker) for taker in takers)

    def _waits(self, task: Task) -> bool:
        key = task.call.key
        due = task.phase in ("Idle", "Queued") and not task.cancelling
        return due and key not in self.broken and not self.entry(key).settled

    def break_of(self, key: str) -> Broken | None:
        """Why this key will have no result; None if that is not known."""
        broken = self.broken.get(key)
        if broken is not None:
            return broken
        entry, task = self.entry(key), self.tasks.get(key)
        if entry.final is not None:
            broken = Broken(error_of(entry.final), entry.final.error)
        elif entry.cancelled and not entry.done:
            # It had a result once, which its readers have lost.
            never = Broken(cancelled_error(self.name(key), key))
            broken = self.lost("Cancelled", key) if entry.generation > 1 else never
        elif self._refused(entry):
            broken = self.lost("OutputChanged", key)
        elif task is not None and task.evicted and not entry.done:
            # A user asked for a rebuild that cannot run.
            broken = self.lost("LineageEvicted", key)
        elif task is None and not entry.done and key not in self.giving:
            return self.lost("Unknown", key)  # not stored: the program may still call it
        else:
            return None
        self.broken[key] = broken
        return broken

    def lost(self, reason: LostReason, key: str, wanted: str = "") -> Broken:
        """The outcome of a key that cannot be rebuilt; `wanted`: the key that needs it."""
        needed_by = self.name(wanted) if wanted not in ("", key) else ""
        return Broken(lost_error(reason, key, self.name(key), needed_by))

    def name(self, key: str) -> str:
        """The key's name in messages."""
        task, entry = self.tasks.get(key), self.entry(key)
        if task is not None:
            return name_of(task.call.shown or task.call.function, key)
        shown = "a value of tasks.put" if entry.given else entry.arguments or "a call"
        return name_of(shown, key)
