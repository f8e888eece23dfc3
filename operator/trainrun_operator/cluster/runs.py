"""The runs of one process in their own event loop, with the interface for kopf's handlers.

Layer: cluster. Invariant: trouble in kopf's loop does not reach this one; the two share no
task, and calls from there only fill a queue. This loop takes one entry from it per iteration:
reading a large object takes tens of milliseconds, and hundreds of them must not delay the Lease and
the agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from trainrun_operator.cluster.metrics import Metrics
from trainrun_operator.cluster.operator import Operator
from trainrun_operator.cluster.settings import Settings
from trainrun_operator.kube.api import KubeApi

_log = logging.getLogger(__name__)


class SerialQueue:
    """Calls `act` in this loop for entries from any thread: one per iteration, in order."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, act: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self._loop = loop
        self._act = act
        self._waiting = deque[tuple[str, dict[str, Any]]]()

    def put(self, kind: str, raw: dict[str, Any]) -> None:
        """Queue an entry."""
        self._waiting.append((kind, raw))
        if len(self._waiting) == 1:
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        if not self._waiting:
            return  # both threads scheduled this call
        try:
            self._act(*self._waiting[0])
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._take)


class Runs:
    """An operator and its event loop. Everything but `lead` is thread-safe."""

    def __init__(self, operator: Operator, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the loop that will run `lead`."""
        self._operator = operator
        self._loop = loop
        self._stopped = asyncio.Event()
        self._events = SerialQueue(loop, operator.watch.changed)

    @classmethod
    async def open(cls, settings: Settings) -> Runs:
        """Connect to the API server, in the running loop. Raises NoCluster."""
        metrics = Metrics()
        api = await KubeApi.connect()
        api.observe_call = metrics.api_call
        return cls(Operator(settings, api=api, metrics=metrics), asyncio.get_running_loop())

    async def lead(self) -> int:
        """Run until `stop` (returns 0) or until leadership is lost (returns 1)."""
        return await self._operator.run(self._stopped)

    def stop(self) -> None:
        """Make `lead` return soon."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    def watched(self, path: str, *, good: bool) -> None:
        """A watch of this path has started, or could not."""
        self._loop.call_soon_threadsafe(partial(self._operator.watch.watched, path, good=good))

    def changed(self, kind: str, raw: Mapping[str, Any]) -> None:
        """A watch saw this TrainRun; `kind` is ADDED, MODIFIED or DELETED."""
        self._events.put(kind, dict(raw))

    def trouble(self) -> str:
        """What is wrong, as a sentence; empty: nothing."""
        return self._operator.trouble()

    @property
    def readable(self) -> frozenset[str]:
        """The namespaces whose TrainRuns can be listed now; the empty string means all."""
        return self._operator.watch.readable

    async def served(self) -> None:
        """Wait until the API server serves TrainRuns, shown by a first list."""
        listed = asyncio.run_coroutine_threadsafe(self._operator.watch.listed.wait(), self._loop)
        await asyncio.wrap_future(listed)


class RunsThread:
    """Runs in a thread, for `kopf run`, where kopf has the main thread.

    If they end by themselves, e.g. when leadership is lost, the process gets a SIGTERM.
    """

    def __init__(self, settings: Settings) -> None:
        """Nothing happens before `start`."""
        self._settings = settings
        self._opened: Future[Runs] = Future()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="runs", daemon=True)

    async def start(self) -> Runs:
        """Start to lead. Raises NoCluster."""
        self._thread.start()
        return await asyncio.wrap_future(self._opened)

    async def stop(self) -> None:
        """Wait until the address is withdrawn and the Lease released."""
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._opened.result().stop()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._lead())
        except Exception as error:  # noqa: BLE001 - any error ends the process
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            _log.exception("the runs' loop failed")
        if not self._stopping:
            os.kill(os.getpid(), signal.SIGTERM)

    async def _lead(self) -> None:
        runs = await Runs.open(self._settings)
        self._opened.set_result(runs)
        await runs.lead()
