"""The judge of a simulated life: all invariants, asked at every step.

Layer: simulation. The judge knows the truth (what really died, what was really committed) and
compares it with what the operators write and what the agents are told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.simulation.world.invariants.case import Case, Strike, Truth
from tests.simulation.world.invariants.events import EventsTold
from tests.simulation.world.invariants.explained import Explained
from tests.simulation.world.invariants.hangs_ended import HangsEnded
from tests.simulation.world.invariants.orders import OrdersGiven
from tests.simulation.world.invariants.recovery import Recovery
from tests.simulation.world.invariants.resume_points import ResumePoints
from tests.simulation.world.invariants.ruled import Ruled
from tests.simulation.world.invariants.standing_still import StandingStill
from tests.simulation.world.invariants.verdicts import Verdicts
from tests.simulation.world.invariants.written import Written
from trainrun_operator.api.run.status_parts import Cause

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from trainrun.contract.answer import Start
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.status import StartRecord, TrainRunStatus
    from trainrun_operator.core.run.boundary import Event, Observation, Plan
    from trainrun_operator.core.run.causes import Limits


class Judge:
    """Collects every violation with the virtual time at which it happened."""

    def __init__(self, world: Truth, *, heartbeats_lost: bool) -> None:
        self.case = Case(world, heartbeats_lost)
        self._written = Written(self.case)
        self._explained = Explained(self.case)
        self._ruled = Ruled(self.case)
        self._orders = OrdersGiven(self.case)
        self._resume_points = ResumePoints(self.case)
        self._recovery = Recovery(self.case)
        self._history = EventsTold(self.case)
        self._verdicts = Verdicts(self.case)
        self._standing_still = StandingStill(self.case)
        self._hangs_ended = HangsEnded(self.case)
        self.spec_edited(world.config.limits)

    @property
    def mistakes(self) -> list[str]:
        """Violations so far."""
        return self.case.mistakes

    @property
    def records(self) -> dict[int, StartRecord]:
        """Every start record, by attempt."""
        return self.case.records

    @property
    def claims(self) -> dict[int, tuple[float, CheckpointId | None]]:
        """What the store has handed out: to which attempt, when and what."""
        return self._resume_points.claims

    def wrong(self, what: str) -> None:
        """Take note of a violation."""
        self.case.wrong(what)

    def forgive(self, words: str) -> None:
        """Violations with these words are known in this life: take no note of them."""
        self.case.forgiven += (words,)

    # ------------------------------------------------------------------ what operators do

    def status_written(self, old: TrainRunStatus, new: TrainRunStatus, *, transition: bool) -> None:
        """Every accepted write, in order; `transition`: it says what is to be done."""
        self._written.status(old, new, transition=transition)
        self._resume_points.status(new)
        self._explained.status(new)
        self._ruled.status(new)
        self._recovery.status(old, new)
        self._verdicts.status(old, new)
        self._standing_still.status(old, new)
        self._hangs_ended.status(new)

    def plan_made(self, observation: Observation, plan: Plan) -> None:
        """Before a plan is acted on."""
        self._orders.planned(observation, plan)
        self._recovery.planned(observation, plan)
        self._verdicts.planned(observation, plan)

    def told(self, event: Event) -> None:
        """An event was recorded."""
        self._history.told(event)

    # ------------------------------------------------------------------ what agents do

    def started(self, agent: SimAgent, order: Start) -> None:
        """An agent accepts a start order."""
        self._orders.started(agent, order)

    def save_committed(self, agent: SimAgent, call: int) -> None:
        """A worker's ranks will be told to save at this call."""
        self._orders.save_committed(agent, call)

    def committed(self, checkpoint: CheckpointId) -> None:
        """A manifest was written."""
        self._resume_points.committed(checkpoint)

    def set_aside(self, agent: SimAgent, checkpoint: CheckpointId) -> None:
        """An agent gives a checkpoint up for ever."""
        self._resume_points.set_aside(agent, checkpoint)

    def resolved(self, attempt: int, resume: CheckpointId | None) -> None:
        """The store handed out a resume point."""
        self._resume_points.resolved(attempt, resume)

    # ------------------------------------------------------------------ the truth

    def struck(
        self,
        agent: SimAgent,
        *causes: Cause,
        lasting: bool = True,
        takes: float = 0.0,
        stays: bool = False,
    ) -> None:
        """Something of a worker is lost now, of which operators may make one of these causes.

        `lasting`: all of it, and not only its processes; `takes`: seconds until all has happened;
        `stays`: it hinders nothing, and may be seen at any time from now on.
        """
        now = self.case.now
        self.case.strikes.append(
            Strike(
                slot=agent.slot,
                created_for=agent.created_for,
                attempt=agent.attempt,
                causes=frozenset(causes),
                lasting=lasting,
                at=now,
                until=math.inf if stays else now + takes,
            )
        )
        self.disturbed(takes)
        self._explained.struck(agent)

    def not_started(self, agent: SimAgent, seconds: float) -> None:
        """A worker cannot start: it is an incident if that lasts, or happens again and again."""
        self.struck(agent, Cause.START_FAILED, takes=seconds)

    def set_back(self, status: TrainRunStatus) -> None:
        """Somebody has written an old status: what is not in it is forgotten."""
        self._written.set_back(status)
        self._explained.set_back(status)
        for words in ("was told", "was never told"):
            self.forgive(words)

    def leaders_overlap(self) -> None:
        """Several lead at a time: each of them hears a part of the heartbeats."""
        self.case.leaders_overlap = self.case.heartbeats_lost = True

    def run_deleted(self) -> None:
        """The run's object is gone."""
        self._resume_points.run_deleted()

    def refused(self, agent: SimAgent, seconds: float) -> None:
        """The store does not take an agent's keys, and is asked again after so long."""
        self.disturbed(seconds)
        known = {(s.slot, s.created_for) for s in self.case.strikes if not s.causes}
        if (agent.slot, agent.created_for) not in known:
            self.struck(agent, stays=True)

    def disturbed(self, seconds: float) -> None:
        """Something hinders the run for so long."""
        self.case.disturbed_until = max(self.case.disturbed_until, self.case.now + seconds)

    def blinded(self, seconds: float) -> None:
        """Operators see little of what happens for so long."""
        self.disturbed(seconds)
        self.case.blind_until = max(self.case.blind_until, self.case.now + seconds)

    def spec_edited(self, limits: Limits) -> None:
        """The limits of the budgets are these from now on."""
        if not self.case.limits or self.case.limits[-1][1] != limits:
            self.case.limits.append((self.case.now, limits))

    def closing(self) -> list[str]:
        """All violations, and what can only be said at the end."""
        self._explained.closing()
        self._written.closing()
        self._resume_points.closing()
        self._history.closing()
        return self.case.mistakes
