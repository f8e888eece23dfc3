"""The agent's shutdown: on order, after a notice, or when its parent has died.

Layer: agent. Always the same steps: stop the processes, finish the uploads that fit into the time
left, write the final records, send the last state. No step holds the agent beyond its deadline.

After a notice, if no operator answers, the agent does what the operator would order for a script
that never calls `should_save()`. The operator's rules are in `core/run/drain.py`; here they apply
to the processes of one worker, since an agent cannot inform others of its notice. A script that
calls `should_save()` gets no signal: its ranks save together, or none of them does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.exchange.heartbeat import Heartbeat
from trainrun.agent.worker_supervisor import WorkerSupervisor
from trainrun.contract import layout
from trainrun.contract.answer import RunSettings
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

LAST_WORD = 1.0
"""Seconds for the last heartbeat."""
LINES_TIME = 3.0
"""Maximum seconds for storing the last lines of the processes."""
LOOK = 0.02
"""Seconds between two checks whether something has ended."""
STOP_TIME = 5.0
"""Seconds that killed processes may take to exit."""
NOTICE_PATIENCE = 5.0
"""Seconds without an answer after a notice: a reachable operator answers it at once."""
NOTICE_SILENCE = 15.0
"""Seconds without an answer from an operator that has received the notice: it holds answers back
for up to ten."""
UPLOAD_SHARE = 4
"""Reserve one part in this many of the remaining time for uploads, unless `flush_timeout` is
shorter; waiting for the operator may use the same share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownPlan:
    """How to exit."""

    code: int
    """Exit code of the agent."""
    seconds: float
    """For unfinished uploads."""
    reason: str
    """Why, for display."""
    succeeded: bool = False
    """The run has succeeded: slot 0 writes `finished.json`."""
    ended: bool = False
    """The run ends or pauses here: slot 0 releases the storage."""


@dataclass(slots=True, kw_only=True)
class Shutdown:
    """Carries out one shutdown."""

    supervisor: WorkerSupervisor
    heartbeat: Heartbeat
    storage: AsyncRunStore
    slot: int
    done: asyncio.Future[int]
    """Becomes the exit code."""
    reason: str = ""
    """Why the agent exits, once it does."""
    _task: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """The shutdown has begun: orders no longer matter."""
        return self._task is not None

    def begin(self, plan: ShutdownPlan) -> None:
        """Start the shutdown; a second call changes nothing."""
        if self._task is None:
            LOG.info("exiting with code %d", plan.code)
            self.reason = plan.reason
            self.supervisor.release()
            self._task = background.run(self._leave(plan))

    async def _leave(self, plan: ShutdownPlan) -> None:
        try:
            deadline = time.monotonic() + plan.seconds
            await _until(self.supervisor.stop, time.monotonic() + STOP_TIME)
            await self._finish_uploads(deadline)
            self.supervisor.keep_lines(succeeded=plan.succeeded)
            if self.slot == 0:
                await self._write_end(plan, deadline)
            await self._try("the story", self.supervisor.recording.finished, deadline)
            await self._store_lines(plan, deadline)
            await self._try("the evidence of a hang", self.supervisor.gathering.stored, deadline)
            await self.heartbeat.post_last(LAST_WORD)
        finally:
            if not self.done.done():
                self.done.set_result(plan.code)

    async def _store_lines(self, plan: ShutdownPlan, deadline: float) -> None:
        now = time.monotonic()
        # Worth some extra time, but only if this worker was due to end.
        until = max(deadline, now + LAST_WORD) if plan.ended else deadline
        await self._try(
            "the last lines", self.supervisor.logs.finished, min(until, now + LINES_TIME)
        )

    async def _finish_uploads(self, deadline: float) -> None:
        attempt = self.supervisor.attempt
        if attempt is None:
            return
        attempt.uploads.finish()
        carried = self.supervisor.carried
        if carried is not None:
            carried.start()

        def done() -> bool:
            return not attempt.uploads.unfinished() and not (carried and carried.unfinished)

        if not await _until(done, deadline):
            LOG.warning("uploads did not finish in the time left: given up")
        attempt.uploads.close()
        if carried is not None:
            carried.pause()

    async def _write_end(self, plan: ShutdownPlan, deadline: float) -> None:
        attempt = self.supervisor.attempt
        if attempt is not None:
            await self._try("metrics", attempt.metrics.write, deadline)
        if plan.succeeded:
            # Worth more time than uploads: without it the run would start again.
            late = max(deadline, time.monotonic() + STOP_TIME)
            await self._try(layout.FINISHED, self.storage.finish, late)
        if plan.ended and attempt is not None:
            await self._try("retention", lambda: self.storage.retain(attempt.number), deadline)
        if plan.ended:
            self.supervisor.ownership.stop()
            late = max(deadline, time.monotonic() + LAST_WORD)
            await self._try("the release of the storage", self._release, late)

    async def _release(self) -> None:
        attempt = self.supervisor.attempt
        ours = max(attempt.number if attempt is not None else 0, self.supervisor.resolving.claimed)
        # A worker that was replaced while cut off must not release storage that the run still
        # uses: in that case a later attempt than its own has been claimed.
        if await self.storage.newest_attempt() <= ours:
            await self.storage.release()

    async def _try(self, what: str, work: Callable[[], Awaitable[None]], deadline: float) -> None:
        left = max(0.1, deadline - time.monotonic())
        try:
            await asyncio.wait_for(work(), left)
        except asyncio.TimeoutError:
            LOG.warning("%s: not written within %.1f s", what, left)
        except (TrainRunError, OSError) as error:
            LOG.warning("%s: not written: %s", what, error)


async def _until(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait for a condition; False if the deadline passes first."""
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(LOOK)
    return True


def out_of_reach(*, noticed: float, grace: float, answered: float, now: float) -> bool:
    """Whether the agent must decide alone: no operator answers. All times are monotonic."""
    if answered >= noticed:
        return now - answered >= NOTICE_SILENCE
    return now - noticed >= min(NOTICE_PATIENCE, grace / UPLOAD_SHARE)


def gives_sigterm(settings: RunSettings, *, asks: bool) -> bool:
    """Whether the script gets SIGTERM; `asks`: it has called `should_save()` in this attempt."""
    return settings.on_notice == "Signal" or (settings.on_notice == "Auto" and not asks)


def time_to_end(settings: RunSettings, *, left: float) -> float:
    """Seconds that the processes may use of the time that the worker has left."""
    return max(0.0, left - min(settings.flush_timeout, left / UPLOAD_SHARE))
