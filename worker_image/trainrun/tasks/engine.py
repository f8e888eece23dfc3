"""What a driver of tasks decides: which records to write, what to start, stop and search for.

Layer: tasks, pure: no clock, no I/O, no threads. `ReplayedState` has what the log says; the engine
adds the calls of this program, the waiters, the workers and the lost results. Invariants: a record
comes before its effect; dependencies are looked up and never sent as messages, so no task waits for
a message that was missed; a step costs as much as has changed, not as much as there is.
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
    """See the module. Only `decide` makes a plan; the other methods record what has happened."""

    def __init__(self, replayed: ReplayedState, options: ProgramOptions, expected: int = 1) -> None:
        """`expected`: workers that will join."""
        self._state = DriverState(replayed)
        self._recovery = Recovery(self._state, options)
        self._places = Places(expected)
        self._draining = False

    # The program.

    def call(self, call: Call) -> None:
        """The program made this call; repeating a key changes nothing."""
        state, key = self._state, call.key
        if key in state.tasks:
            return
        task, entry = state.add(call), state.entry(key)
        if (failed := overspent(call, entry)) is not None:
            task.phase = "Logging"
            self._state.plan.records.append(failed)
        elif entry.done:
            self._recovery.finished(task)
        state.done += bool(entry.outputs)
        state.dirty[key] = None
        # An earlier call may take its result.
        state.touch(key)
        if entry.settled:
            state.settle(key, None)

    def given(self, key: str, output: Output) -> None:
        """The program put this value, whose object is stored."""
        state = self._state
        if key not in state.giving and key not in state.replayed.entries:
            state.giving.add(key)
            state.touch(key)
            self._state.plan.records.append(Given(key=key, output=output))

    def want(self, key: str) -> None:
        """Add a waiter for the results of this key."""
        self._state.wants[key] += 1
        self._state.dirty[key] = None
        self._recovery.wanted(key)

    def unwant(self, key: str) -> None:
        """Remove a waiter."""
        self._state.wants[key] -= 1

    def cancel(self, key: str) -> None:
        """Cancel a key. Its committed results stay, but are not rebuilt."""
        task = self._state.tasks.get(key)
        if task and not task.cancelling:
            task.cancelling = True
            self._state.plan.records.append(Cancelled(key=key))

    # Workers.

    def joined(self, worker: int, cpus: float, gpus: int, running: tuple[TaskRun, ...]) -> None:
        """A worker connected, possibly again; `running`: its tries without an acknowledged end."""
        self._places.joined(worker, cpus, gpus)
        self._state.plan.stops += [(worker, run) for run in running if not self._state.current(run)]
        for run, (where, _) in tuple(self._places.runs.items()):
            if where == worker and run not in running:
                self._never_received(worker, run)

    def _never_received(self, worker: int, run: TaskRun) -> None:
        task = self._state.tasks[run.key]
        started = task.phase == "Running" and self._state.current(run)
        if started and not self._draining:
            self._state.plan.starts[worker, run] = None
        elif run.number <= self._state.entry(run.key).number:  # else its record is being appended
            self._places.free(run)

    def away(self, worker: int) -> None:
        """The worker's connection is lost: it gets nothing new, and nothing is counted."""
        self._places.away(worker)

    def ended(self, worker: int, run: TaskRun, end: End) -> None:
        """A try has ended; ignored unless it is the current one."""
        task = self._state.tasks.get(run.key)
        if task is None or not self._state.current(run):
            self._places.free(run)
            self._state.plan.acknowledged.append((worker, run))
        elif task.cancelling:
            self._places.free(run)  # acknowledged once the log has the cancellation
        elif task.phase == "Running":
            task.phase = "Logging"
            records = judge(task.call, self._state.entry(run.key), worker, run, end)
            self._state.plan.records += records
            last = records[-1]
            if not isinstance(last, Failed) or last.final:
                self._places.free(
                    run
                )  # else reserved for the next try, so no younger task takes it
            if isinstance(end, InputMissing):
                self._recovery.missing(ObjectRef(end.key, end.index))

    def drain(self) -> None:
        """Start nothing new from now on."""
        self._draining = True

    @property
    def running(self) -> tuple[tuple[int, TaskRun], ...]:
        """Tries that occupy a worker."""
        return tuple((worker, run) for run, (worker, _) in self._places.runs.items())

    # Objects.

    def lost(self, key: str, index: int, why: str) -> None:
        """This result is lost."""
        self._recovery.lost(ObjectRef(key, index), why)

    def present(self, key: str, index: int) -> None:
        """A search has found this result."""
        self._recovery.present(ObjectRef(key, index))

    # The step.

    def call_of(self, key: str) -> Call:
        """A call of this program."""
        return self._state.tasks[key].call

    def output_of(self, key: str, index: int) -> tuple[str, Output] | None:
        """Stored name and content of the newest committed result, even if it is lost."""
        entry = self._state.entry(key)
        if index >= len(entry.outputs):
            return None
        return object_name(key, entry.made, index), entry.outputs[index]

    def counts(self) -> Counts:
        """Progress of the program."""
        state = self._state
        total, running = len(state.tasks), len(self._places.runs)
        failed = len(state.broken.keys() & state.tasks.keys())
        return Counts(
            total=total,
            done=state.done,
            running=running,
            waiting=max(0, total - state.done - failed - running),
            failed=failed,
            retried=state.replayed.retried,
            rebuilt=state.replayed.rebuilt,
        )

    def outcome(self, key: str) -> Outcome | None:
        """The outcome of this key; None if it is not known yet."""
        broken = self._state.break_of(key)
        if broken is not None:
            return broken
        entry = self._state.entry(key)
        if not entry.done or self._state.lost_refs(key):
            return None
        return Ready(entry.outputs, entry.generation)

    def decide(self) -> Plan:
        """Everything to do now."""
        state = self._state
        while True:
            dirty, state.dirty = state.dirty, {}
            for key in dirty:
                self._evaluate(key)
            for key in dirty:
                state.plan.records += self._recovery.rebuilds(key)
            if not state.dirty and not self._draining:
                self._places.place(self._startable, self._place)
            if not state.dirty:
                break
        plan, state.plan = state.plan, Plan()
        return plan

    def logged(self, records: Iterable[Record]) -> None:
        """These records, from a Plan of this engine, are in the log now."""
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
                    self._state.replayed.fold(record)

    # Effects of logged records.

    def _dispatched(self, record: Dispatched) -> None:
        self._state.replayed.fold(record)
        task = self._state.tasks[record.key]
        run = self._state.newest(record.key)
        if task.cancelling or self._draining:
            task.phase = "Idle"
            self._places.free(run)
            return
        task.phase = "Running"
        if self._places.here(record.worker):
            self._state.plan.starts[record.worker, run] = None

    def _committed(self, record: Done | Given) -> None:
        state, key = self._state, record.key
        state.giving.discard(key)
        if isinstance(record, Done):
            self._end(key)
            state.done += record.generation == 1
            self._recovery.finished(state.tasks[key])
        state.fold(record)
        state.plan.settled[key] = None
        if state.break_of(key) is not None:
            state.settle(key, None)

    def _failed(self, record: Failed) -> None:
        self._places.free(self._state.newest(record.key))
        self._end(record.key)
        self._state.replayed.fold(record)
        self._state.dirty[record.key] = None
        if record.final:
            self._state.settle(record.key, None)

    def _cancelled(self, record: Cancelled) -> None:
        state, key = self._state, record.key
        task = state.tasks[key]
        task.cancelling = True
        if task.phase == "Running":
            self._state.plan.stops.append((state.entry(key).worker, state.newest(key)))
        self._end(key)
        state.replayed.fold(record)
        self._recovery.again(key)

    def _rebuilding(self, record: Rebuild) -> None:
        state, key = self._state, record.key
        if record.generation <= state.entry(key).generation:
            return  # a user asked for it at the same time
        state.fold(record)
        self._recovery.rebuilding(key)
        if key in state.tasks:
            self._end(key)
            state.dirty[key] = None
        state.settle(key, None)

    def _reset(self, record: Reset) -> None:
        state, key = self._state, record.key
        if key in state.tasks:
            # A record that is being appended may cancel it again.
            state.tasks[key].cancelling ^= state.entry(key).cancelled
            state.dirty[key] = None
        state.fold(record)
        self._recovery.again(key)

    def _end(self, key: str) -> None:
        """The record that was being appended is in the log."""
        task, entry = self._state.tasks[key], self._state.entry(key)
        if task.phase == "Logging" and entry.open:
            self._state.plan.acknowledged.append((entry.worker, self._state.newest(key)))
        task.phase = "Idle"

    # Which tasks can start, and which never will.

    def _evaluate(self, key: str) -> None:
        """Evaluate a key again after one of its needs has changed."""
        state = self._state
        task = state.tasks.get(key)
        if task is None:
            if state.break_of(key) is not None:
                self._state.plan.settled[key] = None
            return
        stands = state.entry(key).settled or task.cancelling or task.evicted
        if stands or task.phase not in ("Idle", "Queued"):
            return
        broken = self._broken_input(task) if task.unmet else None
        if broken is not state.broken.get(key):
            state.settle(key, broken)
        if task.unmet:
            task.phase = "Idle"
        elif task.phase == "Idle":
            task.phase = "Queued"
            options = task.call.options
            self._places.push(task.order, key, (options.cpus, options.gpus))

    def _broken_input(self, task: Task) -> Broken | None:
        state = self._state
        for ref in dict.fromkeys(task.call.inputs):
            if state.there(ref):
                continue
            broken = state.break_of(ref.key)
            if broken is not None:
                return broken
            if state.off.get(ref) is not None:
                state.dirty[ref.key] = None
        return None

    def _startable(self, key: str) -> bool:
        task = self._state.tasks[key]
        return task.phase == "Queued" and not task.cancelling

    def _place(self, key: str, worker: int | None, need: Need) -> None:
        task, entry = self._state.tasks[key], self._state.entry(key)
        call = task.call
        if worker is None:
            task.phase = "Idle"
            sizes = {room.size for room in self._places.rooms.values()}
            self._state.settle(key, Broken(unschedulable(call, sizes)))
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
        self._state.plan.records.append(record)
