"""What must hold in each life, by what the log says and what workers are asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.tasks import (
    ObjectLostError,
    OutOfMemoryError,
    TaskCancelledError,
    TaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from trainrun.tasks.calls import ObjectRef, object_name
from trainrun.tasks.records import (
    Began,
    Cancelled,
    Crashed,
    Dispatched,
    Done,
    End,
    Failed,
    Given,
    Raised,
    Rebuild,
    Record,
    Reset,
    TaskRun,
)
from trainrun.tasks.task_storage import BY_HAND, from_bytes

if TYPE_CHECKING:
    from tests.tasks.simulation.graphs import Node
    from tests.tasks.simulation.world import World


class BrokenPromise(AssertionError):
    """A life that must not be."""


@dataclass
class Standing:
    """Of one key, by the log alone."""

    generation: int = 1
    done: bool = False
    final: bool = False
    cancelled: bool = False
    number: int = 0
    open: Dispatched | None = None
    spent: int = 0
    rebuilds: int = 0
    made: int = 0


@dataclass
class Judge:
    """Raises BrokenPromise as soon as something is wrong."""

    world: World
    keys: dict[str, Standing] = field(default_factory=dict)
    dispatched: dict[tuple[str, TaskRun], int] = field(default_factory=dict)
    """Worker by session and try."""
    ended_badly: set[TaskRun] = field(default_factory=set)
    over: set[tuple[str, TaskRun]] = field(default_factory=set)
    commits: set[tuple[str, int]] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    """By hand: the driver hears of it with its next batch, which may not know of it."""
    committed: set[tuple[str, int, str]] = field(default_factory=set)
    """Key, index and value of each result."""
    session: str = ""
    broken: BrokenPromise | None = None

    def _standing(self, key: str) -> Standing:
        return self.keys.setdefault(key, Standing())

    def _must(self, holds: object, what: str) -> None:
        if not holds:
            # Whoever asked may lose it, as a task of asyncio does.
            self.broken = self.broken or BrokenPromise(f"at {self.world.clock.now:.2f} s: {what}")
            raise self.broken

    # --- the log

    def batch(self, data: bytes) -> None:
        """A batch has just been written."""
        batch = from_bytes(data)
        for record in batch.records:
            if isinstance(record, Began):
                self.session = batch.session
            owner = batch.session in (self.session, BY_HAND)
            self._must(owner, f"{batch.session} writes after its successor")
            if isinstance(record, Reset) and batch.session == BY_HAND:
                self.touched.add(record.key)
            if isinstance(record, Rebuild) and batch.session != BY_HAND:
                self._allowed(record)
            self._record(record)
        for record in batch.records:
            if isinstance(record, Rebuild) and batch.session != BY_HAND:
                self._must(self._wanted(record.key), f"nobody waits for the rebuilt {record.key}")

    def _record(self, record: Record) -> None:
        match record:
            case Began():
                self._began(record)
            case Dispatched():
                self._dispatched(record)
            case Failed():
                self._failed(record)
            case Done():
                self._done(record)
            case Given():
                self._standing(record.key).done = True
                self.committed.add((record.key, 0, record.output.digest))
            case Rebuild():
                self._rebuild(record)
            case Reset():
                standing = self._standing(record.key)
                standing.spent = standing.rebuilds = 0
                standing.final = standing.cancelled = False
            case Cancelled():
                standing = self._standing(record.key)
                self._must(self.world.cancels, f"{record.key} was cancelled by nobody")
                standing.cancelled, standing.open = True, None
            case _:
                pass

    def _began(self, record: Began) -> None:
        for standing in self.keys.values():
            if standing.open is not None and standing.open.worker in record.lost:
                standing.spent += 1
            standing.open = None

    def _dispatched(self, record: Dispatched) -> None:
        node, standing = self._node(record.key), self._standing(record.key)
        run = TaskRun(key=record.key, generation=record.generation, number=record.number)
        self._must(record.generation == standing.generation, f"{run} is of another generation")
        self._must(not standing.done, f"{run} starts although its results are committed")
        self._must(not standing.final, f"{run} starts although it has failed for good")
        self._must(not standing.cancelled, f"{run} starts although it was cancelled")
        self._must(standing.open is None, f"{run} starts beside another try")
        self._must(record.number == standing.number + 1, f"{run} comes after {standing.number}")
        limit = node.options.max_retries
        self._must(limit < 0 or standing.spent <= limit, f"{run} exceeds max_retries={limit}")
        for ref in node.inputs:
            there = self._standing(ref.key).done or ref.key in self.touched
            self._must(there, f"{run} starts without its input {ref}")
        standing.number, standing.open = record.number, record
        self.dispatched[self.session, run] = record.worker

    def _failed(self, record: Failed) -> None:
        node, standing = self._node(record.key), self._standing(record.key)
        limit = node.options.max_retries
        if record.reason != "WorkerLost":
            at = standing.open
            self._must(at and at.number == record.number, f"{record} is of no open try")
            run = TaskRun(key=record.key, generation=standing.generation, number=record.number)
            uncounted = record.reason in ("InputMissing", "Stopped")
            self._must(uncounted or run in self.ended_badly, f"{record}, but {run} did not fail")
            standing.spent += record.counted
        if record.final and record.reason != "Raised":
            self._must(0 <= limit < standing.spent, f"{record} gives up before {limit} retries")
        standing.open, standing.final = None, record.final

    def _done(self, record: Done) -> None:
        standing = self._standing(record.key)
        commit = (record.key, record.generation)
        self._must(commit not in self.commits, f"{commit} is committed twice")
        self.commits.add(commit)
        self._must(record.generation == standing.generation, f"{commit} is of another generation")
        at = standing.open
        self._must(at and at.number == record.number, f"{record} is of no open try")
        standing.done, standing.open, standing.made = True, None, record.number
        for index, output in enumerate(record.outputs):
            self.committed.add((record.key, index, output.digest))

    def _allowed(self, record: Rebuild) -> None:
        if record.key in self.touched:
            return
        node, standing = self._node(record.key), self._standing(record.key)
        what = f"the rebuild {record.generation} of {record.key}"
        options = self.world.graph.options
        self._must(options.lineage == "on", f"{what} begins with lineage off")
        names = [object_name(ref.key, standing.made, ref.index) for ref in node.refs]
        self._must(
            node.options.keep == "node" or not self.world.lost.isdisjoint(names),
            f"{what} begins, but no object of it was ever lost",
        )
        limit = node.options.max_reconstructions
        limit = options.max_reconstructions if limit is None else limit
        self._must(limit < 0 or standing.rebuilds < limit, f"{what} exceeds {limit}")
        self._must(node.options.max_retries != 0, f"{what} begins with max_retries=0")

    def _rebuild(self, record: Rebuild) -> None:
        standing = self._standing(record.key)
        what = f"the rebuild {record.generation} of {record.key}"
        there = standing.done or record.key in self.touched
        self._must(there, f"{what} begins while its results are there, or on their way")
        good = record.generation - standing.generation in (
            {0, 1} if record.key in self.touched else {1}
        )
        self._must(good, f"{what} skips a generation")
        standing.rebuilds += 1
        standing.generation, standing.spent, standing.done = record.generation, 0, False

    def _wanted(self, key: str) -> bool:
        if self.world.waited(key):
            return True
        return any(
            not (child.done or child.final or child.cancelled)
            for child in (self._standing(node.key) for node in self.world.graph.children(key))
        )

    def _node(self, key: str) -> Node:
        return self.world.graph.nodes[key]

    def taken(self, session: str) -> None:
        """This driver says that another one has taken over."""
        self._must(session != self.session, f"{session} gives up, but nobody has taken over")

    # --- workers

    def started(self, session: str, worker: int, run: TaskRun) -> None:
        """A worker was asked to start this."""
        where = self.dispatched.get((session, run))
        self._must(where == worker, f"{run} starts on {worker}, but the log says {where}")
        self._must((session, run) not in self.over, f"{run} starts although it has ended")

    def running(self, session: str, worker: int, used: float, cpus: float) -> None:
        """So many CPUs of a worker are in use."""
        self._must(used <= cpus, f"worker {worker} of {session} runs {used} of {cpus} cpus")

    def ended(self, session: str, run: TaskRun, end: End) -> None:
        """A try has ended."""
        self.over.add((session, run))
        if isinstance(end, (Crashed, Raised)):
            self.ended_badly.add(run)

    # --- what main gets

    def value(self, ref: ObjectRef, value: str) -> None:
        """`get` returned this."""
        committed = (ref.key, ref.index, value) in self.committed
        self._must(committed, f"{ref} is {value[:8]!r}, which nobody has committed")
        if not self.world.graph.is_steady(ref):
            return
        expected = self.world.graph.value(ref)
        self._must(value == expected, f"{ref} is {value[:8]!r}, and should be {expected[:8]!r}")

    def error(self, ref: ObjectRef, error: Exception) -> None:
        """`get` raised this."""
        concerned = self.world.graph.ancestors(ref.key)
        nodes = [self._node(key) for key in concerned]
        standings = [self._standing(key) for key in concerned]
        largest = max(worker_cpus for worker_cpus in self.world.cpus)
        match error:
            case TaskCancelledError():
                good = any(standing.cancelled for standing in standings)
            case TaskUnschedulableError():
                good = any(node.options.cpus > largest for node in nodes)
            case TaskError():
                good = any(node.raises or node.flaky for node in nodes)
            case WorkerCrashedError() | OutOfMemoryError():
                good = any(standing.final for standing in standings)
            case ObjectLostError():
                good = self._lost_for(error, nodes, standings)
            case _:
                good = False
        good = good or not concerned.isdisjoint(self.touched)
        self._must(good, f"get({ref}) raises without a reason: {type(error).__name__}: {error}")

    def _lost_for(
        self, error: ObjectLostError, nodes: list[Node], standings: list[Standing]
    ) -> bool:
        options = self.world.graph.options
        limits = [
            options.max_reconstructions
            if node.options.max_reconstructions is None
            else node.options.max_reconstructions
            for node in nodes
        ]
        pairs = zip(limits, standings, strict=True)
        reasons = {
            "Put": any(node.kind == "put" for node in nodes),
            "LineageDisabled": options.lineage == "off",
            "LineageEvicted": options.lineage_limit < 1 << 30,
            "RetriesDisabled": any(node.options.max_retries == 0 for node in nodes),
            "ReconstructionsExceeded": any(0 <= limit <= it.rebuilds for limit, it in pairs),
            "OutputChanged": any(node.options.on_change == "fail" for node in nodes),
            "Cancelled": any(standing.cancelled for standing in standings),
        }
        kept_on_node = any(node.options.keep == "node" for node in nodes)
        return reasons.get(error.reason, False) and bool(self.world.lost or kept_on_node)
