"""The driver as `main` and other threads of the program see it.

Layer: tasks. Values are pickled and unpickled here, in the caller's thread, since that runs the
user's code.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import functools
import inspect
import pickle
import tempfile
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from trainrun._common.tree import remove_directory
from trainrun.errors import ObjectNotFound, TrainRunError
from trainrun.tasks import GetTimeoutError, TaskError, values
from trainrun.tasks.cache import ResultCache, ResultDamaged
from trainrun.tasks.calls import Call, ObjectRef, object_name
from trainrun.tasks.driver import Driver
from trainrun.tasks.driver_state import Broken, Ready
from trainrun.tasks.records import Output
from trainrun.tasks.task_storage import RetryingTaskStorage

T = TypeVar("T")

AT_ONCE = 8
"""Parallel downloads of `get`."""


class Program:
    """Answers `tasks.get` and its siblings. Any thread may call it; KeyboardInterrupt ends a
    wait."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        driver: Driver,
        storage: RetryingTaskStorage,
        cache: ResultCache,
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._storage = storage
        self._cache = cache
        self._place = cache.workplace("program")
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._calls: deque[Call] = deque()

    def call(self, call: Call) -> None:
        """Accept a call; an equal call that is done is not run again."""
        self._calls.append(call)
        if len(self._calls) == 1:  # else the loop is already woken, which is the expensive part
            self._loop.call_soon_threadsafe(self._take_calls)

    def _take_calls(self) -> None:
        while self._calls:
            self._driver.call(self._calls[0])
            self._calls.popleft()

    def get(self, refs: tuple[ObjectRef, ...], timeout: float | None) -> list[Any]:
        """The values. Raises the first error at once, and GetTimeoutError."""
        place = Path(tempfile.mkdtemp(dir=self._place))
        found = self._ask(self._fetched(refs, timeout, place))
        loaded = [values.load_value(path or values.inline_of(output)) for output, path in found]
        if all(output.kind == "Value" for output, _ in found):
            remove_directory(place)  # the cache keeps a Folder as long as a link to it exists
        return loaded

    def wait(
        self, refs: tuple[ObjectRef, ...], num_returns: int, timeout: float | None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """The references with an outcome, at most `num_returns`, and the others, in order."""
        return self._ask(self._divided(refs, num_returns, timeout))

    def put(self, key: str, value: object) -> None:
        """Store a value under this key unless it is there."""
        if self._ask(self._is_stored(key)):
            return
        with tempfile.TemporaryDirectory(dir=self._place) as place:
            path = Path(place, "0")
            if isinstance(value, values.Folder):
                output = values.keep_folder(value, path)
            else:
                output = values.keep_value(value, path)
            if not output.inline:
                self._ask(self._storage(self._storage.storage.upload, path, object_name(key, 0, 0)))
        self._loop.call_soon_threadsafe(self._driver.given, key, output)

    def cancel(self, ref: ObjectRef) -> None:
        """Stop its task, or do not start it."""
        self._loop.call_soon_threadsafe(self._driver.cancel, ref.key)

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return answer.result()
        except TrainRunError as error:
            # The message says what happened; the frames in here do not help.
            raise error.with_traceback(None) from error.__cause__
        except BaseException:
            answer.cancel()
            raise

    async def _divided(
        self, refs: tuple[ObjectRef, ...], number: int, timeout: float | None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        # Not the same class as TimeoutError before Python 3.11.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._driver.wait([ref.key for ref in refs], number), timeout)
        outcomes = [self._driver.engine.outcome(ref.key) for ref in refs]
        # Values before errors: a program that waits for the first result and cancels the rest gets
        # the cancelled ones at once when it is started again.
        places = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, Ready)]
        places += [at for at, outcome in enumerate(outcomes) if isinstance(outcome, Broken)]
        chosen = set(places[:number])
        ended = [ref for at, ref in enumerate(refs) if at in chosen]
        return ended, [ref for at, ref in enumerate(refs) if at not in chosen]

    async def _is_stored(self, key: str) -> bool:
        found = self._driver.engine.output_of(key, 0)
        if found is None:
            return False
        name, output = found
        # This also stores again a value that was lost since it was put.
        return bool(output.inline) or (
            await self._storage(self._storage.storage.sizes, [name]) == [output.size]
        )

    async def _fetched(
        self, refs: tuple[ObjectRef, ...], timeout: float | None, place: Path
    ) -> list[tuple[Output, Path | None]]:
        try:
            return await asyncio.wait_for(self._fetched_sometime(refs, place), timeout)
        except asyncio.TimeoutError:
            waiting = [ref for ref in refs if self._driver.engine.outcome(ref.key) is None]
            raise GetTimeoutError(
                f"{len(waiting)} of {len(refs)} results are not there after {timeout:g} s, "
                f"for example {waiting[0] if waiting else refs[0]!r}. "
                "Call get again, with a longer timeout or without one"
            ) from None

    async def _fetched_sometime(
        self, refs: tuple[ObjectRef, ...], place: Path
    ) -> list[tuple[Output, Path | None]]:
        await self._driver.wait([ref.key for ref in refs], len(refs), all_good=True)
        found: dict[ObjectRef, tuple[Output, Path | None]] = {}
        for ref in refs:
            if (result := self._result(ref)) and result[1].inline:
                found[ref] = result[1], None
        others = [ref for ref in dict.fromkeys(refs) if ref not in found]
        fetched = await asyncio.gather(*(self._fetched_one(ref, place) for ref in others))
        found.update(zip(others, fetched, strict=True))
        return [found[ref] for ref in refs]

    async def _fetched_one(self, ref: ObjectRef, place: Path) -> tuple[Output, Path | None]:
        """Download one result. If it is missing or damaged, wait for its search and rebuild."""
        while True:
            await self._driver.wait([ref.key], 1)
            result = self._result(ref)
            if result is None:
                continue
            name, output = result
            if output.inline:
                return output, None
            bring = functools.partial(self._storage.storage.download, name)
            try:
                async with self._slots:
                    return output, await self._storage(self._cache.take, output, place, bring)
            except (ObjectNotFound, ResultDamaged) as error:
                damaged = isinstance(error, ResultDamaged)
                await self._driver.missing(ref.key, ref.index, damaged=damaged)

    def _result(self, ref: ObjectRef) -> tuple[str, Output] | None:
        """Its stored name and content; None while it is rebuilt. Raises its error."""
        outcome = self._driver.engine.outcome(ref.key)
        if isinstance(outcome, Broken):
            raise raisable(outcome)
        return self._driver.engine.output_of(ref.key, ref.index) if outcome else None


def raisable(broken: Broken) -> Exception:
    """A new error for `get` to raise. A TaskError is also an instance of the class of the exception
    that the task raised."""
    error = broken.error
    if not isinstance(error, TaskError):
        return copy.copy(error).with_traceback(None)
    cause = _unpickled(broken.pickled)
    raised = TaskError(str(error), key=error.key, cause=cause)
    if isinstance(cause, Exception) and not isinstance(cause, TaskError):
        with contextlib.suppress(TypeError):  # a class that cannot be a base
            return _as_both(raised, cause)
    return raised


def _unpickled(pickled: str) -> BaseException | None:
    try:
        cause = pickle.loads(base64.b64decode(pickled)) if pickled else None
    except Exception:  # noqa: BLE001 - unpickling runs the user's class
        return None
    return cause if isinstance(cause, BaseException) else None


def _as_both(raised: TaskError, cause: Exception) -> Exception:
    both = _both(type(cause))(*cause.args)
    both.__dict__.update(cause.__dict__)
    both.__dict__.update(raised.__dict__)
    both.args = raised.args
    for base in type(cause).__mro__[:-3]:  # not of Exception, BaseException, object
        for name, kept in vars(base).items():
            if inspect.ismemberdescriptor(kept) and hasattr(cause, name):  # such as `errno`
                setattr(both, name, getattr(cause, name))
    return both


def _both(cause: type[Exception]) -> type[TaskError]:
    fields = {
        "__init__": lambda *_: None,  # the arguments of the class's own are unknown
        "__str__": lambda self: str(self.args[0]),
        "__module__": "trainrun.tasks",
    }
    return type(f"TaskError({cause.__name__})", (TaskError, cause), fields)
