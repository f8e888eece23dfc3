"""The copies that this worker makes as the buddy of others, and their upload if those are lost.

Layer: agent. The operator names the partners, the step to copy, and the step of which every buddy
has its copy, which is kept meanwhile. A copy is used in one way only: if its worker is lost, this
agent uploads it under that worker's number, with its done marker, while the gang ends. So the store
decides as ever which checkpoint counts. Nothing waits for a copy.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from trainrun._common.backoff import Backoff
from trainrun._common.tree import NO_ROOM, remove_directory
from trainrun.agent import background
from trainrun.agent.checkpoints.downloads import PeerTrouble
from trainrun.agent.checkpoints.overdue import waiting_problem
from trainrun.agent.checkpoints.part_copying import copy_part
from trainrun.agent.checkpoints.staged import Step
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.records import DoneMarker
from trainrun.checkpoint.writer import Upload
from trainrun.contract.agent_state import Problem
from trainrun.contract.answer import Answer, PartHolder, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import CopiedPart, NodeCertificate
from trainrun.errors import (
    CheckpointConflict,
    CheckpointFenced,
    CheckpointUnfinished,
    ObjectNotFound,
    TrainRunError,
    TransferCancelled,
)

LOG = logging.getLogger("trainrun.agent")

AGAIN = 1.0, 15.0
"""Seconds between two tries, the first and the longest."""
AGAIN_TEXT = "It tries again"
UNREACHABLE = errno.EHOSTUNREACH, errno.ENETUNREACH


@dataclass(slots=True, kw_only=True)
class PartCopy:
    """A partner's part of one step."""

    partner: PartHolder
    checkpoint: CheckpointId
    folder: Path
    handle: Upload = field(default_factory=Upload)
    part: Step | None = None
    """None: it is not complete."""
    described: DoneMarker | None = None
    uploaded: bool = False
    uploads: bool = False
    """Its upload has begun."""


@dataclass(slots=True, kw_only=True)
class Buddy:
    """The copies of one agent."""

    folder: Path
    """Holds them; deleted at the start."""
    storage: AsyncRunStore
    tls: ssl.SSLContext | None
    """How partners are verified; None: the operator has no CA, so nothing is copied."""
    news: Callable[[], None]
    certificate: NodeCertificate | None = None
    """The newest one that the operator sent."""
    _copies: dict[tuple[int, CheckpointId], PartCopy] = field(default_factory=dict)
    _problems: dict[int, Problem] = field(default_factory=dict)
    """By the slot of the partner."""
    _workers: int = 0
    _made: int = 0
    """The number of folders that were made."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One copy at a time: it is paced, and several would not be."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why it has no copy of a partner's part, or cannot upload one."""
        return tuple(self._problems[slot] for slot in sorted(self._problems))

    def follow(self, answer: Answer) -> None:
        """Copy what the answer names."""
        order, settings = answer.order, answer.settings
        if settings is not None and not settings.buddy:
            self.clear()
        if not isinstance(order, Start):
            return
        self._workers = order.workers
        if answer.copy < 0 or self.certificate is None or self.tls is None:
            return
        partners = {partner.slot for partner in order.partners}
        self._problems = {slot: p for slot, p in self._problems.items() if slot in partners}
        kept = {answer.copy, answer.copied, self._newest(partners, above=answer.copied)}
        for copy in [*self._copies.values()]:
            if copy.checkpoint.step not in kept:
                self._forget(copy)
        checkpoint = CheckpointId(attempt=order.attempt, step=answer.copy)
        for partner in order.partners:
            known = self._copies.get((partner.slot, checkpoint))
            if known is None or (known.part is None and known.partner != partner):
                if known is not None:
                    self._forget(known)
                self._begin(partner, checkpoint, self.tls, self.certificate.name)

    def stop(self) -> None:
        """The attempt ends: copy nothing more."""
        for copy in [copy for copy in self._copies.values() if copy.part is None]:
            self._forget(copy)

    def give_up(self) -> None:
        """The time for uploads is over."""
        for copy in self._copies.values():
            if copy.uploads and not copy.uploaded:
                copy.handle, copy.uploads = copy.handle.restart(), False

    def upload(self, steps: Collection[int], slots: Collection[int]) -> None:
        """Store the parts of these slots, whose workers are lost."""
        for copy in self._left(steps, slots):
            if not copy.uploads:
                copy.uploads = True
                background.run(self._upload(copy))

    def owes(self, steps: Collection[int], slots: Collection[int]) -> bool:
        """Whether one of these parts is here and not stored yet."""
        return bool(self._left(steps, slots))

    def saw_commit(self, checkpoint: CheckpointId) -> None:
        """Copies of this checkpoint and of older ones are not needed."""
        for copy in [copy for copy in self._copies.values() if copy.checkpoint <= checkpoint]:
            self._forget(copy)

    def clear(self) -> None:
        """The next attempt begins, or the user wants no more copies."""
        for copy in [*self._copies.values()]:
            self._forget(copy)
        self._problems.clear()

    def describe(self) -> tuple[CopiedPart, ...]:
        """The copies as heartbeats carry them."""
        return tuple(
            CopiedPart(
                slot=copy.partner.slot,
                step=copy.checkpoint.step,
                ranks=tuple(sorted(copy.part.files)) if copy.part is not None else (),
                whole=copy.part is not None and copy.part.whole,
                complete=copy.part is not None,
                uploaded=copy.uploaded,
            )
            for copy in self._copies.values()
        )

    def _newest(self, partners: Collection[int], *, above: int) -> int:
        """The newest step of which all partners' parts are here, and which is newer than what all
        buddies have: that may get older again, when one can copy after all. Else -1."""
        steps: dict[int, set[int]] = {}
        for copy in self._copies.values():
            if copy.part is not None and copy.checkpoint.step > above:
                steps.setdefault(copy.checkpoint.step, set()).add(copy.partner.slot)
        return max((step for step, slots in steps.items() if slots >= {*partners}), default=-1)

    def _holds(self, copy: PartCopy) -> bool:
        return self._copies.get((copy.partner.slot, copy.checkpoint)) is copy

    def _left(self, steps: Collection[int], slots: Collection[int]) -> list[PartCopy]:
        return [
            copy
            for copy in self._copies.values()
            if copy.part is not None
            and not copy.uploaded
            and copy.checkpoint.step in steps
            and copy.partner.slot in slots
        ]

    def _forget(self, copy: PartCopy) -> None:
        copy.handle.cancel()
        if self._holds(copy):
            del self._copies[copy.partner.slot, copy.checkpoint]
        if copy.part is not None:  # else the thread that writes it deletes it
            background.run(self.storage.remove([copy.folder]))

    def _begin(
        self, partner: PartHolder, checkpoint: CheckpointId, tls: ssl.SSLContext, name: str
    ) -> None:
        self._made += 1
        copy = PartCopy(
            partner=partner, checkpoint=checkpoint, folder=self.folder / str(self._made)
        )
        self._copies[partner.slot, checkpoint] = copy
        background.run(self._copy(copy, tls, name))
        self.news()

    async def _copy(self, copy: PartCopy, tls: ssl.SSLContext, name: str) -> None:
        backoff, failed = Backoff(*AGAIN), False

        def work() -> tuple[Step, DoneMarker]:
            target, handle, workers = copy.folder, copy.handle, self._workers
            try:
                handle.advance(0)  # it may have been cancelled while it waited
                found = copy_part(
                    copy.partner,
                    copy.checkpoint,
                    target,
                    workers=workers,
                    tls=tls,
                    name=name,
                    handle=handle,
                )
                handle.advance(0)
            except BaseException:
                remove_directory(target)
                raise
            return found

        while True:
            try:
                async with self._turn:
                    found = await asyncio.to_thread(work)
            except TransferCancelled:
                return
            except ObjectNotFound as error:
                LOG.info("no copy of worker %d: %s", copy.partner.slot, error)
            except (OSError, HTTPException, ValueError, PeerTrouble, TrainRunError) as error:
                if not self._holds(copy):
                    return
                if failed:  # nobody waits for a buddy in trouble: all would drop the step before
                    self._tell(copy, error)
                failed = True
            else:
                copy.part, copy.described = found
                if self._holds(copy):
                    self._problems.pop(copy.partner.slot, None)
                else:
                    self._forget(copy)  # while it was returned
                self.news()
                return
            await asyncio.sleep(backoff.next())

    def _tell(self, copy: PartCopy, error: Exception) -> None:
        who, slot = self.storage.config.worker, copy.partner.slot
        reason, why, remedy = _explained(error)
        message = f"worker {who} has no copy of what worker {slot} has staged: {why}. {remedy}"
        problem = Problem(type="NoBuddy", reason=reason, message=message)
        if problem != self._problems.get(slot):
            LOG.warning("%s", message)
            self._problems[slot] = problem
            self.news()

    async def _upload(self, copy: PartCopy) -> None:
        backoff, handle, slot = Backoff(*AGAIN), copy.handle, copy.partner.slot
        while copy.part is not None and self._holds(copy) and copy.handle is handle:
            try:
                await self.storage.write_part(
                    copy.checkpoint,
                    copy.part,
                    workers=self._workers,
                    upload=handle,
                    described=copy.described,
                    worker=slot,
                )
            except TransferCancelled:
                return
            except (CheckpointUnfinished, CheckpointConflict, CheckpointFenced) as error:
                LOG.error("the copy of worker %d is not used: %s", slot, error)
                self._forget(copy)
                self.news()
                return
            except (TrainRunError, OSError) as error:
                if self._holds(copy) and copy.handle is handle:
                    self._problems[slot] = waiting_problem(copy.checkpoint.attempt, error)
                    self.news()
            else:
                LOG.info("stored %s for worker %d", copy.checkpoint.name, slot)
                copy.uploaded = True
                self._problems.pop(slot, None)
                self.news()
                return
            await asyncio.sleep(backoff.next())


def _explained(error: Exception) -> tuple[str, str, str]:
    """Reason, cause and remedy. No figures or paths, which would change with each step."""
    number = error.errno if isinstance(error, OSError) else None
    if number in NO_ROOM:
        return "NoRoom", "its disk is full", "Give its disk room for three checkpoints more"
    if isinstance(error, HTTPException):
        return "NotCopied", "the connection was cut", AGAIN_TEXT
    why = (error.strerror if isinstance(error, OSError) else None) or str(error) or repr(error)
    if isinstance(error, (ConnectionError, TimeoutError)) or number in UNREACHABLE:
        return "NotCopied", why, "Let workers of the run reach each other at all ports"
    return "NotCopied", why, AGAIN_TEXT
