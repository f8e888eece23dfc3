"""How far a program of tasks is: steps in a run, lines for people elsewhere.

Layer: tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from trainrun._process import reporting
from trainrun.contract.metrics import OF_TASKS
from trainrun.tasks.driver import Driver
from trainrun.tasks.plan import Counts

REPORT_EVERY = 0.2
LINE_EVERY = 10.0
"""Seconds between two lines for people."""


async def run_and_tell(driver: Driver, *, in_run: bool) -> None:
    """Let it turn until it is over, and tell its counts meanwhile: each finished task is a step of
    the run; outside of one they are a line on stderr now and then."""
    turning = asyncio.create_task(driver.run())
    shown: Counts | None = None
    while not turning.done():
        await asyncio.wait([turning], timeout=REPORT_EVERY if in_run else LINE_EVERY)
        counts = driver.engine.counts()
        if counts != shown:
            shown = counts
            if in_run:
                _report(counts, driver.book.done)
            else:
                with contextlib.suppress(OSError):  # nobody reads it any more
                    sys.stderr.write(f"{_line(counts)}\n")
    await turning


def _line(counts: Counts) -> str:
    """`tasks: 120 of 300 done, 8 running, 170 waiting, 2 failed, 5 retries`."""
    others = {
        "running": counts.running,
        "waiting": counts.waiting,
        "failed": counts.failed,
        "retries": counts.retried,
        "rebuilt": counts.rebuilt,
    }
    said = [f"{counts.done} of {counts.total} done"]
    said += [f"{number} {what}" for what, number in others.items() if number]
    return f"tasks: {', '.join(said)}"


def _report(counts: Counts, step: int) -> None:
    metrics = {
        "tasks_done": counts.done,
        "tasks_total": counts.total,
        "tasks_running": counts.running,
        "tasks_failed": counts.failed,
        "tasks_retried": counts.retried,
        OF_TASKS: counts.rebuilt,
    }
    reporting.report(metrics, step=step)
