"""What a simulated worker copies of others, and stores for them if they are lost.

Layer: simulation. An agent is reached at its name; its disk is gone with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.contract.answer import Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import CopiedPart

if TYPE_CHECKING:
    from tests.simulation.world.carrying import Carrier
    from trainrun.contract.answer import Answer, PartHolder

TAKES = 0.1, 3.0
"""Seconds for which a copy, or its upload, goes on."""


@dataclass(slots=True, kw_only=True)
class SimCopy:
    """A part of another worker."""

    slot: int
    step: int
    complete: bool = False
    uploads: bool = False
    uploaded: bool = False


@dataclass(slots=True, kw_only=True)
class SimBuddy:
    """Of one agent, in one attempt."""

    copies: dict[tuple[int, int], SimCopy] = field(default_factory=dict)
    """By slot and step."""
    workers: int = 0

    def told(self) -> tuple[CopiedPart, ...]:
        """As a heartbeat tells it."""
        return tuple(
            CopiedPart(
                slot=slot,
                step=step,
                ranks=(slot,),
                complete=copy.complete,
                uploaded=copy.uploaded,
            )
            for (slot, step), copy in sorted(self.copies.items())
        )

    def follow(self, agent: Carrier, answer: Answer) -> None:
        """Copy what is named."""
        order = answer.order
        if answer.committed is not None and answer.committed.attempt == agent.attempt:
            step = answer.committed.step
            self.copies = {key: copy for key, copy in self.copies.items() if key[1] > step}
        if not isinstance(order, Start) or answer.copy < 0:
            return
        self.workers = order.workers
        keep = answer.copy, answer.copied
        self.copies = {key: copy for key, copy in self.copies.items() if key[1] in keep}
        for partner in order.partners:
            if (partner.slot, answer.copy) not in self.copies:
                copy = SimCopy(slot=partner.slot, step=answer.copy)
                self.copies[partner.slot, answer.copy] = copy
                self._copy_later(agent, copy, partner)

    def upload(self, agent: Carrier, steps: Collection[int], slots: Collection[int]) -> None:
        """Store these for workers that are lost; copy nothing more."""
        self.copies = {key: copy for key, copy in self.copies.items() if copy.complete}
        for copy in self._left(steps, slots):
            if not copy.uploads:
                copy.uploads = True
                self._upload_later(agent, copy, agent.attempt)

    def owes(self, steps: Collection[int], slots: Collection[int]) -> bool:
        """Whether one of these has still to be stored."""
        return bool(self._left(steps, slots))

    def has(self, slot: int, step: int) -> bool:
        """Whether it could store this part."""
        copy = self.copies.get((slot, step))
        return copy is not None and copy.complete

    def _left(self, steps: Collection[int], slots: Collection[int]) -> list[SimCopy]:
        return [
            copy
            for (slot, step), copy in self.copies.items()
            if slot in slots and step in steps and copy.complete and not copy.uploaded
        ]

    def _copy_later(self, agent: Carrier, copy: SimCopy, partner: PartHolder) -> None:
        world, attempt = agent.world, agent.attempt

        def copied() -> None:
            wanted = self.copies.get((copy.slot, copy.step)) is copy
            if not agent.alive or agent.attempt != attempt or not wanted:
                return
            source = world.reached(partner.source.address, partner.source.secret)
            entry = source.staging.steps.get(copy.step) if source is not None else None
            there = source is not None and source.attempt == attempt
            if there and entry is not None and entry.complete and not entry.uploaded:
                copy.complete = True
                agent.changed()
            else:
                self._copy_later(agent, copy, partner)

        world.clock.after(world.rng.uniform(*TAKES), copied)

    def _upload_later(self, agent: Carrier, copy: SimCopy, attempt: int) -> None:
        world = agent.world

        def upload() -> None:
            if not agent.alive or agent.attempt != attempt:
                return
            if not world.store.available:
                self._upload_later(agent, copy, attempt)
                return
            point = CheckpointId(attempt=attempt, step=copy.step)
            world.store.put_part(point, slot=copy.slot, workers=self.workers)
            copy.uploaded = True
            world.trainer.stored(point)
            agent.changed()

        world.clock.after(world.rng.uniform(*TAKES), upload)
