"""Turns at something of which only so much may go on at once, shared out among those who want it.

Layer: runtime. Invariant: nobody holds more than his share, however often he asks: who waits for
his own turns takes none of the others'.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Share:
    turns: asyncio.Semaphore
    wanted: int = field(default=0)
    """How many hold one or wait for one: at 0 the share is forgotten."""


class Shares:
    """First come, first served, among all and within a share."""

    def __init__(self, *, at_once: int, share: int) -> None:
        """`at_once` in all, `share` of them for one key."""
        self._all = asyncio.Semaphore(at_once)
        self._share = share
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it."""
        share = self._shares.setdefault(key, _Share(asyncio.Semaphore(self._share)))
        share.wanted += 1
        try:
            async with share.turns, self._all:
                yield
        finally:
            share.wanted -= 1
            if not share.wanted:
                del self._shares[key]
