"""One end of a connection between the driver and a worker, and a pair of ends in one process.

Layer: tasks. The driver's own worker talks over a pair; the others over TCP (`wire`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class LinkLost(Exception):
    """The connection is over; the other end may live."""


class Link(Protocol):
    """Messages arrive in order, each once, until the link is lost."""

    def send(self, message: object, /) -> None:
        """Send without waiting. A lost link drops the message; `receive` says so."""

    async def receive(self) -> Any:
        """Return the next message. Raises LinkLost."""

    def close(self) -> None:
        """Lose the link, at both ends."""


def pair() -> tuple[Link, Link]:
    """Return the two ends of a link in one event loop."""
    down: asyncio.Queue[object] = asyncio.Queue()
    up: asyncio.Queue[object] = asyncio.Queue()
    return _QueueEnd(down, up), _QueueEnd(up, down)


_CLOSED = object()


class _QueueEnd:
    def __init__(self, out: asyncio.Queue[object], into: asyncio.Queue[object]) -> None:
        self._out = out
        self._into = into

    def send(self, message: object, /) -> None:
        self._out.put_nowait(message)

    async def receive(self) -> object:
        message = await self._into.get()
        if message is _CLOSED:
            self._into.put_nowait(_CLOSED)
            raise LinkLost("closed")
        return message

    def close(self) -> None:
        self._out.put_nowait(_CLOSED)
        self._into.put_nowait(_CLOSED)
