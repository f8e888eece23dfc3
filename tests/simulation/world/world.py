"""What one operator sees of the simulated cluster, and how it acts there: the World protocol.

Layer: simulation. As in a real cluster the run's object is known from a watch, which may lag; a
status is written over the version that was known; every request takes a moment, and the operator
may die before or after it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import (
    CreateWorker,
    DeleteRun,
    DeleteWorker,
    Observation,
    Refused,
)
from trainrun_operator.worlds.base import Seen, StatusConflict, StatusUnwritable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world.cluster import SimCluster, SimRunVersion
    from tests.simulation.world.worker import SimWorker
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.boundary import Action, Installation, RefusedReason, WorkerFact
    from trainrun_operator.worlds.base import Agents

API_TIMEOUT = 10.0
"""Seconds after which a request without an answer is given up."""

TRY_AGAIN = 1.0
"""Seconds until a creation that was refused is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCreation:
    """A creation that was refused, and since when."""

    action: CreateWorker
    reason: RefusedReason
    since: float


class SimWorld:
    """The World of one operator."""

    display_interval = 5.0

    def __init__(
        self,
        cluster: SimCluster,
        *,
        installation: Installation,
        wake: Callable[[float], None],
        is_transition: Callable[[TrainRunStatus], bool],
        effect: Callable[[], None],
        known: SimRunVersion,
    ) -> None:
        """`wake` asks for a pass within so many seconds; `is_transition` tells what the operator
        means a status to be; `effect` is called after every effect; `known` is the run's object as
        it was listed first, maybe some versions ago."""
        self._cluster = cluster
        self._installation = installation
        self._wake = wake
        self._is_transition = is_transition
        self._effect = effect
        self._known = known
        self._pods: dict[str, SimWorker] = {}
        """The workers as they were when the watch told last."""
        self._wrote: TrainRunStatus | None = None
        """The newest status that it wrote itself."""
        self._refused: dict[int, RefusedCreation] = {}
        self._observed = known
        """The version that the newest observation was made from."""
        self._unsure = False
        """Whether a status that it wrote has arrived: nobody has told it."""
        self.stale = False
        """Its watch tells nothing new of the run."""
        self.blind = False
        """Its watch tells nothing new of the workers."""
        self.hangs_until = 0.0
        """Requests are not answered before."""
        self.clock_ahead = 0.0
        """Seconds by which its wall clock is wrong."""
        self.answers_lost = 0
        """So many requests to come are carried out and answered with an error."""
        self._list()

    def learn(self, version: SimRunVersion) -> None:
        """The watch, or the answer to a request, tells of a version."""
        if version.number > self._known.number:
            self._known = version

    def watch(self) -> None:
        """Something has changed."""
        if not self.stale:
            self.learn(self._cluster.version)
        if not self.blind:
            self._list()

    def _list(self) -> None:
        self._pods = {w.name: replace(w) for w in self._cluster.present()}

    # -------------------------------------------------------------------- the World protocol

    async def observe(self, agents: Agents) -> Seen:
        """Gather the facts of one pass."""
        if self._cluster.pass_seconds:
            await asyncio.sleep(self._cluster.pass_seconds)
        if self._unsure:
            await self._on_the_way()
            self.learn(self._cluster.version)
            self._unsure = False
        self._observed = known = self._known
        self._cluster.judge.case.clocks_differ |= self.clock_ahead != 0
        observation = Observation(
            now=self._cluster.clock.datetime + timedelta(seconds=self.clock_ahead),
            generation=known.generation,
            status=known.status,
            workers=tuple(self._fact(worker, agents) for worker in self._pods.values()),
            listening_for=agents.listening_for,
            ordered=agents.ordered,
            installation=self._installation,
            last_words=agents.last_words,
            refused=self._refusals(),
        )
        return Seen(observation=observation, config=known.config)

    async def write_status(self, status: TrainRunStatus) -> None:
        """Replace the status of the version that is known."""
        version, self._unsure = self._observed, True
        await self._on_the_way()
        written = self._cluster.write_status(
            status, version=version.number, transition=self._is_transition(status)
        )
        after = self._cluster.version
        if written:
            self._wrote = status
            self._effect()
        await self._on_the_way()
        self._come_back()
        self._unsure = False
        self.learn(after)
        if not written:
            raise StatusConflict("somebody else has written the status")

    async def apply(self, action: Action) -> None:
        """Carry out one action."""
        await self._on_the_way()
        match action:
            case CreateWorker():
                self._create(action)
            case DeleteWorker():
                self._delete(action)
            case DeleteRun():
                self._cluster.delete_run(version=self._observed.number)
                self._unsure = True
        self._effect()
        await self._on_the_way()
        self._come_back()
        if not isinstance(action, DeleteRun):
            self._learn_worker(action)

    # --------------------------------------------------------------------------- in detail

    def _fact(self, worker: SimWorker, agents: Agents) -> WorkerFact:
        return worker.fact(self._now, agents.contact(worker.name))

    def _delete(self, action: DeleteWorker) -> None:
        """Only the one that was seen: another one may have its name by now."""
        seen = self._pods.get(action.name)
        if seen is not None:
            if self._was_outrun():
                self._cluster.judge.struck(seen.agent, Cause.PREEMPTED)
            self._cluster.delete_worker(action.name, only=seen.agent, force=action.force)

    def _was_outrun(self) -> bool:
        """Another leader has written since, and may have started this worker: it loses it now.

        A status is written over the version that was known; a deletion has no such guard. The
        Lease sees to it: no request of a leader arrives when the next one may act. Here several
        may lead for minutes, since that shows most about the guard.
        """
        written = self._cluster.status
        return written is not self._known.status and written is not self._wrote

    def _learn_worker(self, action: CreateWorker | DeleteWorker) -> None:
        """What the answer says: that of a deletion tells nothing of a worker that was not seen."""
        seen, there = self._pods.get(action.name), self._cluster.workers.get(action.name)
        same = seen is not None and there is not None and there.agent is seen.agent
        if there is not None and there.present and (same or isinstance(action, CreateWorker)):
            self._pods[action.name] = replace(there)
        else:
            self._pods.pop(action.name, None)

    async def _on_the_way(self) -> None:
        left = self.hangs_until - self._now
        if left > 0:
            await asyncio.sleep(min(left, API_TIMEOUT))
        if left > API_TIMEOUT:
            raise StatusUnwritable("the API server does not answer")
        await asyncio.sleep(self._cluster.rng.uniform(0.0, self._cluster.weather.api_delay))

    def _come_back(self) -> None:
        if self.answers_lost:
            self.answers_lost -= 1
            raise StatusUnwritable("the answer of the API server got lost")

    def _create(self, action: CreateWorker) -> None:
        reason = self._cluster.refusal()
        if reason is None:
            self._refused.pop(action.slot, None)
            self._cluster.create_worker(action, self._observed.config.storage)
            return
        if action.slot not in self._refused:
            self._wake(0.0)  # so that it is told
        since = self._refused[action.slot].since if action.slot in self._refused else self._now
        self._refused[action.slot] = RefusedCreation(action=action, reason=reason, since=since)
        self._wake(TRY_AGAIN)

    @property
    def _now(self) -> float:
        return self._cluster.clock.now

    def _refusals(self) -> tuple[Refused, ...]:
        return tuple(
            Refused(
                slot=slot,
                name=refusal.action.name,
                reason=refusal.reason,
                message="not now",
                since=timedelta(seconds=self._now - refusal.since),
            )
            for slot, refusal in self._refused.items()
        )
