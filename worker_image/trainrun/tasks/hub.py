"""The driver's connections to all workers: its listener, and the newest link of each.

Layer: tasks. Invariant: a connection that has not proven the key gets a socket, a task and 5
seconds. At most `MAX_UNAUTHENTICATED` of them are open; beyond that the oldest one of the address
with the most is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine

from trainrun.contract.environment import LOOPBACK
from trainrun.tasks.messages import Joined, Leave, Left, ToDriver, ToWorker
from trainrun.tasks.wire import Link, LinkLost, greet

LOG = logging.getLogger("trainrun.tasks")

MAX_UNAUTHENTICATED = 128
"""Limit for connections that have not proven the key."""
BACKLOG = 512
"""Length of the listen queue."""
PAUSE = 0.001
"""Seconds between two accepts, so that unauthenticated clients do not keep the driver busy."""


class Hub:
    """Calls `on_message` with the worker's number and message, and `on_away` when its link is lost.

    Belongs to one event loop.
    """

    def __init__(
        self, on_message: Callable[[int, ToDriver], None], on_away: Callable[[int], None]
    ) -> None:
        self._on_message = on_message
        self._on_away = on_away
        self._links: dict[int, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unauthenticated: dict[asyncio.Task[None], str] = {}
        self._listener: socket.socket | None = None
        self._leaving = False
        self._left = asyncio.Semaphore(0)
        """Counts the workers that have left."""

    async def listen(self, host: str, port: int, key: bytes) -> int:
        """Accept workers that know the key. Returns the port, a free one if `port` is 0.

        Raises OSError if the port is taken.
        """
        self._listener = listener = _listener(host, port)
        self._begin(self._accept(listener, key))
        return int(listener.getsockname()[1])

    def attach(self, link: Link) -> None:
        """Add the driver's own worker, which needs no key."""
        self._begin(self._serve(link))

    def send(self, worker: int, message: ToWorker) -> None:
        """Send; dropped while the worker is disconnected, since its next Joined lists its tries."""
        if link := self._links.get(worker):
            link.send(message)

    async def close(self, expected: int, patience: float | None = None) -> None:
        """Say Leave to so many workers, also to those that are away or have yet to join.

        Waits until each has left, for `patience` seconds; None: for as long as it takes. One that
        was not told would try to reach us for ever.
        """
        self._leaving = True
        for link in self._links.values():
            link.send(Leave())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_left(expected), patience)
        if self._listener is not None:
            self._listener.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _all_left(self, expected: int) -> None:
        for _ in range(expected):
            await self._left.acquire()

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            LOG.error("a bug ended the connection of a worker", exc_info=error)

    async def _accept(self, listener: socket.socket, key: bytes) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:  # the client is gone, or too many files are open
                LOG.debug("accept: %s", error)
                await asyncio.sleep(0.05)
                continue
            sock.settimeout(0)
            task = self._begin(self._meet(sock, key))
            self._unauthenticated[task] = address[0]
            task.add_done_callback(lambda it: self._unauthenticated.pop(it, None))
            self._bound()
            await asyncio.sleep(PAUSE)

    def _bound(self) -> None:
        if len(self._unauthenticated) <= MAX_UNAUTHENTICATED:
            return
        ((most, _),) = Counter(self._unauthenticated.values()).most_common(1)
        oldest = next(task for task, address in self._unauthenticated.items() if address == most)
        del self._unauthenticated[oldest]
        oldest.cancel()

    async def _meet(self, sock: socket.socket, key: bytes) -> None:
        try:
            link = await greet(sock, key, "driver")
        except LinkLost as error:
            LOG.debug("a connection was refused: %s", error)
            return
        me = asyncio.current_task()
        assert me is not None
        self._unauthenticated.pop(me, None)
        await self._serve(link)

    async def _serve(self, link: Link) -> None:
        worker = -1
        try:
            while True:
                message = await link.receive()
                if isinstance(message, Joined):
                    worker = message.worker
                    self._replace(worker, link)
                if isinstance(message, Left):
                    self._left.release()
                elif self._links.get(worker) is link:
                    self._on_message(worker, message)
        except LinkLost as error:
            LOG.debug("worker %d: %s", worker, error)
        finally:
            link.close()
            if self._links.get(worker) is link:
                del self._links[worker]
                self._on_away(worker)

    def _replace(self, worker: int, link: Link) -> None:
        """The newest connection of a worker wins; the older one may be dead without us knowing."""
        if older := self._links.pop(worker, None):
            older.close()
            self._on_away(worker)
        self._links[worker] = link
        if self._leaving:
            link.send(Leave())


def _listener(host: str, port: int) -> socket.socket:
    """Listen on all addresses: `host` may be one of several, or unknown to this machine."""
    local = host in LOOPBACK
    dual = not local and socket.has_dualstack_ipv6()
    listener = socket.create_server(
        (host if local else "", port),
        family=socket.AF_INET6 if dual or ":" in host else socket.AF_INET,
        dualstack_ipv6=dual,
        backlog=BACKLOG,
    )
    listener.settimeout(0)
    return listener
