"""Repeats the work of one lane of uploads: until nothing is left, and again when it is woken.

Layer: agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trainrun._common.backoff import Backoff, ends_early
from trainrun.contract.agent_state import Problem
from trainrun.errors import CheckpointConflict, CheckpointFenced, TrainRunError, TransferCancelled

LOG = logging.getLogger("trainrun.agent")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
"""Seconds between retries after store errors."""

FATAL = {CheckpointConflict: "CheckpointConflict", CheckpointFenced: "StorageLost"}
"""Errors that end the run, with their problem types."""


async def run_lane(
    work: Callable[[], Awaitable[bool]],
    report: Callable[[Exception], None],
    wake: asyncio.Event,
    hurry: asyncio.Event,
    fail: Callable[[Problem], None],
) -> None:
    """Call `work` until it returns False, then wait for `wake`. Errors are passed to `report`, and
    the work is tried again after a pause, which `hurry` ends. `fail` gets what ends the run."""
    backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
    while True:
        wake.clear()
        try:
            busy = await work()
        except TransferCancelled:
            busy = True  # its step was dropped: take the next one
        except (CheckpointConflict, CheckpointFenced) as error:
            LOG.error("%s", error)
            kind = FATAL[type(error)]
            fail(Problem(type=kind, reason=kind, message=str(error)))
            return  # the user must act; later steps would fail in the same way
        except (TrainRunError, OSError) as error:
            report(error)
            if await ends_early(hurry, backoff.next()):
                backoff.reset()
            busy = True
        else:
            backoff.reset()
        if not busy:
            await wake.wait()
