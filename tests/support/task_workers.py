"""A worker of tasks without processes: a keep in memory, and a runner that does as a test says."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from pathlib import Path

from trainrun.errors import ObjectNotFound, StoreUnavailable
from trainrun.tasks.cache import ResultCache
from trainrun.tasks.calls import TaskOptions
from trainrun.tasks.messages import Ended, Input, Joined, ReadyTry, StartTask, ToDriver
from trainrun.tasks.records import End, Finished, Output, TaskRun
from trainrun.tasks.worker import Worker

KEY = bytes(range(32))


class MemoryTaskStorage:
    """As much of a `TaskStorage` as workers use, and a driver that loses nothing."""

    uri = "memory://tasks"

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.objects: dict[str, bytes] = {}
        self.away = False
        self.calls: Counter[str] = Counter()

    def upload(self, path: Path, name: str) -> None:
        self._here("upload")
        self.objects[name] = path.read_bytes()

    def download(self, name: str, path: Path) -> None:
        self._here("download")
        if name not in self.objects:
            raise ObjectNotFound(name)
        path.write_bytes(self.objects[name])

    def read(self, after: int) -> list[bytes]:
        return self.batches[after:]

    def append(self, position: int, batch: bytes) -> bool:
        assert position == len(self.batches) + 1
        self.batches.append(batch)
        return True

    def _here(self, call: str) -> None:
        self.calls[call] += 1
        if self.away:
            raise StoreUnavailable("503")


class ScriptedRunner:
    """Function `m:double` gives its values joined and doubled; `m:wait` ends when `go` is set."""

    def __init__(self) -> None:
        self.begun: list[TaskRun] = []
        self.go = asyncio.Event()

    async def run(self, ready: ReadyTry) -> End:
        order = ready.order
        self.begun.append(order.run)
        if order.function == "m:wait":
            await self.go.wait()
        if order.function == "m:broken":
            raise RuntimeError("out of order")
        given = [it if isinstance(it, bytes) else it.read_bytes() for it in ready.values.values()]
        result = b"".join(given) * 2 or order.arguments
        (ready.folder / "0").write_bytes(result)
        return Finished(outputs=(output_of(result),), seconds=0.1)


def output_of(data: bytes) -> Output:
    return Output(digest=hashlib.sha256(data).hexdigest(), size=len(data))


def input_of(data: bytes, name: str = "a-1/0") -> Input:
    return Input(key="a", index=0, object=name, output=output_of(data))


def start(number: int = 1, *inputs: Input, function: str = "m:double", **more: object) -> StartTask:
    return StartTask(
        run=TaskRun(key="k", number=number),
        function=function,
        arguments=b"hello",
        inputs=inputs,
        options=TaskOptions(**more),  # type: ignore[arg-type]
    )


def cache_in(folder: Path, *, bound: int | None = None) -> ResultCache:
    cache = ResultCache(folder)
    cache.bound = cache.bound if bound is None else bound
    return cache


def make_worker(
    folder: Path, *, number: int = 1, storage: MemoryTaskStorage | None = None
) -> tuple[Worker, MemoryTaskStorage, ScriptedRunner]:
    storage = storage or MemoryTaskStorage()
    runner = ScriptedRunner()
    return Worker(number, 2.0, 0, storage, runner, cache_in(folder)), storage, runner  # type: ignore[arg-type]


class MessagesToDriver(list[tuple[int, ToDriver]]):
    """What a hub has said to its driver; `away` are the workers whose link was lost."""

    def __init__(self) -> None:
        super().__init__()
        self.away: list[int] = []

    def message(self, worker: int, message: ToDriver) -> None:
        self.append((worker, message))

    @property
    def joined(self) -> list[Joined]:
        return [it for _, it in self if isinstance(it, Joined)]

    @property
    def ended(self) -> list[Ended]:
        return [it for _, it in self if isinstance(it, Ended)]


async def until(condition, *, timeout: float = 30.0) -> None:  # type: ignore[no-untyped-def]
    """As `eventually`, inside an event loop."""
    due = asyncio.get_running_loop().time() + timeout
    while not condition():
        assert asyncio.get_running_loop().time() < due, f"not within {timeout} s"
        await asyncio.sleep(0.002)
