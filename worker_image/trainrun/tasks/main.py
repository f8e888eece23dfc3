"""`tasks.run`: rank 0 runs `main`, the driver and a worker; every other rank runs a worker.

Layer: tasks, the shell. Without an agent there is only rank 0, and the log is in a folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from trainrun._process import reporting
from trainrun._process.context import get_context
from trainrun.contract.environment import Exchange, ProcessPlace
from trainrun.errors import FatalError, RetryError, TaskLogDamaged, TrainRunError
from trainrun.tasks import LogTaken, OfTask, function
from trainrun.tasks.agent_storage import AgentTaskStorage, attempt_key, lost_ranks
from trainrun.tasks.cache import ResultCache
from trainrun.tasks.calls import ProgramOptions, changed
from trainrun.tasks.driver import Driver
from trainrun.tasks.driver_state import Counts
from trainrun.tasks.hub import Hub
from trainrun.tasks.launching import Launcher
from trainrun.tasks.program import Program
from trainrun.tasks.task_storage import FOLDER, RetryingTaskStorage, TaskLog, TaskStorage, digest_in
from trainrun.tasks.wire import dial, pair
from trainrun.tasks.worker import Worker, cpus_of, devices_of

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds before a store that reports an object as missing is asked again."""
AT_HAND = 1.0
"""The same for a folder."""
REPORT_EVERY = 0.2
LINE_EVERY = 10.0
"""Seconds between two progress lines."""


def run(
    main: Callable[[], T],
    *,
    lineage: str = "on",
    lineage_limit: int | str = "1Gi",
    max_reconstructions: int = 3,
    storage: str | os.PathLike[str] | None = None,
) -> T:
    """Run `main`, which calls tasks, and return its result.

    In a run, rank 0 runs `main`; every other rank runs tasks and exits inside this call. Finished
    tasks are in the log, so starting the same program again continues where it stopped.

    Args:
        main: Takes no arguments and must make the same calls every time it runs.
        lineage: "off": lost results are not rebuilt.
        lineage_limit: Bytes of arguments kept for rebuilds; above it the oldest finished calls
            are dropped.
        max_reconstructions: How often a lost result is rebuilt, unless its task sets a limit.
        storage: The folder for log and results outside a run; default `.trainrun/tasks/<program>`
            in the working folder. In a run they are in the run's storage.

    Raises InvalidSpec, TaskLogDamaged, LogTaken outside a run, and whatever `main` raises.
    """
    limits = {"lineage_limit": lineage_limit, "max_reconstructions": max_reconstructions}
    options = changed(ProgramOptions(), "tasks.run", {"lineage": lineage, **limits})
    home = _Home.find(storage)
    if home.place.rank:
        asyncio.run(_work(home))
        sys.exit(0)
    with _Running(home, options) as program:
        function.enter(program)
        try:
            return main()
        finally:
            function.leave()


@dataclass(frozen=True)
class _Home:
    """Where this process runs, and where it keeps things."""

    place: ProcessPlace
    storage: Path | None
    """The folder for log and results; None in a run, where the agent has them."""
    cache: Path
    """A folder on this machine's own disk."""

    @staticmethod
    def find(storage: str | os.PathLike[str] | None) -> _Home:
        place, given = get_context(), Exchange.read(os.environ)
        if given is not None:
            return _Home(place, None, given.staging.parents[2] / "tasks")
        program = getattr(sys.modules["__main__"], "__file__", None) or "program"
        folder = Path(storage or FOLDER / Path(program).stem).absolute()
        return _Home(place, folder, folder / "cache")

    @property
    def inside(self) -> bool:
        """Whether this process belongs to a run."""
        return self.storage is None

    @contextlib.contextmanager
    def open_storage(self) -> Iterator[TaskStorage]:
        if self.storage is None:
            yield AgentTaskStorage()
            return
        from trainrun.tasks.local_storage import LocalTaskStorage  # noqa: PLC0415 - costs 50 ms

        with contextlib.closing(LocalTaskStorage(self.storage)) as storage:
            yield storage

    @contextlib.asynccontextmanager
    async def worker(self, storage: TaskStorage, cache: ResultCache) -> AsyncIterator[Worker]:
        cpus, devices = cpus_of(self.place, os.environ), devices_of(self.place, os.environ)
        launcher = Launcher(devices)
        await launcher.start()
        worker = Worker(self.place.rank, cpus, len(devices), storage, launcher, cache)
        try:
            yield worker
        finally:
            await worker.close()
            await launcher.close()


async def _work(home: _Home) -> None:
    """In every rank but 0: run tasks until the driver sends Leave."""
    # The driver decides when to leave. Not SIG_IGN, which the tasks' processes would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    key = await asyncio.to_thread(attempt_key)
    place = home.place
    async with home.worker(AgentTaskStorage(), ResultCache(home.cache)) as worker:
        await worker.stay(lambda: dial(place.master_addr, place.master_port, key))


class _Running:
    """The driver and a worker, in a second thread next to `main`."""

    def __init__(self, home: _Home, options: ProgramOptions) -> None:
        self._home = home
        self._options = options
        self._opened: Future[Program] = Future()
        self._thread = threading.Thread(target=self._serve, name="tasks", daemon=True)
        self._main = threading.get_ident()
        self._ours = threading.current_thread() is threading.main_thread()
        self._returned = False

    def __enter__(self) -> Program:
        self._thread.start()
        try:
            program = self._opened.result()
        except TrainRunError as error:
            raise self._verdict(error) from None
        if self._ours:
            self._before = signal.signal(signal.SIGTERM, self._on_term)
        return program

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, _: object
    ) -> None:
        self._returned = True
        try:
            if self._driver.error is None and not self._driver.over:
                asyncio.run_coroutine_threadsafe(
                    self._driver.end(returned=kind is None), self._loop
                ).result()
        finally:
            if self._ours:
                signal.signal(signal.SIGTERM, self._before)
            self._thread.join()
        if self._driver.error is not None and kind is not SystemExit:
            raise self._verdict(self._driver.error)
        if self._home.inside and isinstance(raised, OfTask):
            raise FatalError(
                f"{raised}\nThe log keeps this result, so a restart does not help. "
                "Run `trainrun tasks rebuild --failed` to try failed tasks again"
            ) from raised

    def _on_term(self, _signum: int, _frame: FrameType | None) -> None:
        """SIGTERM. The first one is a notice: start no new task, leave once the running ones have
        ended. The second one comes from `_drive`, when the driver is over."""
        if self._driver.error is not None:
            raise self._verdict(self._driver.error)
        if self._driver.over:
            sys.exit(128 + signal.SIGTERM)  # not 0: there is more to do
        self._loop.call_soon_threadsafe(self._driver.leave)

    def _verdict(self, error: BaseException) -> BaseException:
        """The error to raise, so that a run reacts correctly."""
        if isinstance(error, LogTaken) and self._home.inside:
            return RetryError(f"{error}")
        if isinstance(error, TaskLogDamaged) and self._home.inside:
            return FatalError(f"{error}")
        return error

    def _serve(self) -> None:
        try:
            with self._home.open_storage() as storage:
                asyncio.run(self._drive(storage))
        except BaseException as error:  # noqa: BLE001 - raised in main's thread
            if self._opened.done():
                self._driver.fail(error)
            else:
                self._opened.set_exception(error)

    async def _drive(self, storage: TaskStorage) -> None:
        home, self._loop = self._home, asyncio.get_running_loop()
        cache, patient = ResultCache(home.cache), RetryingTaskStorage(storage)
        digests = cache.workplace("digests")
        log = TaskLog(patient, uuid.uuid4().hex, time.time)
        driver = self._driver = Driver(
            storage=patient,
            log=log,
            digest_in_store=lambda name: digest_in(storage, name, digests / uuid.uuid4().hex),
            patience=PATIENCE if home.inside else AT_HAND,
        )
        hub = driver.workers = Hub(driver.receive, driver.away)
        await driver.open(
            self._options,
            expected=home.place.world_size,
            attempt=home.place.attempt if home.inside else 0,
            lost_in=lost_ranks if home.inside else None,
        )
        if home.inside:
            key = await asyncio.to_thread(attempt_key)
            await hub.listen(home.place.master_addr, home.place.master_port, key)
        async with home.worker(storage, cache) as worker:
            ours, theirs = await pair()
            hub.attach(ours)
            serving = asyncio.create_task(worker.serve(theirs))
            self._opened.set_result(Program(self._loop, driver, patient, cache))
            await run_and_report(driver, in_run=home.inside)
            await hub.close(home.place.world_size, 0.0 if driver.error else None)
            await serving
        if self._ours and not self._returned:
            signal.pthread_kill(self._main, signal.SIGTERM)


async def run_and_report(driver: Driver, *, in_run: bool) -> None:
    """Run the driver until it is over and report its counts: in a run each finished task is a step;
    outside a run a line goes to stderr every `LINE_EVERY` seconds."""
    turning = asyncio.create_task(driver.run())
    shown: Counts | None = None
    while not turning.done():
        await asyncio.wait([turning], timeout=REPORT_EVERY if in_run else LINE_EVERY)
        counts = driver.engine.counts()
        if counts != shown:
            shown = counts
            if in_run:
                _report(counts, driver.replayed.done)
            else:
                with contextlib.suppress(OSError):  # the reader is gone
                    sys.stderr.write(f"{_line(counts)}\n")
    await turning


def _line(counts: Counts) -> str:
    """`tasks: 120 of 300 done, 8 running, 170 waiting, 2 failed, 5 retries`."""
    others = {
        "running": counts.running,
        "waiting": counts.waiting,
        "failed": counts.failed,
        "retries": counts.retried,
        "rebuilt": counts.rebuilt,
    }
    parts = [f"{counts.done} of {counts.total} done"]
    parts += [f"{number} {what}" for what, number in others.items() if number]
    return f"tasks: {', '.join(parts)}"


def _report(counts: Counts, step: int) -> None:
    metrics = {f"tasks_{name}": number for name, number in asdict(counts).items()}
    del metrics["tasks_waiting"]
    reporting.report(metrics, step=step)
