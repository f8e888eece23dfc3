"""The loop of one run: wait until a pass is due, observe, decide, act.

Layer: runtime; the same in a cluster and on one machine. Invariants: one pass at a time; a status
that a decision depends on is written before anything acts on it; answers and actions follow
from a written status. Any number of requests between two passes lead to one pass.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import inf

from trainrun.contract.answer import PROGRESS_INTERVAL
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import HistoryEntry, TrainRunStatus
from trainrun_operator.core.run.boundary import CreateWorker, Event, Observation, Plan
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.runtime.run_events import (
    EventSink,
    Kind,
    PassEnded,
    RepeatedErrors,
    RunEvent,
    keep_operator_error,
)
from trainrun_operator.worlds.base import (
    Seen,
    StatusConflict,
    StatusRefused,
    StatusUnwritable,
    World,
)


class Wakeup:
    """Schedules the next pass of one run. Not thread-safe: use it in the event loop's thread."""

    def __init__(self, progress_interval: Callable[[], float] = lambda: PROGRESS_INTERVAL) -> None:
        """`progress_interval` returns the minimum seconds between two passes that only steps and
        metrics cause."""
        self.progress_interval = progress_interval
        self._due = 0.0
        self._passed_at = -inf
        self._earlier = asyncio.Event()

    def now(self) -> None:
        """Something happened that decisions depend on: request a pass now."""
        self._at(self.time())

    def soon(self) -> None:
        """Steps or metrics changed: request a pass one progress interval after the last one."""
        self._at(self._passed_at + self.progress_interval())

    def after(self, seconds: float) -> None:
        """Request a pass after at most this many seconds."""
        self._at(self.time() + seconds)

    async def wait(self) -> None:
        """Return when a pass is due; it serves all requests so far."""
        # Let other tasks run, even if passes follow each other directly.
        await asyncio.sleep(0)
        while (pause := self._due - self.time()) > 0:
            await self._rest(pause)
        self._due, self._passed_at = inf, self.time()

    def time(self) -> float:
        """The current time of the event loop's clock, in seconds."""
        return asyncio.get_running_loop().time()

    async def _rest(self, pause: float, /) -> None:
        """Wait until the pause is over, or an earlier request arrives."""
        self._earlier.clear()
        try:
            async with asyncio.timeout(None if pause == inf else pause):
                await self._earlier.wait()
        except TimeoutError:
            pass

    def _at(self, moment: float) -> None:
        if moment < self._due:
            self._due = moment
            self._earlier.set()


Decide = Callable[[Observation, RunConfig], Plan]
Over = Callable[[Seen, Plan], bool]
"""Whether this loop has nothing left to do; checked after every pass without a write."""

RETRY_FIRST, RETRY_MAX = 0.2, 10.0
"""Seconds before a failed pass is retried; doubled each time."""
NO_WAKE_MAX = 1.0
"""Seconds of that pause which news cannot shorten: otherwise they cause a storm of retries."""

REST = 8.0
"""Rest after a pass that found nothing to do, as a multiple of its CPU time: while a large gang
gathers, the news of many workers share a pass, and agents are answered in between."""
REST_MAX = 0.3
"""Maximum rest in seconds: a gang of a thousand, whose pass takes 0.1 s, must not wait longer."""
WHILE_STARTING = 3.0
"""Factor for both while starting workers have not called yet: that takes them seconds, and until
then most passes find nothing to do."""

NOTABLE_INTERVAL = 1.0
"""Seconds between two display-only writes if more than step, metrics or checkpoint changed."""

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Reconciler:
    """Leads one run until it is over."""

    world: World
    agents: RunAgents
    decide: Decide
    events: EventSink
    wakeup: Wakeup
    name: str = ""
    """The run's name, a prefix of each log line if there are several runs."""
    rerecord: timedelta = timedelta(0)
    """Events of an earlier leader younger than this are emitted again."""
    on_pass: Callable[[float], None] = lambda _seconds: None
    """Called with the seconds that each pass took."""
    cpu: Callable[[], float] = time.thread_time
    """The CPU seconds that this thread has used."""
    transient: tuple[type[Exception], ...] = ()
    """This and `on_error`: see RepeatedErrors."""
    on_error: Callable[[Kind], None] = lambda _kind: None

    def __post_init__(self) -> None:
        self._repeated_errors = RepeatedErrors(
            world=self.world, events=self.events, transient=self.transient, on_error=self.on_error
        )
        self._seen: Observation | None = None
        """The observation of the current or last pass."""
        self._prefix = f"{self.name}: " if self.name else ""
        self._emitted: tuple[HistoryEntry, ...] | None = None
        """The history as it was last read; its events have been emitted."""
        self._heartbeat_timeout: timedelta | None = None
        """The timeout that the last pass used."""
        self._displayed_at = -inf
        self._logged = ("", "")
        self._trouble = ""
        self._patience = 0.0
        """Factor of REST and REST_MAX after the last pass; 0: it found something to do."""

    async def run(self, over: Over) -> None:
        """Make a pass whenever something happened or is due, until `over`."""
        failures = 0
        while True:
            await self.wakeup.wait()
            begun, worked, pause = time.perf_counter(), self.cpu(), 0.0
            try:
                if await self._one_pass(over):
                    return
                failures, self._trouble = 0, ""
                self._repeated_errors.over()
            except StatusUnwritable as error:
                self._log_trouble(str(error))
                pause = self._retry(failures)
                failures += 1
                if isinstance(error, StatusRefused):
                    self._repeated_errors.refused(error, tries=failures)
            # The supervised loop: no failure of one pass (disk full, API down, a bug) may end the
            # run's reconciler. The next pass starts from fresh facts.
            except Exception as error:  # noqa: BLE001
                pause = self._retry(failures)
                failures += 1
                _log.exception("%sa pass failed; retrying in %.1f s", self._prefix, pause)
                await self._repeated_errors.failed(error, tries=failures, seen=self._seen)
            finally:
                self.on_pass(time.perf_counter() - begun)
            rest = min((self.cpu() - worked) * REST, REST_MAX) * self._patience
            await asyncio.sleep(max(min(pause, NO_WAKE_MAX), rest))

    def _retry(self, failures: int) -> float:
        pause = min(RETRY_FIRST * 2.0 ** min(failures, 10), RETRY_MAX)
        self.wakeup.after(pause)
        return pause

    def _log_trouble(self, message: str) -> None:
        # Once, not with every retry: a user must act on it.
        if message != self._trouble:
            self._trouble = message
            _log.error("%s%s", self._prefix, message)

    async def _one_pass(self, over: Over) -> bool:
        self._seen = None  # until this pass has observed: no older status may be written
        seen = await self.world.observe(self.agents)
        if self._is_edited(seen.config.heartbeat_timeout):
            self.agents.restart_listening()  # agents used the old timeout until now
            seen = await self.world.observe(self.agents)
        before = self._seen = seen.observation
        self.agents.expect({worker.name for worker in before.workers})
        self._emit_history(before)
        plan = self.decide(before, seen.config)
        self._patience = 0.0 if plan.transition or plan.actions else _patience(before)
        self._log_once(plan)
        if plan.transition:
            await self._write_first(plan)
            return False
        failure = await self._act(plan)
        self.events.emit(PassEnded(time=before.now, plan=plan, workers=before.workers))
        ended = failure is None and over(seen, plan)
        after = plan.status if failure is None else keep_operator_error(before.status, plan.status)
        # Lazily, since it is for display only; but a run's final status is always written.
        await self._display(before.status, after, now=ended)
        if failure is not None:
            raise failure
        if plan.requeue_after is not None:
            self.wakeup.after(plan.requeue_after.total_seconds())
        return ended

    def _is_edited(self, heartbeat_timeout: timedelta) -> bool:
        before, self._heartbeat_timeout = self._heartbeat_timeout, heartbeat_timeout
        return before not in (None, heartbeat_timeout)

    async def _write_first(self, plan: Plan) -> None:
        try:
            await self.world.write_status(plan.status)
        except StatusConflict as conflict:
            _log.info("%s%s", self._prefix, conflict)
        self.wakeup.now()

    async def _act(self, plan: Plan) -> BaseException | None:
        """Apply all actions; an error, which is returned, blocks neither others nor the status."""
        self.agents.publish(plan.answers)
        for action in plan.actions:
            if isinstance(action, CreateWorker):
                # Its first heartbeat may arrive before our next observation.
                self.agents.admit(action.name)
        # Concurrently, since each may be a separate request.
        applied = (self.world.apply(action) for action in plan.actions)
        outcomes = await asyncio.gather(*applied, return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)

    async def _display(self, before: TrainRunStatus, after: TrainRunStatus, *, now: bool) -> None:
        if after == before:
            return
        interval, only_progress = self.world.display_interval, _only_progress(before, after)
        if not only_progress:
            interval = min(interval, NOTABLE_INTERVAL)
        wait = self._displayed_at + interval - asyncio.get_running_loop().time()
        if wait > 0 and not now:
            # In a large fleet the next pass over its progress shows it: make no pass just for that.
            least = self.wakeup.progress_interval() if only_progress else 0.0
            self.wakeup.after(max(wait, least))
            return
        self._seen = None  # it no longer matches the written status
        try:
            await self.world.write_status(after)
        except StatusConflict:
            self.wakeup.now()
        self._displayed_at = asyncio.get_running_loop().time()

    def _emit_history(self, seen: Observation) -> None:
        """Emit new entries of the status's history once, even if the answer to our write got
        lost."""
        emitted, history = self._emitted, seen.status.history
        if emitted is None:
            emitted = tuple(entry for entry in history if seen.now - entry.time >= self.rerecord)
        for entry in history:
            if entry not in emitted:
                event = Event(type=entry.type, reason=entry.reason, message=entry.message)
                self.events.emit(RunEvent(time=entry.time, event=event))
        self._emitted = history

    def _log_once(self, plan: Plan) -> None:
        if (plan.reason, plan.message) != self._logged:
            self._logged = (plan.reason, plan.message)
            _log.info("%s%s: %s", self._prefix, plan.reason, plan.message)


def _patience(seen: Observation) -> float:
    starting = any(w.agent is None and w.phase != "Ended" for w in seen.workers)
    return WHILE_STARTING if starting else 1.0


def _only_progress(before: TrainRunStatus, after: TrainRunStatus) -> bool:
    """Whether only fields differ that change all the time while all is well."""
    otherwise = replace(
        after,
        progress=before.progress,
        posted=before.posted,
        output=before.output,
        checkpoint=before.checkpoint,
        goodput=before.goodput,
    )
    return otherwise == before
