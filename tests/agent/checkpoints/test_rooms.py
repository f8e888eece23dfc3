"""Room for one more checkpoint: who gets it, who waits, and how long that was."""

from __future__ import annotations

import asyncio
import time

from tests.agent.checkpoints.steps_of import bring, staging
from trainrun.agent.checkpoints.staged import StagingCapacity


async def test_room_is_given_to_the_other_ranks_of_a_step_that_has_it() -> None:
    steps = staging(0, 1)
    rooms = StagingCapacity(staged=steps, max_pending=1)
    await rooms.wait(0, 5)
    await rooms.wait(1, 5)
    bring(steps, 0, 5)
    rooms.used(0)
    next_step = asyncio.create_task(rooms.wait(0, 6))
    await asyncio.sleep(0)
    assert not next_step.done(), "step 5 fills the backlog"
    assert rooms.stall(time.monotonic() + 9.0) > 8.0
    bring(steps, 1, 5)
    rooms.used(1)
    steps.uploaded(5, [0, 1])
    rooms.wake()
    await next_step


async def test_a_step_that_only_waits_for_a_next_step_takes_no_room() -> None:
    """The rank that asks for room may be the one that the others wait for."""
    steps = staging(0, 1)
    rooms = StagingCapacity(staged=steps, max_pending=1)
    bring(steps, 0, 5)
    steps.reports(1, 5)
    await rooms.wait(0, 6)
    bring(steps, 0, 6)
    rooms.used(0)
    steps.reports(1, 6)
    after = asyncio.create_task(rooms.wait(0, 7))
    await asyncio.sleep(0)
    assert not after.done(), "step 5 is complete now, and fills the backlog"
    steps.uploaded(5, [0])
    rooms.wake()
    await after


async def test_ranks_that_wait_for_room_together_stall_the_training_once() -> None:
    steps = staging(0, 1)
    rooms = StagingCapacity(staged=steps, max_pending=1)
    bring(steps, 0, 5)
    bring(steps, 1, 5)
    waiting = [asyncio.create_task(rooms.wait(rank, 6)) for rank in (0, 1)]
    await asyncio.sleep(0)
    assert 8.0 < rooms.stall(time.monotonic() + 9.0) < 10.0
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert rooms.stall(time.monotonic() + 9.0) < 1.0, "nobody waits any more"


async def test_a_step_that_nobody_wants_any_more_needs_no_room() -> None:
    steps = staging(0)
    rooms = StagingCapacity(staged=steps, max_pending=1)
    bring(steps, 0, 5)
    steps.drop(7)
    steps.commit(3)
    await rooms.wait(0, 7)
    await rooms.wait(0, 2)
