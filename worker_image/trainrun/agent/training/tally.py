"""Counts the votes on a call of `should_save()` through the store while the operator is silent.

Layer: agent. Every worker writes its vote on a call to the store, once and for good; all then
follow `vote_rules.outcome`. Invariants: agents and operator reach the same result, since votes
never change, so neither needs to know about the other; the store is neither read nor written while
the operator answers in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from trainrun.agent import background
from trainrun.agent.training import vote_rules
from trainrun.contract.agent_state import Problem, SaveVote
from trainrun.contract.answer import SaveOrder
from trainrun.errors import StoreError

PATIENCE = 5.0
"""Seconds that a prepared call waits for the operator, which decides in less than one."""
SILENCE = 15.0
"""Seconds without an answer of the operator after which others may wait for our vote: it holds
answers back for up to ten."""
LOOK, LATER_LOOK = 2.0, 15.0
"""Seconds between two reads of the store while a call is undecided; the second one after `LONG`,
and if no undecided call is known."""
LONG = 60.0
"""Seconds that a call is undecided before the agent reads less often."""
NAMED = 10
"""Maximum slots named in a message."""


class Votes(Protocol):
    """The vote of this worker in one attempt: a `Voter`."""

    @property
    def vote(self) -> SaveVote:
        """As heartbeats carry it."""
        ...

    def consider(self, order: SaveOrder) -> None:
        """Follow the outcome of the count."""
        ...

    def agrees(self, call: int) -> bool | None:
        """Whether this worker saves at a call if all others do; None: not decided yet."""
        ...

    def asked(self) -> SaveOrder | None:
        """The order that prepared the current call, with its ages brought up to date."""
        ...

    def undecided(self) -> float:
        """Seconds since the prepared and undecided call was prepared; 0: there is none."""
        ...


class VoteStore(Protocol):
    """Shares the votes between workers. Every method raises StoreError."""

    async def write_vote(
        self, attempt: int, call: int, *, agrees: bool, asked: SaveOrder | None
    ) -> None:
        """Write this worker's vote, with the order behind it."""
        ...

    async def stored_votes(self, attempt: int) -> Mapping[int, Mapping[int, bool]]:
        """The votes so far, by call and slot."""
        ...

    async def asked_to_save(
        self, attempt: int, call: int, votes_by_slot: Mapping[int, bool]
    ) -> SaveOrder | None:
        """The order behind a call, from workers that agree to it."""
        ...


@dataclass(slots=True, kw_only=True)
class Tally:
    """One worker's part in the count, in one attempt."""

    attempt: int
    slot: int
    workers: int
    votes: Votes
    box: VoteStore
    problem: Problem | None = None
    """Why ranks that reach the call must wait."""
    _next_look: float = 0.0
    _looking: asyncio.Task[None] | None = None

    def tick(self, now: float, *, silent: float) -> None:
        """Called about once a second while the attempt runs; `silent`: seconds since the operator's
        last answer."""
        undecided = self.votes.undecided()
        if undecided < PATIENCE:
            self.problem = None
            if silent < SILENCE:
                self._next_look = now
                return
        elif self.problem is None:
            self._wait("VotesMissing", "; reading the votes of the other workers from the store")
            self._next_look = now
        if now >= self._next_look and (self._looking is None or self._looking.done()):
            self._next_look = now + (LOOK if PATIENCE <= undecided < LONG else LATER_LOOK)
            self._looking = background.run(self._look())

    def close(self) -> None:
        """The attempt is over."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        held = self.votes.vote.prepared
        try:
            if held is not None:
                await self._write_vote(
                    held
                )  # write before reading, so that the last worker sees all
            for call, votes_by_slot in (await self.box.stored_votes(self.attempt)).items():
                await self._take_part(call, votes_by_slot)
        except StoreError as error:
            self._wait(
                "StorageUnavailable",
                f", and the votes of the other workers cannot be read from the store ({error}). It "
                "continues when the operator or the store answers",
            )

    async def _take_part(self, call: int, votes_by_slot: Mapping[int, bool]) -> None:
        """Vote on a call that others wait at, and follow the outcome of all votes."""
        if self.votes.agrees(call) is None:
            order = await self.box.asked_to_save(self.attempt, call, votes_by_slot)
            if order is not None:
                self.votes.consider(order)
        if self.slot not in votes_by_slot:
            votes_by_slot = {**votes_by_slot, **await self._write_vote(call)}
        asked = self.votes.asked()
        if self.votes.vote.prepared != call or asked is None:
            return  # not prepared here, or decided meanwhile
        stage = vote_rules.outcome(votes_by_slot, workers=self.workers)
        if stage is not None:
            self.problem = None
            self.votes.consider(replace(asked, stage=stage))
        else:
            self._wait("VotesMissing", self._missing(votes_by_slot))

    async def _write_vote(self, call: int) -> dict[int, bool]:
        """Write our vote if there is one; return it by slot."""
        agrees = self.votes.agrees(call)
        if agrees is None:
            return {}
        asked = self.votes.asked()
        if asked is not None and asked.call != call:
            asked = None
        await self.box.write_vote(self.attempt, call, agrees=agrees, asked=asked)
        return {self.slot: agrees}

    def _wait(self, reason: str, why: str) -> None:
        call = self.votes.vote.prepared
        if call is not None and self.votes.undecided() >= PATIENCE:
            message = (
                f"training waits at call {call} of should_save(): the operator has not decided "
                f"whether to save there{why}"
            )
            self.problem = Problem(type="SaveWaiting", reason=reason, message=message)

    def _missing(self, votes_by_slot: Mapping[int, bool]) -> str:
        slots = [slot for slot in range(self.workers) if slot not in votes_by_slot]
        named = ", ".join(map(str, slots[:NAMED])) + (", ..." if len(slots) > NAMED else "")
        return (
            f", and the votes of the workers of slots {named} are not in the store. It continues "
            "when they are, or when the operator answers"
        )
