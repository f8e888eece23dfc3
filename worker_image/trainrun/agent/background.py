"""Background tasks whose unhandled errors end the agent instead of being lost.

Layer: agent, leaf. If a bug killed only one task, the agent would look alive and do nothing; if the
agent ends loudly, the operator replaces the worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

LOG = logging.getLogger("trainrun.agent")

CRASHED = 70
"""Exit code after a bug or on an unusable machine (EX_SOFTWARE of <sysexits.h>)."""

Work = Coroutine[object, object, None]

_running: set[asyncio.Task[None]] = set()
"""Keeps a reference: the event loop itself holds tasks only weakly."""


def run(work: Work) -> asyncio.Task[None]:
    """Run `work` in the background; its exception goes to the loop's handler."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_report)
    return task


def crash_on_errors(loop: asyncio.AbstractEventLoop, crashed: Callable[[int], None]) -> None:
    """Call `crashed` with an exit code for every unhandled exception."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, Exception) or "transport" in context:
            loop.default_exception_handler(context)  # a connection that broke, and the like
            return
        LOG.error("an unexpected error ends the agent: %r", error, exc_info=error)
        crashed(CRASHED)

    loop.set_exception_handler(handle)


def _report(task: asyncio.Task[None]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"in {task!r}", "exception": error}
        task.get_loop().call_exception_handler(context)
