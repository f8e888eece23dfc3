"""The loop of one sweep: look, decide, write what follows, then do it.

Layer: runtime; the same in a cluster, on one machine and in simulated lives, which give it a world:

    SweepWorld.look -> SweepSeen -> decide_sweep -> SweepPlan, and its status
    -> write (guarded; seldom if only progress has changed) -> tell -> order (what the log should
    hold) -> apply (each action on a run) -> rest (leave the sweep?), until the next news

Invariant: a run is created, suspended or deleted only after a guarded write of the status that
records the position of the log; nothing happens that the log does not ask for.
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
"""Seconds until the next pass while the clerk is silent or a run was refused."""
RETRY = 2.0
"""Seconds until a failed pass is retried."""


@dataclass(frozen=True, kw_only=True)
class SweepSeen:
    """The input of one decision; a world may add what its own effects need."""

    name: str
    """Name of the sweep."""
    config: SweepConfig
    observation: SweepObservation
    before: TrainSweepStatus
    """The status as last written."""
    generation: int = 0
    """Generation of the spec."""
    holder: str = ""
    """The installation that leads it, for the status."""
    now: datetime | None = None
    """Time for the conditions of the status; None: no conditions are written."""


Seen = TypeVar("Seen", bound=SweepSeen)


class SweepWorld(Protocol[Seen]):
    """Where one sweep's log, status and runs live; it decides nothing."""

    def look(self) -> AbstractAsyncContextManager[Seen | None]:
        """The current observation, held until the pass is over; None: nothing to decide."""

    async def write(self, seen: Seen, status: TrainSweepStatus) -> None:
        """Write the status; raises if another process has written since it was `seen`."""

    def tell(self, seen: Seen, status: TrainSweepStatus, /) -> None:
        """Report news to users, whether or not the status was written."""

    async def order(self, seen: Seen, plan: SweepPlan) -> None:
        """Give the log's writer the plan's targets; without targets it only reads the log."""

    async def apply(self, seen: Seen, action: TrialAction) -> str:
        """Carry out one action, which may be carried out already. Returns why a run cannot be
        created, if that is refused."""

    def rest(self, plan: SweepPlan) -> bool:
        """The pass is over; returns whether to leave the sweep."""

    def failed(self, error: Exception) -> None:
        """A pass has failed: report the error, or raise it if a retry would not help."""


class SweepLeader(Generic[Seen]):
    """Leads one sweep until its world ends that."""

    def __init__(self, world: SweepWorld[Seen], wakeup: Wakeup) -> None:
        """The world triggers `wakeup` on all news."""
        self._world = world
        self._wakeup = wakeup
        self._written_at = -inf
        self._refused: dict[str, str] = {}
        """By the name of a run: why it cannot be created."""

    async def lead(self) -> None:
        """Make a pass whenever something is new or due. Raises what the world re-raises."""
        while True:
            await self._wakeup.wait()
            try:
                if await self._pass():
                    return
            # One failed pass must not end the leading; the next pass starts from fresh facts.
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
                self._written_at = self._wakeup.time()
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
        """Put a run that cannot be created first: it is what the user must know."""
        wanted = {action.name for action in plan.actions if isinstance(action, CreateTrial)}
        self._refused = {name: why for name, why in self._refused.items() if name in wanted}
        if not self._refused:
            return status
        name, why = next(iter(self._refused.items()))
        message = f"the TrainRun {name} cannot be created: {why}"
        return replace(status, reason="TrialRefused", message=cut(message, MAX_MESSAGE))

    def _is_due(self, seen: Seen, status: TrainSweepStatus, plan: SweepPlan) -> bool:
        if plan.guarded or notable(status, seen.before):
            return True
        late = self._wakeup.time() - self._written_at > DISPLAY_EVERY
        return late and status != seen.before

    async def _apply(self, seen: Seen, action: TrialAction) -> None:
        if why := await self._world.apply(seen, action):
            self._refused[action.name] = why  # retried in seconds
        else:
            self._refused.pop(action.name, None)

    def _wake_later(self, plan: SweepPlan, observation: SweepObservation) -> None:
        if plan.wake_after is not None:
            self._wakeup.after(plan.wake_after)
        if isinstance(observation.log, ClerkUnknown) or self._refused:
            self._wakeup.after(LOOK_AGAIN)
        elif not plan.over:
            self._wakeup.after(DISPLAY_EVERY)
