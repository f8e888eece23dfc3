"""A simulated worker's vote on the call of `should_save()` at which all ranks save.

Layer: simulation. The rules, and the count of the votes where no operator counts them, are the
agent's own; what stands here for its control files and for the store is in memory.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.agent.training import vote_rules
from trainrun.contract.agent_state import SaveVote
from trainrun.contract.ages import aged
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.simulation.world.clock import Clock
    from tests.simulation.world.store import SimStore
    from trainrun.contract.answer import SaveOrder


@dataclass(slots=True, kw_only=True)
class SimVotes:
    """The vote of one worker in one attempt."""

    clock: Clock
    living: Callable[[], bool]
    """Whether its processes live."""
    ended_well: Callable[[], bool]
    committed: Callable[[int], None]
    """Called when its ranks are to save at a call."""
    news: Callable[[], None]
    """Called when the agents' own count has changed the vote."""
    vote: SaveVote = field(default_factory=SaveVote)
    _order: SaveOrder | None = None
    _ordered_at: float = 0.0
    _prepared_at: float = 0.0

    def apply(self, order: SaveOrder) -> None:
        """Do what the operator says about a call."""
        before, now = self.vote, self.clock.now
        self.vote = vote_rules.obeyed(before, order, living=self.living())
        if self.vote.prepared is not None and self.vote.prepared != before.prepared:
            self._prepared_at = now
        if order.stage == "Prepare" and order.call == self.vote.prepared:
            self._order, self._ordered_at = order, now
        if self.vote.committed is not None and before.committed is None:
            self.committed(self.vote.committed)

    def consider(self, order: SaveOrder) -> None:
        """Do what follows from the count."""
        before = self.vote
        self.apply(order)
        if self.vote != before:
            self.news()

    def agrees(self, call: int) -> bool | None:
        """Whether this worker saves at a call if all others do; None: not known yet."""
        return vote_rules.agrees(
            self.vote, call, living=self.living(), ended_well=self.ended_well()
        )

    def asked(self) -> SaveOrder | None:
        """What asked for the call that was prepared last."""
        if self._order is None:
            return None
        return aged(self._order, by=self.clock.now - self._ordered_at)

    def undecided(self) -> float:
        """Seconds since a call was prepared whose outcome is not known; 0 where there is none."""
        return 0.0 if self.vote.prepared is None else self.clock.now - self._prepared_at

    def may_call(self, calls: int) -> bool:
        """Whether a rank that has called should_save() so often gets beyond its next call."""
        vote = self.vote
        return vote.prepared is None or calls + 1 < vote.prepared or vote.committed is not None

    def called(self, calls: int) -> bool:
        """A rank's call of this number; True: it is asked to save."""
        self.vote = replace(self.vote, calls=max(self.vote.calls, calls))
        return self.vote.committed is not None and calls >= self.vote.committed


@dataclass(slots=True, kw_only=True)
class SimBallotBox:
    """The ballots of one worker's attempts, in the simulated store."""

    store: SimStore
    rng: random.Random
    slot: int

    async def write_vote(
        self, attempt: int, call: int, *, agrees: bool, asked: SaveOrder | None
    ) -> None:
        """Say it, as this worker."""
        await self._reach()
        votes_by_slot = self.store.stored_votes.setdefault(attempt, {}).setdefault(call, {})
        votes_by_slot[self.slot] = (agrees, asked)
        await self._reach()  # its answer

    async def stored_votes(self, attempt: int) -> Mapping[int, Mapping[int, bool]]:
        """What was said so far, by call and slot."""
        await self._reach()
        found = self.store.stored_votes.get(attempt, {})
        listed = {
            call: {slot: agrees for slot, (agrees, _) in votes_by_slot.items()}
            for call, votes_by_slot in found.items()
        }
        await self._reach()
        return listed

    async def asked_to_save(
        self, attempt: int, call: int, votes_by_slot: Mapping[int, bool]
    ) -> SaveOrder | None:
        """What asked for a call, from those who agree to it."""
        await self._reach()
        told = self.store.stored_votes[attempt][call]
        return next(
            (told[slot][1] for slot in votes_by_slot if votes_by_slot[slot] and told[slot][1]), None
        )

    async def _reach(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.0, 0.2))
        if not self.store.available:
            raise StoreUnavailable("the store is away")
