"""Waiting for a condition without stopping the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def until(condition: Callable[[], object], *, timeout: float = 20.0, what: str = "") -> None:
    """Return once the condition is true; fail with `what` after `timeout` seconds."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not condition():
        late = asyncio.get_running_loop().time() > deadline
        assert not late, f"not within {timeout} s: {what or condition}"
        await asyncio.sleep(0.005)
