"""Making the worker what the operator's last answer says: hold, start or leave.

Layer: agent. Level-triggered: `reconcile` compares what is with what is ordered, and is called
after every answer, every end of a process and every change of an upload; doing it again changes
nothing. Invariants: an attempt is started at most once, never a lower one than was started or held
for, and only when no process of an earlier one is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent import background, children
from trainrun.agent.attempt import Attempt, Surroundings, build
from trainrun.agent.exhaustive import assert_never
from trainrun.agent.ownership import Ownership
from trainrun.agent.port import pick_port
from trainrun.agent.resolving import Resolving
from trainrun.protocol import Answer, Exit, Hold, Offer, Order, Phase, Start

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class Orders:
    """The agent's desired state, and the way there."""

    around: Surroundings
    resolving: Resolving
    ownership: Ownership
    leave: Callable[[Exit], None]
    """Begins the agent's end."""
    attempt: Attempt | None = None
    offer: Offer | None = None
    order: Order | None = None
    seen: str = ""
    """Digest of the last answer."""
    _answer: Answer | None = None
    _held: int = 0
    """No attempt below this one is started any more."""
    _swept: int = 0
    """Nothing is left of the processes of this attempt."""
    _flush_until: float = 0.0
    _flushed: tuple[int, ...] | None = None
    """The steps that the last Hold order named."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def apply(self, answer: Answer) -> bool:
        """Take the operator's answer; False when it is the one before."""
        if answer.digest == self.seen:
            return False
        self.seen = answer.digest
        if self.order != answer.order:
            LOG.info("order: %s", answer.order)
        self.order, self._answer = answer.order, answer
        if isinstance(answer.order, Hold):
            self._flush_until = time.monotonic() + answer.order.flush_seconds
            asyncio.get_running_loop().call_later(answer.order.flush_seconds + 0.01, self.reconcile)
        self._take_steps()
        self.reconcile()
        return True

    def reconcile(self) -> None:
        """Do what is to be done now."""
        match self.order:
            case None:
                return
            case Hold():
                self._hold(self.order)
            case Start():
                self._start(self.order)
            case Exit():
                self.leave(self.order)
            case _:
                assert_never(self.order)

    def reaped(self, pid: int, status: int) -> None:
        """A child has ended."""
        if self.attempt is not None:
            self.attempt.processes.reaped(pid, status)

    @property
    def phase(self) -> Phase:
        """What a heartbeat says that this worker does."""
        if self.attempt is None:
            return "Idle"
        if self.attempt.processes.alive or self._unswept:
            return "Running"
        return "Flushing" if self._flushing else "Idle"

    def stop(self) -> bool:
        """Kill every process of the attempt; True when none is left, helpers included."""
        attempt = self.attempt
        if attempt is None or self._swept == attempt.number:
            return True
        if attempt.processes.alive:
            attempt.stop()
            return False
        # What the processes left behind is ours now, whatever session it made for itself.
        if children.children():
            children.kill_all()
            return False
        self._swept = attempt.number
        self.around.news()
        return True

    @property
    def _unswept(self) -> bool:
        return (
            self.attempt is not None
            and isinstance(self.order, Hold)
            and self.attempt.number < self.order.attempt
            and self._swept != self.attempt.number
        )

    @property
    def _flushing(self) -> bool:
        return (
            self.attempt is not None
            and isinstance(self.order, Hold)
            and self.attempt.number < self.order.attempt
            and time.monotonic() < self._flush_until
            and self.attempt.uploads.unfinished(self.order.flush)
        )

    def _hold(self, order: Hold) -> None:
        self._held = max(self._held, order.attempt)
        attempt = self.attempt
        if attempt is not None and attempt.number < order.attempt:
            if not self.stop():
                return
            self._flush(attempt, order)
            if self._flushing:
                return
            if attempt.uploads.only and attempt.uploads.unfinished(order.flush):
                LOG.warning("uploads of attempt %d took too long: given up", attempt.number)
                attempt.uploads.abandon()
        elif attempt is not None:
            return  # a late answer: that attempt is running already
        self._prepare(order)

    def _flush(self, attempt: Attempt, order: Hold) -> None:
        if self._flushed != order.flush:
            self._flushed = order.flush
            attempt.uploads.only = frozenset(order.flush)
            if attempt.metrics is not None:
                self._in_background(attempt.metrics.write())
            attempt.staging.open(order.flush, time.monotonic())
            attempt.changed()
            attempt.uploads.hurry()
            self.around.news()

    def _prepare(self, order: Hold) -> None:
        """What an idle worker does for the next attempt."""
        if order.offer and (self.offer is None or self.offer.attempt != order.attempt):
            self.offer = Offer(
                attempt=order.attempt, address=self.around.config.address, port=pick_port()
            )
            self.around.news()
        self.resolving.want(order.resolve)

    def _start(self, order: Start) -> None:
        attempt = self.attempt
        if order.attempt < self._held or (attempt and order.attempt <= attempt.number):
            return  # refused, or done
        if not self.stop():
            return
        if attempt is not None:
            attempt.close()
        self.resolving.want(None)
        self._held = order.attempt
        LOG.info("starting attempt %d", order.attempt)
        self._flushed = None
        self.attempt = build(order, self.around)
        self.attempt.launch()
        self._take_steps()  # the same answer may already tell of others' checkpoints
        self._in_background(self._forget_below(order.attempt))

    def _take_steps(self) -> None:
        """Do what the answer says about checkpoints of the attempt that we have."""
        attempt, answer = self.attempt, self._answer
        if attempt is None or answer is None:
            return
        now = time.monotonic()
        number = attempt.number
        match answer.order:
            case Start():
                ours = answer.order.attempt == number
            case Hold():
                ours = answer.order.attempt > number
            case Exit():
                ours = False
            case _:
                assert_never(answer.order)
        if not ours:
            return
        if answer.committed is not None and answer.committed.attempt == number:
            attempt.uploads.saw_commit(answer.committed)
        for step in answer.drop:
            attempt.uploads.drop(step)
        attempt.staging.open((open_.step for open_ in answer.steps), now)
        for open_ in answer.steps:
            attempt.uploads.stored(open_.step, open_.slots)
        if isinstance(answer.order, Start):
            attempt.saving.apply(answer.save)
            attempt.fetching.source = answer.order.source
        attempt.changed()
        self.around.news()

    async def _forget_below(self, attempt: int) -> None:
        await asyncio.to_thread(self.around.folders.forget_below, attempt)

    def _in_background(self, work: background.Work) -> None:
        task = background.run(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
