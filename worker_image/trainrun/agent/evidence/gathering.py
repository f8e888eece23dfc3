"""Evidence for the operator: gathered when it asks, told at once, stored in the background.

Layer: agent. Nobody waits for it: a rank of which nothing is known in time is told as just that,
and heartbeats go on meanwhile. Each request is answered once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainrun._common.backoff import Backoff
from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.evidence.looking import Found, Subject, look_at
from trainrun.contract.evidence import EVIDENCE_SECONDS, Evidence, EvidenceRequest, RankEvidence
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

IN_TIME = EVIDENCE_SECONDS - 3.0
"""Seconds after which is told what is known: the way to the operator takes time, too."""
STORED_WITHIN = 300.0
"""Seconds for which a store that is away is tried again."""


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    told: Evidence | None = None
    """What the newest request has led to; None while it is asked for, and once nobody asks."""
    _request: EvidenceRequest | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def want(self, request: EvidenceRequest | None, subjects: Iterable[Subject]) -> None:
        """The operator wants this, or nothing any more; `subjects`: where the ranks are."""
        if request == self._request:
            return
        self._request, self.told = request, None
        if request is not None:
            LOG.info("the gang stands still: looking where its ranks are")
            task = background.run(self._gather(request, tuple(subjects)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stored(self) -> None:
        """Wait until all is stored, or given up."""
        await asyncio.gather(*self._tasks)

    async def _gather(self, request: EvidenceRequest, subjects: tuple[Subject, ...]) -> None:
        looks = [_in_thread(subject) for subject in subjects]
        if looks:
            await asyncio.wait(looks, timeout=IN_TIME)
        found = [_result(look, subject) for look, subject in zip(looks, subjects, strict=True)]
        told = tuple(it.told for it in found)
        if request == self._request:
            self.told = Evidence(attempt=request.attempt, number=request.number, ranks=told)
            self.news()
        await self._store(request, [it.record for it in found])

    async def _store(self, request: EvidenceRequest, ranks: list[dict[str, Any]]) -> None:
        backoff, end = Backoff(0.5, 30.0), asyncio.get_running_loop().time() + STORED_WITHIN
        while asyncio.get_running_loop().time() < end:
            try:
                await self.storage.write_hang(request, ranks)
            except TrainRunError as error:
                LOG.info("the evidence of a hang waits for the store: %s", error)
                await asyncio.sleep(backoff.next())
            else:
                return


def _in_thread(subject: Subject) -> asyncio.Future[Found]:
    """In a thread of its own that nobody waits for when the agent ends: the kernel may keep it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Found] = loop.create_future()

    def resolve(found: Found | None, error: Exception | None) -> None:
        if future.done():
            return
        if found is not None:
            future.set_result(found)
        elif error is not None:
            future.set_exception(error)

    def work() -> None:
        found, error = None, None
        try:
            found = look_at(subject)
        except Exception as caught:  # noqa: BLE001 - told as what it is: nothing is known
            error = caught
        try:
            loop.call_soon_threadsafe(resolve, found, error)
        except RuntimeError:
            return  # the agent has ended

    threading.Thread(target=work, name=f"evidence-{subject.rank}", daemon=True).start()
    return future


def _result(look: asyncio.Future[Found], subject: Subject) -> Found:
    """What was found of a rank; or just its step, where that took too long."""
    if look.done() and look.exception() is None:
        return look.result()
    why = repr(look.exception()) if look.done() else f"nothing was found out in {IN_TIME:g} s"
    LOG.warning("rank %d: %s", subject.rank, why)
    look.cancel()
    told = RankEvidence(rank=subject.rank, step=subject.step)
    return Found(
        told=told,
        record={"rank": subject.rank, "step": subject.step, "pid": subject.pid, "remark": why},
    )
