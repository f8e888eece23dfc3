"""One life of a program: the real driver and engine on virtual time, everything else simulated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.simulation.world.clock import Clock
from tests.tasks.simulation.graphs import Action, Graph, Node, draw_graph
from tests.tasks.simulation.judge import BrokenPromise, Judge
from tests.tasks.simulation.store import SimulatedTaskStorage, Store, Weather
from tests.tasks.simulation.workers import CRASH, SimulatedWorker
from trainrun.errors import StoreError
from trainrun.tasks import LogTaken
from trainrun.tasks.cache import ResultDamaged
from trainrun.tasks.calls import ObjectRef, object_name
from trainrun.tasks.driver import Driver
from trainrun.tasks.messages import ToDriver, ToWorker
from trainrun.tasks.program import Program
from trainrun.tasks.records import Batch, End, Output, Raised, Rebuild, Record, Reset, TaskRun
from trainrun.tasks.task_storage import BY_HAND, RetryingTaskStorage, TaskLog, to_bytes

T = TypeVar("T")

CALM_AFTER = 60.0
"""Virtual seconds after which nothing breaks any more."""
PATIENCE = 3600.0
"""Virtual seconds within which the program must have ended."""
LOOKED_AGAIN = 30.0
"""The driver's patience with absent objects: longer than the weather hides them."""


class _Cache:
    """Of the first node, as `get` uses it."""

    def __init__(self, world: World, storage: SimulatedTaskStorage) -> None:
        self._world = world
        self._keep = storage

    def workplace(self, _name: str) -> Path:
        return Path("/sim")

    def take(self, output: Output, place: Path, bring: Callable[[Path], None]) -> Path:
        path = place / output.digest
        if output.digest not in self._world.caches[0]:
            bring(path)
            if self._keep.read_contents.pop(path) != output.digest:
                raise ResultDamaged(output.digest)
        return path


class _Program(Program):
    """Its questions, in the driver's own loop."""

    async def fetched(self, ref: ObjectRef) -> str:
        ((output, _),) = await self._fetched((ref,), None, Path("/sim"))
        return output.digest

    async def known(self, refs: tuple[ObjectRef, ...], number: int, timeout: float) -> None:
        await self._divided(refs, number, timeout)


class Session:
    """A driver, its workers, and main."""

    def __init__(self, world: World, attempt: int) -> None:
        self.world = world
        self.name = f"session-{attempt}"
        self.storage = SimulatedTaskStorage(world.store)
        self.dead = self.ended = False
        self.attempt = attempt
        self._patient = RetryingTaskStorage(self.storage, self._threads)
        log = TaskLog(self._patient, self.name, world.clock.time)
        self.driver = Driver(
            storage=self._patient,
            log=log,
            digest_in_store=self.storage.digest,
            patience=LOOKED_AGAIN,
        )
        self.driver.workers = self
        self.workers = [
            SimulatedWorker(world, self, number, cpus) for number, cpus in enumerate(world.cpus)
        ]
        world.spawn(self._live())

    async def _threads(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Whoever is dead neither asks nor hears."""
        answer: T | StoreError | None = None
        if not self.dead:
            try:
                answer = await self.world.store.ask(function, *arguments)
            except StoreError as error:
                answer = error
        if self.dead:
            await asyncio.Future()
        if isinstance(answer, StoreError):
            raise answer
        return cast("T", answer)

    async def _live(self) -> None:
        world = self.world
        try:
            await self.driver.open(
                world.graph.options,
                expected=len(world.cpus),
                attempt=0 if world.again else self.attempt,
                lost_in=lambda attempt: world.lost_workers.get(attempt, ()),
            )
            world.spawn(self._drive())
            for worker in self.workers:
                world.clock.after(world.rng.uniform(0, 3), worker.join)
            cache: Any = _Cache(world, self.storage)
            program = _Program(world.clock, self.driver, self._patient, cache)
            for action in world.graph.actions:
                await self._act(action, program)
            self.ended = True
            await self.driver.end(returned=True)
            if self.driver.error is not None:
                raise self.driver.error
            self.world.end(self)
        except LogTaken:
            world.judge.taken(self.name)
            if world.newest is self:
                world.restart(())
        self.die()

    async def _drive(self) -> None:
        await self.driver.run()
        if self.driver.error is None and not self.ended and not self.dead:  # it yields
            self.die()
            if self.world.newest is self:
                self.world.restart(())

    async def _act(self, action: Action, program: _Program) -> None:
        match action.kind:
            case "call":
                node = self.world.graph.nodes[action.refs[0].key]
                if node.kind == "put":
                    await self._put(node)
                else:
                    self.driver.call(node.call)
            case "get":
                await asyncio.gather(*(self._get(ref, program) for ref in action.refs))
            case "wait":
                with self.world.waiting_for(action.refs):
                    await program.known(action.refs, action.number, action.seconds)
            case "cancel":
                if not self.dead:
                    self.world.cancels += 1
                self.driver.cancel(action.refs[0].key)
            case "pause":
                await asyncio.sleep(action.seconds)

    async def _put(self, node: Node) -> None:
        (ref,) = node.refs
        output = node.output(ref, self.world.graph.value(ref))
        if not output.inline and self.driver.engine.output_of(node.key, 0) is None:
            name = object_name(node.key, 0, 0)
            await self._patient(self.world.store.put, name, output.digest, output.size)
        self.driver.given(node.key, output)

    async def _get(self, ref: ObjectRef, program: _Program) -> None:
        with self.world.waiting_for((ref,)):
            try:
                value = await program.fetched(ref)
            except (LogTaken, BrokenPromise):
                raise
            except Exception as error:  # noqa: BLE001 - the judge says which may be
                if not self.dead:
                    self.world.judge.error(ref, error)
            else:
                if not self.dead:
                    self.world.judge.value(ref, value)

    # --- between driver and workers

    def send(self, worker: int, message: ToWorker) -> None:
        """To a worker; lost while it is away."""
        if not self.dead:
            self.workers[worker].deliver(message)

    def receive(self, worker: int, message: ToDriver) -> None:
        """From a worker."""
        if not self.dead:
            self.driver.receive(worker, message)

    def away(self, worker: int) -> None:
        """Its connection is lost."""
        if not self.dead:
            self.driver.away(worker)

    def die(self) -> None:
        """With all its workers, as the operator ends an attempt."""
        self.dead = True
        for worker in self.workers:
            worker.die()


@dataclass
class _Waiting:
    world: World
    refs: tuple[ObjectRef, ...]

    def __enter__(self) -> None:
        for ref in self.refs:
            self.world.waits.setdefault(ref.key, []).append(self)

    def __exit__(self, *_: object) -> None:
        for ref in self.refs:
            self.world.waits[ref.key].remove(self)
            self.world.last_waited[ref.key] = self.world.clock.now


class World:
    """Everything of one life; it depends on its seed alone."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = Clock()
        self.graph: Graph = draw_graph(rng)
        self.judge = Judge(self)
        self.cpus = tuple(rng.choice((1, 2, 2, 4)) for _ in range(rng.randint(1, 3)))
        self.caches: list[dict[str, int]] = [{} for _ in self.cpus]
        begin = rng.uniform(0, CALM_AFTER)
        away = (begin, begin + rng.uniform(1, 60)) if rng.random() < 0.15 else (0.0, 0.0)
        weather = Weather(
            fails=rng.choice((0, 0, 0.05, 0.2)),
            late=rng.choice((0, 0, 0.05, 0.2)),
            hidden=rng.choice((0, 0, 5)),
            away=away,
        )
        self.store = Store(self.clock, rng, weather, self.judge.batch)
        self.crashes = rng.choice((0, 0, 0.1, 0.4))
        self.tasks: set[asyncio.Future[Any]] = set()
        self.lost: set[str] = set()
        """Names of objects that somebody deleted or damaged."""
        self.waits: dict[str, list[_Waiting]] = {}
        self.last_waited: dict[str, float] = {}
        self.lost_workers: dict[int, tuple[int, ...]] = {}
        """By attempt."""
        self.cancels = 0
        self.finished = self.again = False
        self.attempts = 0
        self.calm = False
        self.newest: Session | None = None
        self.story: list[str] = []

    def spawn(self, work: Any) -> None:
        """Let it run."""
        self.clock.call_soon(lambda: self._keep(asyncio.ensure_future(work)))

    def _keep(self, task: asyncio.Future[Any]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def live(self) -> None:
        """Until the program has ended. Raises BrokenPromise."""
        self.restart((), after=0.0)
        for _ in range(self.rng.choice((0, 1, 2, 4, 8))):
            self.clock.after(self.rng.uniform(0, CALM_AFTER), self._strike)
        self.clock.after(CALM_AFTER, self._calm_down)
        while not self.finished:
            more = self.clock.step()
            if self.judge.broken is not None:
                raise self.judge.broken
            if not more or self.clock.now > PATIENCE:
                standings = {key: vars(it) for key, it in self.judge.keys.items() if not it.done}
                raise BrokenPromise(f"main waits for {self.waiting} for ever: {standings}")

    @property
    def waiting(self) -> list[str]:
        """Keys that main waits for."""
        return sorted(key for key, waits in self.waits.items() if waits)

    def end(self, session: Session) -> None:
        """Main has returned; some programs are started once more."""
        if session.dead:
            return
        session.die()
        self.finished = self.again or self.rng.random() < 0.7
        if not self.finished:
            self.again = True
            self.restart(())

    def _calm_down(self) -> None:
        self.calm = True
        weather = self.store.weather
        weather.fails = weather.late = weather.hidden = self.crashes = 0.0

    # --- what happens to tasks

    def made(self, ref: ObjectRef, taken: list[str], run: TaskRun) -> str:
        """The value that the function returns for these."""
        told = (ref.key, ref.index, taken)
        changing = self.graph.nodes[ref.key].changes
        return sha256(repr((told, run) if changing else told).encode()).hexdigest()

    def fate(self, node: Node) -> End | None:
        """How a try ends; None: well."""
        if self.rng.random() < self.crashes:
            return CRASH
        if node.raises or self.rng.random() < node.flaky:
            return Raised(error="ValueError: no", traceback="", retriable=node.flaky > 0)
        return None

    def waiting_for(self, refs: tuple[ObjectRef, ...]) -> _Waiting:
        """Main waits for these meanwhile."""
        return _Waiting(self, refs)

    def waited(self, key: str) -> bool:
        """Somebody waits for this, or did when the record left."""
        begin, end = self.store.weather.away
        recent = self.clock.now - (20.0 + end - begin)
        return bool(self.waits.get(key)) or self.last_waited.get(key, -PATIENCE) > recent

    # --- faults

    def restart(self, lost: tuple[int, ...], after: float | None = None) -> None:
        """Begin the next attempt; `lost`: workers of the one that runs now."""
        if self.newest is not None:
            self.lost_workers[self.newest.attempt] = lost
        self.attempts += 1
        attempt = self.attempts

        def begin() -> None:
            if attempt == self.attempts:
                self.newest = Session(self, attempt)

        self.clock.after(self.rng.uniform(0.5, 5) if after is None else after, begin)

    def _strike(self) -> None:
        session, rng = self.newest, self.rng
        if session is None or self.finished:
            return
        worker = rng.randrange(len(self.cpus))
        fault = rng.choice(
            (
                *("tasks", "blip", "object", "object", "object", "node", "driver", "partition"),
                *("cache", "notice", "by hand"),
            )
        )
        self.story.append(f"{self.clock.now:.2f}: {fault} {worker}")
        match fault:
            case "tasks":
                session.workers[worker].kill_tasks()
            case "blip":
                session.workers[worker].breaks_for = rng.choice((0.01, 1.0, 20.0))
            case "object":
                self._lose_object()
            case "cache":
                self.caches[worker].clear()
            case "node":
                session.die()
                self.caches[worker].clear()
                self.restart((worker,) if rng.random() < 0.5 else ())
            case "driver":
                session.die()
                self.restart((0,))
            case "notice":
                if hasattr(session.driver, "engine"):
                    session.driver.leave()
                    self.clock.after(rng.uniform(1, 30), lambda: self._grace_is_over(session))
            case "by hand":
                self._write_by_hand()
            case "partition":
                self.clock.after(rng.uniform(5, 40), session.die)
                self.restart((), after=0.0)

    def _grace_is_over(self, session: Session) -> None:
        if not session.dead:
            session.die()
            if session is self.newest:
                self.restart(())

    def _write_by_hand(self) -> None:
        """As `trainrun tasks rebuild KEY` does."""
        chosen = [key for key, it in self.judge.keys.items() if it.done or it.final or it.cancelled]
        chosen = [key for key in chosen if self.graph.nodes[key].kind == "task"]
        if not chosen:
            return
        key = self.rng.choice(chosen)
        standing = self.judge.keys[key]
        records: list[Record] = [Reset(key=key)]
        if standing.done:
            generation = standing.generation + 1
            records.append(Rebuild(key=key, generation=generation, why="asked for"))
        storage = SimulatedTaskStorage(self.store)
        batch = to_bytes(Batch(session=BY_HAND, records=tuple(records)))
        storage.append(len(self.store.log) + 1, batch)

    def _lose_object(self) -> None:
        names = sorted(self.store.objects)
        if not names:
            return
        name = self.rng.choice(names)
        content, size = self.store.objects[name]
        self.lost.add(name)
        match self.rng.choice(("deleted", "deleted", "flipped", "cut")):
            case "deleted":
                del self.store.objects[name]
            case "flipped":
                self.store.objects[name] = ("0" * 64, size)
            case "cut":
                self.store.objects[name] = ("0" * 64, size // 2)
        for cache in self.caches:
            if self.rng.random() < 0.7:
                cache.pop(content, None)


def live(seed: int) -> World:
    """One life. Raises BrokenPromise, with its seed and its story."""
    world = World(seed)
    try:
        world.live()
    except BaseException as error:
        story = "; ".join(world.story)
        error.add_note(f"seed {seed}, attempts {world.attempts}, faults: {story}")
        raise
    return world
