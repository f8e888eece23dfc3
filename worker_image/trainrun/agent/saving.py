"""This worker's part in agreeing on the call of `should_save()` that is answered with yes.

Layer: agent. The votes are counted by the operator (two phases: prepare, then commit or abort).
Invariants: a prepared call is binding until it is committed or aborted; a refused call is never
prepared; once a call is committed, it and every later one is answered with yes; a rank that has
exited does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainrun.agent.control import ControlFile
from trainrun.agent.exhaustive import assert_never
from trainrun.protocol import SaveOrder, SaveVote

BUSY_RETRY = 0.002
"""Seconds until a control file that its process has locked is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the ranks are told after a commit."""

    reason: str
    writer_rank: int
    deadline: float | None
    """On the monotonic clock."""

    def reply(self, now: float) -> dict[str, object]:
        """The answer to a waiting call."""
        left = None if self.deadline is None else max(0.0, self.deadline - now)
        return {"reason": self.reason, "deadline": left, "writer_rank": self.writer_rank}


@dataclass(slots=True, kw_only=True)
class Saving:
    """The vote of one worker in one attempt."""

    files: Mapping[int, ControlFile]
    """Control files by rank."""
    living: Callable[[], tuple[int, ...]]
    """Ranks whose process lives."""
    news: Callable[[], None]
    """Called when the vote has changed."""
    saved: set[int] = field(default_factory=set)
    """Ranks that were answered with yes."""
    _prepared: int | None = None
    _committed: int | None = None
    _refused: int = 0
    _refusals: int = 0
    _asked: Asked | None = None
    _waiting: list[asyncio.Future[Asked | None]] = field(default_factory=list)
    _retry: asyncio.TimerHandle | None = None

    @property
    def vote(self) -> SaveVote:
        """As heartbeats carry it."""
        return SaveVote(
            # Also of ranks that have ended: a call that they passed is not theirs to save at.
            calls=max((file.calls for file in self.files.values()), default=0),
            prepared=self._prepared,
            refused=self._refused,
            refusals=self._refusals,
            committed=self._committed,
        )

    def apply(self, order: SaveOrder | None) -> None:
        """Do what the operator says about a call; repeating it changes nothing.

        The vote of processes that have all ended is final: nobody waits for an answer any more.
        """
        self._cancel_retry()
        if order is None or self._committed is not None or not self.living():
            return
        match order.stage:
            case "Prepare":
                self._prepare(order)
            case "Commit":
                self._commit(order)
            case "Abort":
                self._abort(order)
            case _:
                assert_never(order.stage)

    async def ask(self, rank: int, call: int) -> dict[str, object] | None:
        """Answer call `call` of `rank`, once it is decided."""
        asked = self._asked
        if self._committed is None or call < self._committed:
            if self._prepared is None or call < self._prepared:
                return None
            outcome: asyncio.Future[Asked | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(outcome)
            asked = await outcome
        if asked is None:
            return None
        self.saved.add(rank)
        return asked.reply(time.monotonic())

    def close(self) -> None:
        """The attempt is over."""
        self._cancel_retry()
        for file in self.files.values():
            file.close()

    def _prepare(self, order: SaveOrder) -> None:
        call = order.call
        if call <= self._refused or call == self._prepared:
            return
        if self._prepared is not None:
            # Two operators at once. A later call can wait until ours is settled; an earlier one
            # would wait for us for ever.
            if call < self._prepared:
                self._refuse(call)
            return
        try:
            ready = self._mark(call)
        except BlockingIOError:
            self._retry = asyncio.get_running_loop().call_later(BUSY_RETRY, self.apply, order)
            return
        if ready:
            self._prepared = call
            self.news()
        else:
            self._refuse(call)

    def _mark(self, call: int) -> bool:
        """Stop every living rank at `call`, or none; raises BlockingIOError where one is locked."""
        living = self.living()
        if any(file.calls >= call for rank, file in self.files.items() if rank not in living):
            return False
        marked: list[ControlFile] = []
        try:
            for rank in living:
                file = self.files[rank]
                if not file.try_prepare(call):
                    self._unmark(marked)
                    return False
                marked.append(file)
        except BlockingIOError:
            self._unmark(marked)
            raise
        return True

    def _unmark(self, files: list[ControlFile]) -> None:
        for file in files:
            try:
                file.try_abort()
            except BlockingIOError:
                # Locked by its process this very moment: it takes the slow path at worst, and is
                # answered with no there.
                asyncio.get_running_loop().call_later(BUSY_RETRY, self._unmark_later, file)

    def _unmark_later(self, file: ControlFile) -> None:
        if self._prepared is None and self._committed is None:
            self._unmark([file])

    def _refuse(self, call: int) -> None:
        self._refused = max(self._refused, call)
        self._refusals += 1
        self.news()

    def _commit(self, order: SaveOrder) -> None:
        if self._prepared != order.call:
            return  # never asked about this call: a commit needs the votes of all that live
        deadline = None if order.deadline is None else time.monotonic() + order.deadline
        self._asked = Asked(reason=order.reason, writer_rank=order.writer_rank, deadline=deadline)
        self._committed, self._prepared = order.call, None
        self._answer(self._asked)
        self.news()

    def _abort(self, order: SaveOrder) -> None:
        self._refused = max(self._refused, order.call)
        if self._prepared == order.call:
            self._prepared = None
            self._unmark([self.files[rank] for rank in self.living()])
            self._answer(None)
        self.news()

    def _answer(self, asked: Asked | None) -> None:
        waiting, self._waiting = self._waiting, []
        for outcome in waiting:
            if not outcome.done():  # else its process has ended
                outcome.set_result(asked)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
