"""Runs a program of tasks: feeds the engine, appends its records to the log, then applies them.

Layer: tasks, asyncio. It reads time only from its loop and receives its I/O, so the simulated world
runs this driver too. A record is in the log before it takes effect.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainrun.tasks.calls import Call, ProgramOptions
from trainrun.tasks.driver_state import Broken, Plan
from trainrun.tasks.engine import Engine
from trainrun.tasks.messages import (
    Acknowledged,
    Bring,
    Brought,
    Ended,
    Input,
    Joined,
    StartTask,
    StopTask,
    ToDriver,
    ToWorker,
)
from trainrun.tasks.records import Began, InputMissing, Output, Over, Record, Reset, TaskRun
from trainrun.tasks.replayed_state import ReplayedState
from trainrun.tasks.task_storage import RetryingTaskStorage, TaskLog


class Workers(Protocol):
    """The connections to the workers: a Hub."""

    def send(self, worker: int, message: ToWorker) -> None:
        """Does not wait. Drops the message while the worker is disconnected."""


@dataclass
class _Demand:
    """What one caller waits for."""

    left: Counter[str]
    number: int
    """Outcomes still missing."""
    all_good: bool

    def settle(self, engine: Engine, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self.left and (outcome := engine.outcome(key)) is not None:
                self.number -= self.left.pop(key)
                if self.all_good and isinstance(outcome, Broken):
                    self.number = 0


@dataclass(kw_only=True, eq=False, repr=False)
class Driver:
    """One driver of a program, from reading its log to its end."""

    replayed: ReplayedState = field(init=False)
    engine: Engine = field(init=False)
    workers: Workers = field(init=False)
    """Set before `open`."""

    storage: RetryingTaskStorage
    log: TaskLog
    digest_in_store: Callable[[str], str]
    """Reads an object (in a thread)."""
    patience: float
    """Seconds before an absent object is looked up a second time."""

    def __post_init__(self) -> None:
        self.over = False
        """The driver has stopped."""
        self.error: BaseException | None = None
        """Why it stopped by itself: LogTaken, TaskLogMissing, or a bug."""
        self._wake = asyncio.Event()
        self._pending: list[Record] = []
        self._appending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._damaged: set[str] = set()
        self._joined: set[int] = set()
        self._brings: dict[tuple[int, str], asyncio.Future[bool]] = {}
        self._demands: list[_Demand] = []
        self._news = asyncio.Event()
        """Set and cleared at once, to wake the waiters in `_until`."""

    # --- beginning and end

    async def open(
        self,
        options: ProgramOptions,
        *,
        expected: int = 1,
        attempt: int = 0,
        lost_in: Callable[[int], tuple[int, ...]] | None = None,
    ) -> None:
        """Read the log, and record that this driver continues the program.

        `attempt`: the run's attempt; 0 outside a run, where failed tasks are tried again.
        `lost_in`: the workers lost in an earlier attempt. Raises TaskLogDamaged.
        """
        replayed = self.replayed = ReplayedState(await self.log.read())
        # Tries that a program leaves behind when it ends by itself do not count as lost.
        lost = (
            await self.storage(lost_in, replayed.attempt) if lost_in and not replayed.over else ()
        )
        records: list[Record] = [Began(session=self.log.session, attempt=attempt, lost=lost)]
        if replayed.over and not attempt:
            failed = (key for key, entry in replayed.entries.items() if entry.final is not None)
            records += [Reset(key=key) for key in failed]
        for record in (*await self.log.append(tuple(records)), *records):
            replayed.fold(record)
        self.engine = Engine(replayed, options, expected)

    async def run(self) -> None:
        """Run until the program is over."""
        while not self.over:
            await self._wake.wait()
            self._wake.clear()
            self._carry_out(self.engine.decide())

    def poke(self) -> None:
        """Signal that the engine has changed."""
        self._wake.set()

    async def end(self, *, returned: bool | None) -> None:
        """Write the remaining records. `returned`: whether the program returned; None: it
        yields."""
        if returned is None:
            self.engine.drain()
            self.poke()
            await self._until(lambda: self.over or not self.engine.running)
        else:
            self._pending.append(Over(outcome="Returned" if returned else "Raised"))
        self.poke()
        await self._until(lambda: self.over or not (self._pending or self._appending))
        self.over = True
        self.poke()
        self._wake_waiters()

    def leave(self) -> None:
        """Start nothing new, and stop once the running tries have ended. May be called again."""
        self._spawn(self.end(returned=None))

    def fail(self, error: BaseException) -> None:
        """Stop at once and raise this error in every waiter."""
        self.error = self.error or error
        self.over = True
        self.poke()
        self._wake_waiters()

    # --- messages from workers

    def receive(self, worker: int, message: ToDriver) -> None:
        """Handle a message from a worker."""
        match message:
            case Joined():
                self._joined.add(worker)
                self.engine.joined(worker, message.cpus, message.gpus, message.running)
            case Ended():
                end = message.end
                if isinstance(end, InputMissing) and end.why == "Damaged":
                    self._suspect(end.key, end.index)
                self.engine.ended(worker, message.run, end)
            case Brought():
                self._answered(worker, message.object, there=message.there)
        self.poke()

    def away(self, worker: int) -> None:
        """The connection to this worker is lost."""
        self._joined.discard(worker)
        self.engine.away(worker)
        for asked, name in tuple(self._brings):
            if asked == worker:
                self._answered(worker, name, there=False)
        self.poke()

    # --- calls from the program

    def call(self, call: Call) -> None:
        """Accept a call; repeating it changes nothing."""
        self.engine.call(call)
        self.poke()

    def given(self, key: str, output: Output) -> None:
        """Accept a value of `put` that is already stored."""
        self.engine.given(key, output)
        self.engine.present(key, 0)
        self.poke()

    def cancel(self, key: str) -> None:
        """Cancel this call."""
        self.engine.cancel(key)
        self.poke()

    async def wait(self, keys: Sequence[str], number: int, *, all_good: bool = False) -> None:
        """Wait until `number` of these keys have an outcome; meanwhile they count as wanted.

        `all_good`: return early once one of them is an error. Keys may repeat.
        """
        demand = _Demand(Counter(keys), number, all_good)
        for key in demand.left:
            self.engine.want(key)
        wanted = list(demand.left)
        demand.settle(self.engine, wanted)
        self._demands.append(demand)
        self.poke()
        try:
            await self._until(lambda: demand.number <= 0)
        finally:
            self._demands.remove(demand)
            for key in wanted:
                self.engine.unwant(key)
            self.poke()

    async def missing(self, key: str, index: int, *, damaged: bool) -> None:
        """A reader found this result missing or damaged: search for it."""
        if damaged:
            self._suspect(key, index)
        # Other readers may wait for the same search: it outlives this one.
        await asyncio.shield(self._looked_for(key, index))

    # --- one pass

    def _carry_out(self, plan: Plan) -> None:
        self._pending += plan.records
        for worker, run in plan.starts:
            self.workers.send(worker, self._start_of(run))
        for worker, run in plan.stops:
            self.workers.send(worker, StopTask(run=run))
        for worker, run in plan.acknowledged:
            self.workers.send(worker, Acknowledged(run=run))
        for key, index in plan.looks:
            self._looked_for(key, index)
        if self._pending and not self._appending:
            self._spawn(self._append())
        for demand in self._demands:
            demand.settle(self.engine, plan.settled)
        self._wake_waiters()

    async def _append(self) -> None:
        # Records that arrive meanwhile go into the next batch.
        self._appending = True
        records, self._pending = tuple(self._pending), []
        self.engine.logged((*await self.log.append(records), *records))
        self._appending = False
        self.poke()

    def _start_of(self, run: TaskRun) -> StartTask:
        call = self.engine.call_of(run.key)
        return StartTask(
            run=run,
            function=call.function,
            arguments=call.arguments,
            inputs=tuple(self._input(ref.key, ref.index) for ref in dict.fromkeys(call.inputs)),
            options=call.options,
        )

    def _input(self, key: str, index: int) -> Input:
        found = self.engine.output_of(key, index)
        assert found is not None
        name, output = found
        return Input(key=key, index=index, object="" if output.inline else name, output=output)

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            if self.error is not None:
                raise self.error
            await self._news.wait()

    def _wake_waiters(self) -> None:
        self._news.set()
        self._news.clear()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    # --- objects that a reader misses

    def _suspect(self, key: str, index: int) -> None:
        """A reader found the wrong content."""
        if (found := self.engine.output_of(key, index)) is not None:
            self._damaged.add(found[0])

    def _looked_for(self, key: str, index: int) -> asyncio.Task[None]:
        """At most one search per result at a time."""
        search = self._looking.get((key, index))
        if search is None:
            search = self._looking[key, index] = self._spawn(self._look(key, index))
            search.add_done_callback(lambda _: self._looking.pop((key, index)))
        return search

    async def _look(self, key: str, index: int) -> None:
        why, looked_at = "", None
        while (found := self.engine.output_of(key, index)) != looked_at:  # rebuilt meanwhile
            looked_at = found
            why = await self._wrong_with(*found) if found and not found[1].inline else ""
        if why:
            self.engine.lost(key, index, why)
        else:
            self.engine.present(key, index)
        self.poke()

    async def _wrong_with(self, name: str, output: Output) -> str:
        """Why this object is lost; empty if the store has it."""
        storage = self.storage.storage
        if name in self._damaged:
            self._damaged.discard(name)
            digest = await self.storage(self.digest_in_store, name)
            if digest == output.digest:
                return ""
            if digest:
                await self.storage(storage.set_aside, name)
                return "" if await self._brought(name, output) else f"{name} is damaged"
        # Some stores report a new object as missing for seconds.
        for pause in (self.patience, 0.0):
            there = await self.storage(storage.sizes, [name]) == [output.size]
            if there or await self._brought(name, output):
                return ""
            await asyncio.sleep(pause)
        return f"{name} is not there, and no worker has a copy"

    async def _brought(self, name: str, output: Output) -> bool:
        """Whether a worker had a copy and uploaded it."""
        loop = asyncio.get_running_loop()
        asked = []
        for worker in sorted(self._joined):
            brought = self._brings.setdefault((worker, name), loop.create_future())
            asked.append(brought)
            self.workers.send(worker, Bring(object=name, digest=output.digest))
        return any([await brought for brought in asked])

    def _answered(self, worker: int, name: str, *, there: bool) -> None:
        brought = self._brings.pop((worker, name), None)
        if brought is not None and not brought.done():
            brought.set_result(there)
