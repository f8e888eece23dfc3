"""This worker's vote on the call of `should_save()` that all ranks answer with yes.

Layer: agent. The operator counts the votes (two phases: prepare, then commit or abort), or the
agents do while it is silent (see `tally`). `vote_rules` decides this worker's vote; this module
carries it out on the processes' control files. Invariants: once a call is committed, it and every
later one is answered with yes; a rank that has exited does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from trainrun.agent.training import vote_rules
from trainrun.contract.agent_state import SaveVote
from trainrun.contract.ages import aged
from trainrun.contract.answer import SaveOrder
from trainrun.contract.local_files import CallGate
from trainrun.contract.questions import SaveNow

BUSY_RETRY = 0.002
"""Seconds before retrying a control file that its process has locked."""


@dataclass(slots=True, kw_only=True)
class Voter:
    """The vote of one worker in one attempt."""

    files: Mapping[int, CallGate]
    """Control files by rank."""
    living: Callable[[], tuple[int, ...]]
    """Ranks whose process lives."""
    news: Callable[[], None]
    """Called when the vote has changed."""
    ended_well: Callable[[], bool] = lambda: False
    """Whether every process has ended with exit code 0."""
    saved: set[int] = field(default_factory=set)
    """Ranks that got the answer yes."""
    _vote: SaveVote = field(default_factory=SaveVote)
    """Without the calls, which the processes count."""
    _asked: SaveNow | None = None
    """The answer for ranks after a commit, with ages as of `_asked_at`."""
    _asked_at: float = 0.0
    """On the monotonic clock."""
    _order: SaveOrder | None = None
    """The order that prepared the current call, with ages as of `_ordered_at`."""
    _ordered_at: float = 0.0
    """On the monotonic clock."""
    _prepared_at: float = 0.0
    _waiters: list[asyncio.Future[SaveNow | None]] = field(default_factory=list)
    _retry: asyncio.TimerHandle | None = None

    @property
    def vote(self) -> SaveVote:
        """The vote for heartbeats."""
        # Includes ended ranks: the gang cannot save at a call that they have passed.
        calls = max((file.calls for file in self.files.values()), default=0)
        return replace(self._vote, calls=calls)

    def apply(self, order: SaveOrder | None) -> None:
        """Follow the operator's order about a call; repeating it changes nothing.

        The vote is final once all processes have ended: no rank waits for an answer then.
        """
        self._cancel_retry()
        if order is None:
            return
        try:
            self._follow(order)
        except BlockingIOError:
            self._retry = asyncio.get_running_loop().call_later(BUSY_RETRY, self.apply, order)

    def consider(self, order: SaveOrder) -> None:
        """Follow the agents' own count; if a control file is locked at this moment nothing changes,
        since they count again."""
        with contextlib.suppress(BlockingIOError):
            self._follow(order)

    def agrees(self, call: int) -> bool | None:
        """Whether this worker saves at a call if all others do; None: not decided yet."""
        living = bool(self.living())
        return vote_rules.agrees(self.vote, call, living=living, ended_well=self.ended_well())

    def asked(self) -> SaveOrder | None:
        """The order that prepared the current call, with its ages brought up to date."""
        if self._order is None:
            return None
        return aged(self._order, by=time.monotonic() - self._ordered_at)

    def undecided(self) -> float:
        """Seconds since the prepared and undecided call was prepared; 0: there is none."""
        return 0.0 if self._vote.prepared is None else time.monotonic() - self._prepared_at

    async def ask(self, rank: int, call: int) -> SaveNow | None:
        """Answer call `call` of `rank`, once it is decided."""
        asked = self._asked
        vote = self._vote
        if vote.committed is None or call < vote.committed:
            if vote.prepared is None or call < vote.prepared:
                return None
            outcome: asyncio.Future[SaveNow | None] = asyncio.get_running_loop().create_future()
            self._waiters.append(outcome)
            asked = await outcome
        if asked is None:
            return None
        self.saved.add(rank)
        return aged(asked, by=time.monotonic() - self._asked_at)

    def close(self) -> None:
        """The attempt is over."""
        self._cancel_retry()
        for file in self.files.values():
            file.close()

    def _follow(self, order: SaveOrder) -> None:
        """Raises BlockingIOError if a control file is locked, and then changes nothing."""
        before, now, living = self._vote, time.monotonic(), bool(self.living())
        self._vote = vote = vote_rules.obeyed(before, order, living=living, stops=self._mark)
        if vote.committed != before.committed:
            self._asked_at = now
            self._asked = SaveNow(
                reason=order.reason, writer_rank=order.writer_rank, deadline=order.deadline
            )
            self._answer(self._asked)
        elif before.prepared is not None and vote.prepared is None:
            self._unmark([self.files[rank] for rank in self.living()])
            self._answer(None)
        elif vote.prepared != before.prepared:
            self._prepared_at = now
        if vote != before:
            self.news()
        if order.stage == "Prepare" and order.call == vote.prepared:
            # Also if it is repeated: the writer rank may have changed.
            self._order, self._ordered_at = order, now

    def _mark(self, call: int) -> bool:
        """Stop every living rank at `call`, or none; raises BlockingIOError if one is locked."""
        living = self.living()
        if any(file.calls >= call for rank, file in self.files.items() if rank not in living):
            return False
        marked: list[CallGate] = []
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

    def _unmark(self, files: list[CallGate]) -> None:
        for file in files:
            try:
                file.try_abort()
            except BlockingIOError:
                # Its process holds the lock at this moment: at worst it takes the slow path, where
                # the answer is no.
                asyncio.get_running_loop().call_later(BUSY_RETRY, self._unmark_later, file)

    def _unmark_later(self, file: CallGate) -> None:
        if self._vote.prepared is None and self._vote.committed is None:
            self._unmark([file])

    def _answer(self, asked: SaveNow | None) -> None:
        waiters, self._waiters = self._waiters, []
        for outcome in waiters:
            if not outcome.done():  # otherwise its process has ended
                outcome.set_result(asked)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
