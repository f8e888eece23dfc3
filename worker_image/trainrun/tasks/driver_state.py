"""What is known of the calls of this program and of their results, and what is to be done.

Layer: tasks, pure. What the log says stands in the `ReplayedState`; here is what it does not say:
who takes what, which results cannot be read, and what is broken by something else.
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
    """The results are there."""

    outputs: tuple[Output, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Broken:
    """There will be no result."""

    error: TrainRunError
    pickled: str = ""
    """The function's own exception, base64; empty where there is none."""


Outcome = Ready | Broken


@dataclass(slots=True)
class Plan:
    """What is to be done now, each thing once. A dict is a set in the order of its making."""

    records: list[Record] = field(default_factory=list)
    """To be appended; their effects come after `logged`."""
    starts: dict[tuple[int, TaskRun], None] = field(default_factory=dict)
    stops: list[tuple[int, TaskRun]] = field(default_factory=list)
    acknowledged: list[tuple[int, TaskRun]] = field(default_factory=list)
    """Ends that are in the log, or that nobody needs."""
    looks: list[tuple[str, int]] = field(default_factory=list)
    """Objects to be looked for: `present` or `lost` is the answer."""
    settled: dict[str, None] = field(default_factory=dict)
    """Keys whose outcome has become known, or has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far the program is, for people."""

    total: int = 0
    """Tasks it has called."""
    done: int = 0
    """Those that were ever committed: never falls within a program."""
    running: int = 0
    waiting: int = 0
    failed: int = 0
    """Those without a result for good: also cancelled ones, and those that need one of these."""
    retried: int = 0
    """Retries in the whole log."""
    rebuilt: int = 0
    """Rebuilds in the whole log."""


Phase = Literal["Idle", "Queued", "Running", "Logging"]
"""Logging: a record of it is on its way into the log."""


@dataclass(slots=True)
class Task:
    """A call of this program."""

    call: Call
    order: int
    cancelling: bool
    """It is cancelled; the log may not say so yet."""
    phase: Phase = "Idle"
    unmet: int = 0
    """Inputs that are not there; kept up to date in every phase."""
    evicted: bool = False
    """Its arguments are forgotten."""


class DriverState:
    """See the module."""

    def __init__(self, replayed: ReplayedState) -> None:
        self.replayed = replayed
        self.tasks: dict[str, Task] = {}
        self.giving: set[str] = set()
        """Values of `put` whose record is on its way."""
        self.off: dict[ObjectRef, str | None] = {}
        """Committed results that cannot be read: why they are lost; None: they are looked for."""
        self.broken: dict[str, Broken] = {}
        """Also each call of this program of which the log says so."""
        self.done = 0
        """Calls of this program that were ever committed."""
        self.dirty: dict[str, None] = {}
        """Keys for which something has changed."""
        self.plan = Plan()
        """The one that `decide` gives next."""
        self.wants: Counter[str] = Counter()
        """Keys that somebody waits for, and how many do."""
        self._takers: dict[ObjectRef, list[Task]] = {}

    def add(self, call: Call) -> Task:
        """The program has called this for the first time."""
        task = Task(call, len(self.tasks), self.entry(call.key).cancelled)
        self.tasks[call.key] = task
        for ref in dict.fromkeys(call.inputs):
            self._takers.setdefault(ref, []).append(task)
            task.unmet += not self.there(ref)
        return task

    def entry(self, key: str) -> Entry:
        """What the log says; an empty one where it says nothing."""
        return self.replayed.entries.get(key) or Entry(key)

    def newest(self, key: str) -> TaskRun:
        """Its newest try."""
        entry = self.entry(key)
        return TaskRun(key=key, generation=entry.generation, number=entry.number)

    def current(self, run: TaskRun) -> bool:
        """This try has no end in the log."""
        return self.entry(run.key).open and self.newest(run.key) == run

    def results(self, key: str) -> list[ObjectRef]:
        """Those of its newest commit."""
        return [ObjectRef(key, index) for index in range(len(self.entry(key).outputs))]

    def stored(self, ref: ObjectRef) -> bool:
        """It is a committed result with an object of its own."""
        entry = self.entry(ref.key)
        outputs = entry.outputs if entry.done else ()
        return ref.index < len(outputs) and not outputs[ref.index].inline

    def there(self, ref: ObjectRef) -> bool:
        """It can be taken, as far as is known."""
        entry = self.entry(ref.key)
        there = entry.done and ref.index < len(entry.outputs) and ref not in self.off
        return there and not self._refused(entry)

    def _refused(self, entry: Entry) -> bool:
        """Its results are others than before, which its call does not accept."""
        task = self.tasks.get(entry.key) if entry.changed else None
        return task is not None and task.call.options.on_change == "fail"

    def lost_refs(self, key: str) -> list[ObjectRef]:
        """Its results that are lost."""
        if not self.off:
            return []
        return [ref for ref in self.results(key) if self.off.get(ref) is not None]

    def fold(self, record: Done | Given | Rebuild | Reset) -> None:
        """Add a record that may change which results of its key can be taken."""
        before = self._takable(record.key)
        self.replayed.fold(record)
        after = self._takable(record.key)
        for ref in before ^ after:
            self.flip(ref, there=ref in after)

    def _takable(self, key: str) -> set[ObjectRef]:
        return {ref for ref in self.results(key) if self.there(ref)}

    def flip(self, ref: ObjectRef, *, there: bool) -> None:
        """It can be taken from now on, or no longer."""
        for task in self._takers.get(ref, ()):
            task.unmet += -1 if there else 1
            if not (there and task.unmet):
                self.dirty[task.call.key] = None

    def touch(self, key: str) -> None:
        """Something but its results' being there has changed for all that take one of them."""
        task = self.tasks.get(key)
        count = max(len(self.entry(key).outputs), task.call.options.num_returns if task else 1)
        for index in range(count):
            for taker in self._takers.get(ObjectRef(key, index), ()):
                self.dirty[taker.call.key] = None

    def settle(self, key: str, broken: Broken | None) -> None:
        """Its outcome may be another one: `broken`, or what the log says."""
        self.broken.pop(key, None)
        if broken is not None:
            self.broken[key] = broken
        else:
            self.break_of(key)
        self.plan.settled[key] = None
        self.touch(key)

    def waited_for(self, key: str, refs: list[ObjectRef]) -> bool:
        """Somebody waits for this key, or some call that is still to run takes one of these."""
        takers = (taker for ref in refs for taker in self._takers.get(ref, ()))
        return self.wants[key] > 0 or any(self._waits(taker) for taker in takers)

    def _waits(self, task: Task) -> bool:
        key = task.call.key
        due = task.phase in ("Idle", "Queued") and not task.cancelling
        return due and key not in self.broken and not self.entry(key).settled

    def break_of(self, key: str) -> Broken | None:
        """Why there will be no result of this key, where that is known."""
        broken = self.broken.get(key)
        if broken is not None:
            return broken
        entry, task = self.entry(key), self.tasks.get(key)
        if entry.final is not None:
            broken = Broken(error_of(entry.final), entry.final.error)
        elif entry.cancelled and not entry.done:
            # Once there was a result: its readers have lost it.
            never = Broken(cancelled_error(self.name(key), key))
            broken = self.lost("Cancelled", key) if entry.generation > 1 else never
        elif self._refused(entry):
            broken = self.lost("OutputChanged", key)
        elif task is not None and task.evicted and not entry.done:
            # A person has asked for it: what may not run is not planned here.
            broken = self.lost("LineageEvicted", key)
        elif task is None and not entry.done and key not in self.giving:
            return self.lost("Unknown", key)  # not remembered: it may be called yet
        else:
            return None
        self.broken[key] = broken
        return broken

    def lost(self, reason: LostReason, key: str, wanted: str = "") -> Broken:
        """This key cannot be made again; `wanted`: the one that needs it."""
        needed_by = self.name(wanted) if wanted not in ("", key) else ""
        return Broken(lost_error(reason, key, self.name(key), needed_by))

    def name(self, key: str) -> str:
        """As messages name it."""
        task, entry = self.tasks.get(key), self.entry(key)
        if task is not None:
            return name_of(task.call.shown or task.call.function, key)
        shown = "a value of tasks.put" if entry.given else entry.arguments or "a call"
        return name_of(shown, key)
