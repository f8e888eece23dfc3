"""Virtual time: an event loop that never waits and jumps to what is due next.

Layer: simulation. Things at the same moment happen in the order in which they were planned, so a
life is the same whenever it is lived again. An exception that nobody catches ends the life.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

Arguments = TypeVarTuple("Arguments")

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The virtual world's beginning; any date would do."""


# What the loop's users here need of it: no sockets, threads, subprocesses and signals.
class Clock(asyncio.AbstractEventLoop):
    """Seconds since the beginning, and what happens later."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._planned = 0
        self._failure: BaseException | None = None

    @property
    def datetime(self) -> datetime:
        """The moment on a wall clock that is right."""
        return START + timedelta(seconds=self.now)

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Let `what` happen `seconds` from now."""
        self.call_later(seconds, what)

    def step(self) -> bool:
        """Let the next thing happen, with all that follows from it at the same moment.

        False when nothing is planned. Raises what it raises.
        """
        if not self._ready and not self._advance():
            return False
        # The private names below are there for those who write event loops.
        outer = asyncio._get_running_loop()  # noqa: SLF001
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            self._run_ready()  # a task that fails tells it when its last handle has gone
        finally:
            asyncio._set_running_loop(outer)  # noqa: SLF001
        if self._failure is not None:
            raise self._failure
        return True

    def _run_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001

    def _advance(self) -> bool:
        """Make the next timer ready."""
        while self._later:
            when, _, timer = heapq.heappop(self._later)
            if not timer.cancelled():
                self.now = max(self.now, when)
                self._ready.append(timer)
                return True
        return False

    # -------------------------------------------------------------- as asyncio knows a loop

    def time(self) -> float:
        """Seconds since the beginning."""
        return self.now

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Let it happen at this moment, after what is planned for it."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Let it happen `delay` seconds from now."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Let it happen at this moment."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._planned += 1
        heapq.heappush(self._later, (when, self._planned, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        **_options: Any,
    ) -> asyncio.Task[Any]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name)

    def get_debug(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong for whoever lets time pass."""
        self._failure = self._failure or context.get("exception")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""
