"""A worker: runs the tries that the driver sends, and repeats their ends until acknowledged.

Layer: tasks. Tries do not depend on the connection: they continue without one, and their ends wait.
Before the driver sends Leave only the agent ends a worker, and its tries with it. While the store
is down, results wait here; each one keeps its place, so no further try starts.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from trainrun._common.backoff import Backoff
from trainrun._common.tree import NO_ROOM, remove_directory
from trainrun.contract import variables
from trainrun.contract.environment import LOOPBACK, ProcessPlace
from trainrun.errors import AgentLost, ObjectNotFound, StoreError, TaskLogDamaged
from trainrun.tasks.cache import ResultCache, ResultDamaged
from trainrun.tasks.calls import object_name
from trainrun.tasks.launching import Launcher
from trainrun.tasks.messages import (
    Acknowledged,
    Bring,
    Brought,
    Ended,
    Input,
    Joined,
    Leave,
    Left,
    ReadyTry,
    StartTask,
    StopTask,
    ToDriver,
)
from trainrun.tasks.records import Crashed, End, Finished, InputMissing, Output, Stopped, TaskRun
from trainrun.tasks.task_storage import TaskStorage
from trainrun.tasks.values import inline_of
from trainrun.tasks.wire import Link, LinkLost

LOG = logging.getLogger("trainrun.tasks")

CGROUP = Path("/sys/fs/cgroup")
TRANSFERS = 16
"""Parallel downloads and uploads of a worker."""

FULL = 3
"""The try fails when the disk is full more often than this in a row."""

STORE_AGAIN = (0.5, 10.0)
"""First and longest pause in seconds while the store is down."""
CONNECT_AGAIN = (0.1, 5.0)
"""The same while the driver is unreachable."""
QUIET = 30.0
"""Seconds without a driver before that is logged, and between two such log lines; also between
two lines about a store that is down."""

T = TypeVar("T")


def cpus_of(place: ProcessPlace, environ: Mapping[str, str]) -> float:
    """This process's share of the container's or machine's CPUs, at least one.

    Raises ValueError if `TRAINRUN_TASKS_CPUS` is not a number above 0.
    """
    given = environ.get(variables.TASKS_CPUS)
    if given:
        if not re.fullmatch(r"\d+(\.\d+)?", given) or not float(given):
            raise ValueError(
                f"{variables.TASKS_CPUS} is {given!r}; set it to a number above 0, such as 4"
            )
        return float(given)
    # If rank 0 has a loopback address, all workers share this machine.
    sharing = place.world_size if place.master_addr in LOOPBACK else place.local_world_size
    allowed = min(len(os.sched_getaffinity(0)), _quota(CGROUP))
    return max(1.0, allowed / sharing)


def _quota(cgroup: Path) -> float:
    """CPUs that the container's cgroup (version 2 or 1) allows."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return float("inf")
    return int(limit) / int(period) if limit.isdigit() else float("inf")


def devices_of(place: ProcessPlace, environ: Mapping[str, str]) -> tuple[str, ...]:
    """This process's share of the GPUs, as CUDA_VISIBLE_DEVICES names them."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        numbers = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").iterdir())
        names = [str(number) for number in sorted(int(match[1]) for match in numbers if match)]
    else:
        names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return tuple(names[place.local_rank :: place.local_world_size])


@dataclass(slots=True)
class _Try:
    order: StartTask
    work: asyncio.Task[None] = field(init=False)
    stopped: bool = False
    end: End | None = None


class _Missing(Exception):
    def __init__(self, key: str, index: int, why: Literal["Absent", "Damaged"]) -> None:
        self.end = InputMissing(key=key, index=index, why=why)


@dataclass
class Worker:
    """Belongs to one event loop; serves one link at a time."""

    number: int
    """Its rank."""
    cpus: float
    gpus: int
    storage: TaskStorage
    launcher: Launcher
    cache: ResultCache
    _tries: dict[TaskRun, _Try] = field(default_factory=dict, init=False)
    _link: Link | None = field(default=None, init=False)
    _bringing: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _quiet_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._place = self.cache.workplace(f"rank-{self.number}")
        self._threads = ThreadPoolExecutor(TRANSFERS, thread_name_prefix="transfer")

    async def stay(self, connect: Callable[[], Awaitable[Link]]) -> None:
        """Serve until Leave, reconnecting whenever the connection is lost."""
        backoff, clock = Backoff(*CONNECT_AGAIN), asyncio.get_running_loop().time
        quiet_until = clock() + QUIET
        while True:
            try:
                link = await connect()
            except (OSError, LinkLost) as error:
                if clock() > quiet_until:
                    LOG.warning(
                        "worker %d cannot reach the driver; retrying: %s", self.number, error
                    )
                    quiet_until = clock() + QUIET
            else:
                if await self.serve(link):
                    return
                backoff.reset()
                quiet_until = clock() + QUIET
            await asyncio.sleep(backoff.next())

    async def serve(self, link: Link) -> bool:
        """Handle the messages of this link. Returns True after Leave, False if the link was
        lost."""
        self._link = link
        link.send(
            Joined(
                worker=self.number,
                cpus=self.cpus,
                gpus=self.gpus,
                running=tuple(self._tries),
            )
        )
        for run, one in self._tries.items():
            if one.end is not None:
                link.send(Ended(run=run, end=one.end))
        try:
            while not isinstance(message := await link.receive(), Leave):
                self._take(message)
            link.send(Left())
        except LinkLost:
            return False
        finally:
            self._link = None
            link.close()
        return True

    async def close(self) -> None:
        """Cancel everything that still runs."""
        works = [one.work for one in self._tries.values()] + [*self._bringing]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        remove_directory(self._place)

    def _take(self, message: StartTask | StopTask | Acknowledged | Bring) -> None:
        match message:
            case StartTask(run=run):
                # A known try was sent twice; its end follows, or `serve` has sent it.
                if run not in self._tries:
                    begun = self._tries[run] = _Try(message)
                    begun.work = asyncio.create_task(self._run_try(begun))
            case StopTask(run=run):
                found = self._tries.get(run)
                if found is None:
                    self._send(Ended(run=run, end=Stopped()))
                elif found.end is None and not found.stopped:
                    found.stopped = True
                    found.work.cancel()
            case Acknowledged(run=run):
                if run in self._tries and self._tries[run].end is not None:
                    del self._tries[run]
            case Bring():
                bringing = asyncio.create_task(self._bring(message))
                self._bringing.add(bringing)
                bringing.add_done_callback(self._bringing.discard)

    def _send(self, message: ToDriver) -> None:
        if self._link is not None:
            self._link.send(message)

    async def _run_try(self, one: _Try) -> None:
        run = one.order.run
        folder = self._place / f"{run.key}-{run.number}"
        try:
            one.end = await self._end_of(one.order, folder)
        except _Missing as missing:
            one.end = missing.end
        except asyncio.CancelledError:
            if not one.stopped:
                raise
            one.end = Stopped()
        except Exception as error:  # else the driver would wait forever
            LOG.warning("task %s: the worker could not run it", run.key, exc_info=True)
            one.end = Crashed(reason="Exited", message=f"worker {self.number}: {error}")
        self._send(Ended(run=run, end=one.end))
        await self._in_thread(remove_directory, folder)

    async def _end_of(self, order: StartTask, folder: Path) -> End:
        inputs, results = folder / "inputs", folder / "results"
        for path in (inputs, results):
            path.mkdir(parents=True)
        values = await self._fetch_all(order.inputs, inputs)
        end = await self.launcher.run(ReadyTry(replace(order, inputs=()), values, results))
        if not isinstance(end, Finished):
            return end
        outputs = await asyncio.gather(
            *(
                self._store(order, results / str(index), output, index)
                for index, output in enumerate(end.outputs)
            )
        )
        return replace(end, outputs=tuple(outputs))

    async def _fetch_all(
        self, inputs: Sequence[Input], place: Path
    ) -> dict[tuple[str, int], Path | bytes]:
        fetches = [asyncio.create_task(self._fetch(given, place)) for given in inputs]
        try:
            return dict(await asyncio.gather(*fetches))
        finally:
            for fetch in fetches:
                fetch.cancel()

    async def _fetch(self, given: Input, place: Path) -> tuple[tuple[str, int], Path | bytes]:
        name = (given.key, given.index)
        if given.output.inline:
            return name, inline_of(given.output)
        bring = functools.partial(self.storage.download, given.object)
        try:
            return name, await self._patiently(self.cache.take, given.output, place, bring)
        except ObjectNotFound as error:
            raise _Missing(given.key, given.index, "Absent") from error
        except ResultDamaged as error:
            raise _Missing(given.key, given.index, "Damaged") from error

    async def _store(self, order: StartTask, path: Path, output: Output, index: int) -> Output:
        if output.inline:
            return output
        if order.options.keep == "node":
            output = replace(output, kept="Node")
        else:
            name = object_name(order.run.key, order.run.number, index)
            await self._patiently(self.storage.upload, path, name)
        await self._in_thread(self.cache.add, output, path)
        return output

    async def _bring(self, asked: Bring) -> None:
        there = False
        try:
            path = await self._in_thread(self.cache.find, asked.digest)
            if path is not None:
                await self._patiently(self.storage.upload, path, asked.object)
                there = True
        except OSError as error:
            LOG.warning("worker %d cannot read its copy: %s", self.number, error)
        self._send(Brought(object=asked.object, there=there))

    async def _patiently(self, call: Callable[..., T], *args: object) -> T:
        """Call in a thread; retry while the store is down or the disk is full."""
        backoff, full = Backoff(*STORE_AGAIN), 0
        while True:
            try:
                return await self._in_thread(call, *args)
            except ObjectNotFound:
                raise
            except (StoreError, TaskLogDamaged, AgentLost) as error:
                # The driver handles TaskLogDamaged; after AgentLost this process will end.
                self._log_wait(error)
            except OSError as error:
                full += 1
                if error.errno not in NO_ROOM or full > FULL:
                    raise
                shrink = functools.partial(self.cache.shrink, 0, everything=full > 1)
                await self._in_thread(shrink)
            await asyncio.sleep(backoff.next())

    def _log_wait(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now > self._quiet_until:
            self._quiet_until = now + QUIET
            LOG.warning("worker %d waits for the store: %s", self.number, error)

    async def _in_thread(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
