"""What a driver of tasks decides: which records to write, what to start, stop and look for.

Layer: tasks, pure: no clock, no I/O, no threads. What the log says stands in the `ReplayedState`;
the engine adds what this program has called, who waits, which workers there are, and which results
are lost. Invariants: an effect follows its record; who needs what is looked up, never sent, so that
nobody waits for a message that was missed; a step costs what has changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainrun.tasks.calls import Call, ObjectRef, ProgramOptions, object_name
from trainrun.tasks.driver_state import Broken, Counts, DriverState, Outcome, Plan, Ready, Task
from trainrun.tasks.placing import Need, Places
from trainrun.tasks.records import (
    Cancelled,
    Dispatched,
    Done,
    End,
    Failed,
    Given,
    InputMissing,
    Output,
    Rebuild,
    Record,
    Reset,
    TaskRun,
)
from trainrun.tasks.recovery import Recovery
from trainrun.tasks.replayed_state import ReplayedState
from trainrun.tasks.verdicts import judge, overspent, unschedulable


class Engine:
    """See the module. Only `decide` makes a plan; the others take in what has happened."""

    def __init__(self, book: ReplayedState, options: ProgramOptions, expected: int = 1) -> None:
        """`expected`: workers that will join."""
        self._known = DriverState(book)
        self._recovery = Recovery(self._known, options)
        self._places = Places(expected)
        self._draining = False

    # The program.

    def call(self, call: Call) -> None:
        """The program has called this; the same key again changes nothing."""
        known, key = self._known, call.key
        if key in known.tasks:
            return
        task, entry = known.add(call), known.entry(key)
        if (failed := overspent(call, entry)) is not None:
            task.phase = "Logging"
            self._known.plan.records.append(failed)
        elif entry.done:
            self._recovery.finished(task)
        known.done += bool(entry.outputs)
        known.dirty[key] = None
        # Somebody may have taken it before, when nobody knew who makes it.
        known.touch(key)
        if entry.settled:
            known.settle(key, None)

    def given(self, key: str, output: Output) -> None:
        """The program has put this value; its object is stored."""
        known = self._known
        if key not in known.giving and key not in known.book.entries:
            known.giving.add(key)
            known.touch(key)
            self._known.plan.records.append(Given(key=key, output=output))

    def want(self, key: str) -> None:
        """Somebody waits for the results of this key, until as many `unwant`."""
        self._known.wants[key] += 1
        self._known.dirty[key] = None
        self._recovery.wanted(key)

    def unwant(self, key: str) -> None:
        """One less waits."""
        self._known.wants[key] -= 1

    def cancel(self, key: str) -> None:
        """Nobody wants this any more. What is committed stays, but is not made again."""
        task = self._known.tasks.get(key)
        if task and not task.cancelling:
            task.cancelling = True
            self._known.plan.records.append(Cancelled(key=key))

    # Workers.

    def joined(self, worker: int, cpus: float, gpus: int, running: tuple[TaskRun, ...]) -> None:
        """A worker has connected, maybe again; `running`: tries whose end was not heard."""
        self._places.joined(worker, cpus, gpus)
        self._known.plan.stops += [(worker, run) for run in running if not self._known.current(run)]
        for run, (where, _) in tuple(self._places.runs.items()):
            if where == worker and run not in running:
                self._never_received(worker, run)

    def _never_received(self, worker: int, run: TaskRun) -> None:
        task = self._known.tasks[run.key]
        started = task.phase == "Running" and self._known.current(run)
        if started and not self._draining:
            self._known.plan.starts[worker, run] = None
        elif run.number <= self._known.entry(run.key).number:  # else its record is on its way
            self._places.free(run)

    def away(self, worker: int) -> None:
        """Its connection is lost: nothing new goes there, and nothing is counted."""
        self._places.away(worker)

    def ended(self, worker: int, run: TaskRun, end: End) -> None:
        """A try has ended; those that are not current are ignored."""
        task = self._known.tasks.get(run.key)
        if task is None or not self._known.current(run):
            self._places.free(run)
            self._known.plan.heard.append((worker, run))
        elif task.cancelling:
            self._places.free(run)  # its end is heard once the log says that it was cancelled
        elif task.phase == "Running":
            task.phase = "Logging"
            records = judge(task.call, self._known.entry(run.key), worker, run, end)
            self._known.plan.records += records
            last = records[-1]
            if not isinstance(last, Failed) or last.final:
                self._places.free(run)  # else kept for the next try: nobody younger takes it
            if isinstance(end, InputMissing):
                self._recovery.missing(ObjectRef(end.key, end.index))

    def drain(self) -> None:
        """Nothing new is started from now on."""
        self._draining = True

    @property
    def running(self) -> tuple[tuple[int, TaskRun], ...]:
        """Tries that occupy a worker."""
        return tuple((worker, run) for run, (worker, _) in self._places.runs.items())

    # Objects.

    def lost(self, key: str, index: int, why: str) -> None:
        """Nobody has this result."""
        self._recovery.lost(ObjectRef(key, index), why)

    def present(self, key: str, index: int) -> None:
        """This result was looked for, and is there."""
        self._recovery.present(ObjectRef(key, index))

    # The step.

    def call_of(self, key: str) -> Call:
        """A call that this program has made."""
        return self._known.tasks[key].call

    def output_of(self, key: str, index: int) -> tuple[str, Output] | None:
        """Name in the keep and content of the newest committed result, also if it is lost."""
        entry = self._known.entry(key)
        if index >= len(entry.outputs):
            return None
        return object_name(key, entry.made, index), entry.outputs[index]

    def counts(self) -> Counts:
        """How far the program is."""
        known = self._known
        total, running = len(known.tasks), len(self._places.runs)
        failed = len(known.broken.keys() & known.tasks.keys())
        return Counts(
            total=total,
            done=known.done,
            running=running,
            waiting=max(0, total - known.done - failed - running),
            failed=failed,
            retried=known.book.retried,
            rebuilt=known.book.rebuilt,
        )

    def outcome(self, key: str) -> Outcome | None:
        """What is known of this key; None: nothing yet."""
        broken = self._known.break_of(key)
        if broken is not None:
            return broken
        entry = self._known.entry(key)
        if not entry.done or self._known.lost_refs(key):
            return None
        return Ready(entry.outputs, entry.generation)

    def decide(self) -> Plan:
        """All that is to be done now."""
        known = self._known
        while True:
            dirty, known.dirty = known.dirty, {}
            for key in dirty:
                self._evaluate(key)
            for key in dirty:
                known.plan.records += self._recovery.rebuilds(key)
            if not known.dirty and not self._draining:
                self._places.place(self._startable, self._place)
            if not known.dirty:
                break
        plan, known.plan = known.plan, Plan()
        return plan

    def logged(self, records: Iterable[Record]) -> None:
        """These records, of a Plan of this engine, stand in the log now."""
        for record in records:
            match record:
                case Dispatched():
                    self._dispatched(record)
                case Done() | Given():
                    self._committed(record)
                case Failed():
                    self._failed(record)
                case Cancelled():
                    self._cancelled(record)
                case Rebuild():
                    self._rebuilding(record)
                case Reset():
                    self._reset(record)
                case _:
                    self._known.book.fold(record)

    # Effects of what stands in the log.

    def _dispatched(self, record: Dispatched) -> None:
        self._known.book.fold(record)
        task = self._known.tasks[record.key]
        run = self._known.newest(record.key)
        if task.cancelling or self._draining:
            task.phase = "Idle"
            self._places.free(run)
            return
        task.phase = "Running"
        if self._places.here(record.worker):
            self._known.plan.starts[record.worker, run] = None

    def _committed(self, record: Done | Given) -> None:
        known, key = self._known, record.key
        known.giving.discard(key)
        if isinstance(record, Done):
            self._end(key)
            known.done += record.generation == 1
            self._recovery.finished(known.tasks[key])
        known.fold(record)
        known.plan.settled[key] = None
        if known.break_of(key) is not None:
            known.settle(key, None)

    def _failed(self, record: Failed) -> None:
        self._places.free(self._known.newest(record.key))
        self._end(record.key)
        self._known.book.fold(record)
        self._known.dirty[record.key] = None
        if record.final:
            self._known.settle(record.key, None)

    def _cancelled(self, record: Cancelled) -> None:
        known, key = self._known, record.key
        task = known.tasks[key]
        task.cancelling = True
        if task.phase == "Running":
            self._known.plan.stops.append((known.entry(key).worker, known.newest(key)))
        self._end(key)
        known.book.fold(record)
        self._recovery.again(key)

    def _rebuilding(self, record: Rebuild) -> None:
        known, key = self._known, record.key
        if record.generation <= known.entry(key).generation:
            return  # a person has asked for it at the same time
        known.fold(record)
        self._recovery.rebuilding(key)
        if key in known.tasks:
            self._end(key)
            known.dirty[key] = None
        known.settle(key, None)

    def _reset(self, record: Reset) -> None:
        known, key = self._known, record.key
        if key in known.tasks:
            # It may be cancelled anew, by a record that is on its way.
            known.tasks[key].cancelling ^= known.entry(key).cancelled
            known.dirty[key] = None
        known.fold(record)
        self._recovery.again(key)

    def _end(self, key: str) -> None:
        """What was on its way into the log is there."""
        task, entry = self._known.tasks[key], self._known.entry(key)
        if task.phase == "Logging" and entry.open:
            self._known.plan.heard.append((entry.worker, self._known.newest(key)))
        task.phase = "Idle"

    # Who can start, who never will.

    def _evaluate(self, key: str) -> None:
        """Something that this key needs has changed."""
        known = self._known
        task = known.tasks.get(key)
        if task is None:
            if known.break_of(key) is not None:
                self._known.plan.settled[key] = None
            return
        stands = known.entry(key).settled or task.cancelling or task.evicted
        if stands or task.phase not in ("Idle", "Queued"):
            return
        broken = self._broken_input(task) if task.unmet else None
        if broken is not known.broken.get(key):
            known.settle(key, broken)
        if task.unmet:
            task.phase = "Idle"
        elif task.phase == "Idle":
            task.phase = "Queued"
            options = task.call.options
            self._places.push(task.order, key, (options.cpus, options.gpus))

    def _broken_input(self, task: Task) -> Broken | None:
        known = self._known
        for ref in dict.fromkeys(task.call.inputs):
            if known.there(ref):
                continue
            broken = known.break_of(ref.key)
            if broken is not None:
                return broken
            if known.off.get(ref) is not None:
                known.dirty[ref.key] = None
        return None

    def _startable(self, key: str) -> bool:
        task = self._known.tasks[key]
        return task.phase == "Queued" and not task.cancelling

    def _place(self, key: str, worker: int | None, need: Need) -> None:
        task, entry = self._known.tasks[key], self._known.entry(key)
        call = task.call
        if worker is None:
            task.phase = "Idle"
            sizes = {room.size for room in self._places.rooms.values()}
            self._known.settle(key, Broken(unschedulable(call, sizes)))
            return
        run = TaskRun(key=key, generation=entry.generation, number=entry.number + 1)
        record = Dispatched(key=key, generation=run.generation, number=run.number, worker=worker)
        if run.number == 1:
            record = replace(
                record,
                function=call.function,
                arguments=call.shown,
                parents=call.parents,
                code=call.code,
            )
        task.phase = "Logging"
        self._places.take(run, worker, need)
        self._known.plan.records.append(record)
