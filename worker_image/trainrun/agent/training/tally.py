"""Counting the votes on a call of `should_save()` where the operator does not, by way of the store.

Layer: agent. Every worker writes what it says of a call, once and for good, where all others see
it; all then follow `vote_rules.outcome`. Invariants: what the agents count and what an operator
counts is the same, since both follow from votes that never change, so that neither need know of the
other; nothing is written, and the store is not asked, while the operator answers in time.
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
"""Seconds that a prepared call waits for the operator; it decides in less than one."""
SILENCE = 15.0
"""Seconds without an answer of the operator after which others may wait for our vote: it holds
answers back for up to ten."""
LOOK, LATER_LOOK = 2.0, 15.0
"""Seconds between two looks at the store while a call is undecided, and when that takes long or
nothing is known to be undecided."""
LONG = 60.0
"""Seconds after which it takes long."""
NAMED = 10
"""Slots that a message names at most."""


class Votes(Protocol):
    """The vote of this worker in one attempt: a `Voter`."""

    @property
    def vote(self) -> SaveVote:
        """As heartbeats carry it."""
        ...

    def consider(self, order: SaveOrder) -> None:
        """Do what follows from the count."""
        ...

    def says(self, call: int) -> bool | None:
        """Whether this worker saves at a call if all others do; None: not known yet."""
        ...

    def asked(self) -> SaveOrder | None:
        """What asked for the call that was prepared last, as it would be said now."""
        ...

    def undecided(self) -> float:
        """Seconds since a call was prepared whose outcome is not known; 0 where there is none."""
        ...


class VoteStore(Protocol):
    """Where all workers see what each says. Every method raises StoreError."""

    async def write_vote(
        self, attempt: int, call: int, *, agrees: bool, asked: SaveOrder | None
    ) -> None:
        """Say it, as this worker, with what asked it to."""
        ...

    async def stored_votes(self, attempt: int) -> Mapping[int, Mapping[int, bool]]:
        """What was said so far, by call and slot."""
        ...

    async def asked_to_save(
        self, attempt: int, call: int, said: Mapping[int, bool]
    ) -> SaveOrder | None:
        """What asked for a call, from those who agree to it."""
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
    """Why ranks that reach the call have to wait."""
    _next_look: float = 0.0
    _looking: asyncio.Task[None] | None = None

    def tick(self, now: float, *, silent: float) -> None:
        """Called about once a second while the attempt runs; `silent`: seconds since the operator
        has answered."""
        undecided = self.votes.undecided()
        if undecided < PATIENCE:
            self.problem = None
            if silent < SILENCE:
                self._next_look = now
                return
        elif self.problem is None:
            self._wait("VotesMissing", "; the store is asked for the votes of the other workers")
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
                await self._say(held)  # before it looks, so that the last of all sees all
            for call, said in (await self.box.stored_votes(self.attempt)).items():
                await self._take_part(call, said)
        except StoreError as error:
            self._wait(
                "StorageUnavailable",
                f", and the store cannot be asked for the votes of the other workers ({error}). It "
                "goes on when one of the two answers",
            )

    async def _take_part(self, call: int, said: Mapping[int, bool]) -> None:
        """Say what this worker does at a call that others wait at; do what follows from all."""
        if self.votes.says(call) is None:
            order = await self.box.asked_to_save(self.attempt, call, said)
            if order is not None:
                self.votes.consider(order)
        if self.slot not in said:
            said = {**said, **await self._say(call)}
        asked = self.votes.asked()
        if self.votes.vote.prepared != call or asked is None:
            return  # not ours to decide, or decided meanwhile
        stage = vote_rules.outcome(said, workers=self.workers)
        if stage is not None:
            self.problem = None
            self.votes.consider(replace(asked, stage=stage))
        else:
            self._wait("VotesMissing", self._missing(said))

    async def _say(self, call: int) -> dict[int, bool]:
        """Write our ballot where there is something to say; returns it."""
        agrees = self.votes.says(call)
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
                f"training waits at call {call} of should_save(): the operator has not said "
                f"whether to save there{why}"
            )
            self.problem = Problem(type="SaveWaiting", reason=reason, message=message)

    def _missing(self, said: Mapping[int, bool]) -> str:
        slots = [slot for slot in range(self.workers) if slot not in said]
        named = ", ".join(map(str, slots[:NAMED])) + (", ..." if len(slots) > NAMED else "")
        return (
            f", and the votes of the workers of slots {named} are not in the store. It goes on "
            "when they are, or when the operator answers"
        )
