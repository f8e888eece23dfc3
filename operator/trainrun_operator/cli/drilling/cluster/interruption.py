"""Ctrl-C, SIGTERM and a closed terminal while something in a cluster has to be removed first.

Layer: cli, leaf.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Carry it out; a signal cancels it, so that it tidies up. Once more gives that up as well.

    Raises KeyboardInterrupt when it has come to its end after that.
    """
    try:
        return asyncio.run(_interruptible(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for number in SIGNALS:
        # Ignored at our start: somebody wants it so (nohup, a job in the background).
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, task.cancel)
    return await task
