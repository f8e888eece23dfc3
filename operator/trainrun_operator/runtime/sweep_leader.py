"""The loop of one sweep: look, decide, write what follows, then do it.

Layer: runtime; the same in a cluster, on one machine and in simulated lives, which give it a world:

    SweepWorld.look -> SweepSeen -> decide_sweep -> SweepPlan, and the status that tells of it
    -> write (guarded; seldom where only progress has changed) -> tell -> order (what the log is to
    hold) -> apply (each action on a run) -> rest (is that all?), until the next news or wish

Invariant: a run is created, suspended or deleted only after a write of the status that nobody else
has overtaken says how much of the log is acted on; what the log does not say is not done.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from typing import Generic, Protocol, TypeVar

from trainrun._common.text import cut
from trainrun_operator.api.sweep.status import MAX_MESSAGE, TrainSweepStatus
from trainrun_operator.core.sweep.boundary import (
    ClerkUnknown,
    CreateTrial,
    SweepObservation,
    SweepPlan,
    TrialAction,
)
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.display import notable, sweep_status, with_conditions
from trainrun_operator.core.sweep.planner import decide_sweep
from trainrun_operator.runtime.reconciler import Wakeup

DISPLAY_EVERY = 15.0
"""Seconds between two writes of the status that only show progress."""
LOOK_AGAIN = 5.0
"""Seconds after which a clerk that is not heard, or a run that was refused, is looked after."""
RETRY = 2.0
"""Seconds until a pass that failed is tried again."""


@dataclass(frozen=True, kw_only=True)
class SweepSeen:
    """The input of one decision; a world may add what its own effects need."""

    name: str
    """Of the sweep."""
    config: SweepConfig
    observation: SweepObservation
    before: TrainSweepStatus
    """The status as it was written last."""
    generation: int = 0
    """Of the spec."""
    holder: str = ""
    """The installation that leads it, for the status."""
    now: datetime | None = None
    """For the conditions of the status; None: nobody looks at any."""


Seen = TypeVar("Seen", bound=SweepSeen)


class SweepWorld(Protocol[Seen]):
    """Where one sweep's log, status and runs live; it decides nothing."""

    def look(self) -> AbstractAsyncContextManager[Seen | None]:
        """What is known now, kept until the pass is over; None: there is nothing to decide."""

    async def write(self, seen: Seen, status: TrainSweepStatus) -> None:
        """Write the status; raises where somebody else has written since it was `seen`."""

    def tell(self, seen: Seen, status: TrainSweepStatus, /) -> None:
        """Let people know what is new, written or not."""

    async def order(self, seen: Seen, plan: SweepPlan) -> None:
        """Let whoever keeps the log bring it to the plan's targets; without any, read it."""

    async def apply(self, seen: Seen, action: TrialAction) -> str:
        """Carry out one action; it may have been carried out already. Returns why a run cannot be
        created, where that is refused."""

    def rest(self, plan: SweepPlan) -> bool:
        """The pass has done what it could; whether the sweep is left now."""

    def failed(self, error: Exception) -> None:
        """A pass has failed: say so, or raise it where another one would not help."""


class SweepLeader(Generic[Seen]):
    """Leads one sweep until its world lets go of it."""

    def __init__(self, world: SweepWorld[Seen], wakeup: Wakeup) -> None:
        """`wakeup` is told of all news by the world."""
        self._world = world
        self._wakeup = wakeup
        self._shown_at = -inf
        self._refused: dict[str, str] = {}
        """By the name of a run: why it cannot be created."""

    async def lead(self) -> None:
        """Pass whenever something is new or due. Raises what the world does not bear."""
        while True:
            await self._wakeup.wait()
            try:
                if await self._pass():
                    return
            # A sweep must not be left alone because of one pass; the next begins from fresh facts.
            except Exception as error:  # noqa: BLE001
                self._world.failed(error)
                self._wakeup.after(RETRY)

    async def _pass(self) -> bool:
        async with self._world.look() as seen:
            if seen is None:
                return False
            plan = decide_sweep(seen.observation, seen.config, name=seen.name)
            status = self._status(seen, plan)
            if self._is_due(seen, status, plan):
                await self._world.write(seen, status)
                self._shown_at = self._wakeup.time()
            self._world.tell(seen, status)
            await self._world.order(seen, plan)
            for action in plan.actions:
                await self._apply(seen, action)
            self._wake_later(plan, seen.observation)
            return self._world.rest(plan)

    def _status(self, seen: Seen, plan: SweepPlan) -> TrainSweepStatus:
        status = sweep_status(
            seen.observation,
            seen.config,
            plan,
            before=seen.before,
            generation=seen.generation,
        )
        status = replace(self._with_refusals(status, plan), holder=seen.holder)
        if seen.now is None:
            return status
        log = seen.observation.log
        unknown = log if isinstance(log, ClerkUnknown) else None
        works = unknown is None and status.phase not in ("Succeeded", "Failed")
        conditions = with_conditions(status, before=seen.before, clerk=unknown, now=seen.now)
        return replace(status, conditions=conditions, clerks=int(works))

    def _with_refusals(self, status: TrainSweepStatus, plan: SweepPlan) -> TrainSweepStatus:
        """What cannot be created is the first thing that its user has to know."""
        wanted = {it.name for it in plan.actions if isinstance(it, CreateTrial)}
        self._refused = {name: why for name, why in self._refused.items() if name in wanted}
        if not self._refused:
            return status
        name, why = next(iter(self._refused.items()))
        message = f"the TrainRun {name} cannot be created: {why}"
        return replace(status, reason="TrialRefused", message=cut(message, MAX_MESSAGE))

    def _is_due(self, seen: Seen, status: TrainSweepStatus, plan: SweepPlan) -> bool:
        if plan.guarded or notable(status, seen.before):
            return True
        late = self._wakeup.time() - self._shown_at > DISPLAY_EVERY
        return late and status != seen.before

    async def _apply(self, seen: Seen, action: TrialAction) -> None:
        if why := await self._world.apply(seen, action):
            self._refused[action.name] = why  # asked again in seconds
        else:
            self._refused.pop(action.name, None)

    def _wake_later(self, plan: SweepPlan, observation: SweepObservation) -> None:
        if plan.wake_after is not None:
            self._wakeup.after(plan.wake_after)
        if isinstance(observation.log, ClerkUnknown) or self._refused:
            self._wakeup.after(LOOK_AGAIN)
        elif not plan.over:
            self._wakeup.after(DISPLAY_EVERY)
