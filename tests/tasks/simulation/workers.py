"""Simulated workers: they run tries in virtual time, and tell their ends until they are heard."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainrun.errors import ObjectNotFound, StoreError
from trainrun.tasks.calls import ObjectRef, object_name
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
from trainrun.tasks.records import Crashed, End, Finished, InputMissing, Output, Stopped, TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.tasks.simulation.world import Session, World

TRAVEL = 0.005
"""Seconds of a message: the same for each, so they stay in order."""
CRASH = Crashed(reason="Signalled", message="killed by SIGKILL")


@dataclass
class Try:
    """Of a task, in its worker."""

    order: StartTask
    end: End | None = None
    running: bool = False
    work: asyncio.Task[None] | None = None


@dataclass
class SimulatedWorker:
    """One rank of a session."""

    world: World
    session: Session
    number: int
    cpus: float
    tries: dict[TaskRun, Try] = field(default_factory=dict)
    epoch: int = 0
    """Of its connection; what was sent in another one is lost."""
    connected: bool = False
    dead: bool = False
    breaks_for: float = 0.0
    """Seconds for which the connection is lost with the next message."""

    def join(self) -> None:
        """Connect."""
        if self.dead or self.connected:
            return
        self.epoch += 1
        self.connected = True
        self._send(Joined(worker=self.number, cpus=self.cpus, gpus=0, running=tuple(self.tries)))
        for run, known in self.tries.items():
            if known.end is not None:
                self._send(Ended(run=run, end=known.end))

    def lose(self, seconds: float) -> None:
        """The connection, for so long; nobody dies."""
        if self.connected:
            self.connected = False
            self.epoch += 1
            self.world.clock.after(TRAVEL, lambda: self.session.away(self.number))
            self.world.clock.after(seconds + TRAVEL, self.join)

    def die(self) -> None:
        """With all that runs here."""
        self.dead = True
        self.connected = False
        for known in self.tries.values():
            if known.work is not None:
                known.work.cancel()

    def kill_tasks(self) -> None:
        """The processes of all tasks that run here."""
        for run, known in self.tries.items():
            if known.running:
                self._stop(known, run, CRASH)

    def deliver(self, message: ToWorker) -> None:
        """Send it to this worker."""
        epoch = self.epoch

        def arrive() -> None:
            if self.connected and epoch == self.epoch:
                self._take(message)

        self._travel(arrive)

    def _send(self, message: ToDriver) -> None:
        epoch = self.epoch

        def arrive() -> None:
            if self.connected and epoch == self.epoch:
                self.session.receive(self.number, message)

        self._travel(arrive)

    def _travel(self, arrive: Callable[[], None]) -> None:
        if self.connected:
            self.world.clock.after(TRAVEL, arrive)
            if self.breaks_for:
                seconds, self.breaks_for = self.breaks_for, 0.0
                self.world.clock.after(TRAVEL / 2, lambda: self.lose(seconds))

    def _take(self, message: ToWorker) -> None:
        match message:
            case StartTask(run=run):
                if run not in self.tries:
                    self.world.judge.started(self.session.name, self.number, run)
                    known = self.tries[run] = Try(message)
                    known.work = asyncio.ensure_future(self._see_through(run, known))
            case StopTask(run=run):
                if run not in self.tries:
                    self._send(Ended(run=run, end=Stopped()))
                elif self.tries[run].end is None:
                    self._stop(self.tries[run], run, Stopped())
            case Acknowledged(run=run):
                self.tries.pop(run, None)
            case Bring():
                self._spawn(self._bring(message))

    def _spawn(self, work: Any) -> None:
        self.world.tasks.add(task := asyncio.ensure_future(work))
        task.add_done_callback(self.world.tasks.discard)

    def _stop(self, known: Try, run: TaskRun, end: End) -> None:
        assert known.work is not None
        known.work.cancel()
        known.running = False
        self._over(run, known, end)

    def _over(self, run: TaskRun, known: Try, end: End) -> None:
        known.end = end
        self.world.judge.ended(self.session.name, run, end)
        self._send(Ended(run=run, end=end))

    async def _see_through(self, run: TaskRun, known: Try) -> None:
        node = self.world.graph.nodes[run.key]
        taken = []
        for given in known.order.inputs:
            value = await self._fetch(given)
            if isinstance(value, InputMissing):
                self._over(run, known, value)
                return
            taken.append(value)
        known.running = True
        self.world.judge.running(self.session.name, self.number, self.running(), self.cpus)
        await asyncio.sleep(node.seconds)
        known.running = False
        end = self.world.fate(node)
        if end is None:
            outputs = [
                await self._store(
                    node.output(ref, self.world.made(ref, taken, run)),
                    object_name(run.key, run.number, ref.index),
                )
                for ref in node.refs
            ]
            end = Finished(outputs=tuple(outputs), seconds=node.seconds)
        self._over(run, known, end)

    def running(self) -> float:
        """CPUs in use."""
        nodes = self.world.graph.nodes
        return sum(nodes[run.key].options.cpus for run, it in self.tries.items() if it.running)

    async def _fetch(self, given: Input) -> str | InputMissing:
        ref, digest = ObjectRef(given.key, given.index), given.output.digest
        if given.output.inline:
            return base64.b64decode(given.output.inline).decode()
        cache = self.world.caches[self.number]
        if digest not in cache:
            found = await self._patiently(self.session.storage.digest, given.object)
            if found != digest:
                why = "Damaged" if found else "Absent"
                return InputMissing(key=ref.key, index=ref.index, why=why)  # type: ignore[arg-type]
            cache[digest] = given.output.size
        return digest

    async def _store(self, output: Output, name: str) -> Output:
        if not output.inline:
            if output.kept == "Store":
                await self._patiently(self.world.store.put, name, output.digest, output.size)
            self.world.caches[self.number][output.digest] = output.size
        return output

    async def _bring(self, asked: Bring) -> None:
        size = self.world.caches[self.number].get(asked.digest)
        if size is not None:
            await self._patiently(self.world.store.put, asked.object, asked.digest, size)
        self._send(Brought(object=asked.object, there=size is not None))

    async def _patiently(self, function: Callable[..., Any], *arguments: Any) -> Any:
        while not self.dead:
            try:
                return await self.world.store.ask(function, *arguments)
            except ObjectNotFound:
                raise
            except StoreError:
                await asyncio.sleep(1.0)
        return await asyncio.Future()
