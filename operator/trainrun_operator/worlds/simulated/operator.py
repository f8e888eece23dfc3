"""An operator in the simulated world: observe, decide, act, with crashes between any two effects.

Layer: worlds. It remembers nothing but what agents told this incarnation; a new incarnation starts
with the written status alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from trainrun_operator.core.observation import Observation, Refused, WorkerFact
from trainrun_operator.core.plan import CreateWorker, DeleteRun, DeleteWorker
from trainrun_operator.core.planner import decide

if TYPE_CHECKING:
    from trainrun.protocol import AgentState, Answer
    from trainrun_operator.core.config import RunConfig
    from trainrun_operator.core.plan import Action, Plan
    from trainrun_operator.worlds.simulated.world import SimWorld

LAZY_STATUS = 5.0
"""Seconds between status writes that are only for display."""

CONFLICT_PAUSE = 0.5
"""Seconds until an operator whose write was refused looks again."""


@dataclass(slots=True)
class Heard:
    """The last state of an agent and when it came."""

    state: AgentState
    at: float


class SimOperator:
    """One incarnation of the operator."""

    def __init__(self, world: SimWorld, *, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.since = world.clock.now
        self.heard: dict[str, Heard] = {}
        self.answers: dict[str, Answer] = {}
        self.refused: dict[int, tuple[CreateWorker, float]] = {}
        """The creation of each slot that was refused, and since when."""
        self.crash_after: int | None = None
        """Die after so many more effects (status write, action); for crash-everywhere tests."""
        self.stale_status = False
        """Observe the status as it was one write ago (a lagging cache)."""
        self._due: float | None = None
        self._written = -LAZY_STATUS

    # ------------------------------------------------------------------ hearing

    def hear(self, state: AgentState) -> None:
        """Take in a heartbeat; late and repeated ones change nothing."""
        if not self.alive:
            return
        known = self.heard.get(state.worker)
        late = known is not None and known.state.agent == state.agent
        if known is not None and late and known.state.sequence >= state.sequence:
            return
        if known is None or known.state.agent != state.agent:
            self.answers.pop(state.worker, None)  # they were meant for another incarnation
        self.heard[state.worker] = Heard(state=state, at=self.world.clock.now)
        if known is None or _news(known.state) != _news(state):
            self.wake()

    def wake(self, after: float = 0.01) -> None:
        """Make sure that a pass happens within `after` seconds."""
        due = self.world.clock.now + after
        if self.alive and (self._due is None or due < self._due):
            self._due = due
            self.world.clock.after(after, lambda: self._pass_at(due))

    def _pass_at(self, due: float) -> None:
        if self.alive and self._due == due:
            self._due = None
            self.run_pass()

    # ------------------------------------------------------------------ one pass

    def run_pass(self) -> None:
        """Observe, decide, act."""
        observation, config, version = self.observe()
        plan = decide(observation, config)
        self.world.check_plan(observation, plan)
        if plan.transition:
            written = self.world.write_status(plan.status, version=version, transition=True)
            if written:
                self._effect()
            self.wake(0.01 if written else CONFLICT_PAUSE)
            return
        self._publish(plan)
        for action in plan.actions:
            if self.alive:
                self._act(action)
                self._effect()
        self._write_display(plan, version)
        after = plan.requeue_after
        self.wake(after.total_seconds() if after is not None else 30.0)

    def observe(self) -> tuple[Observation, RunConfig, int]:
        """The facts as this incarnation knows them."""
        now = self.world.clock.now
        status, config, version = self.world.read_run(stale=self.stale_status)
        listening = now - self.since
        facts = tuple(self._known(fact, listening) for fact in self.world.worker_facts())
        return (
            Observation(
                now=self.world.clock.datetime,
                status=status,
                workers=facts,
                listening_for=timedelta(seconds=listening),
                refused=self._refused(),
            ),
            config,
            version,
        )

    def _known(self, fact: WorkerFact, listening: float) -> WorkerFact:
        heard = self.heard.get(fact.name)
        if heard is not None and heard.state.agent != self.world.workers[fact.name].agent.id:
            heard = None  # an older worker of the same name
        silent = self.world.clock.now - heard.at if heard is not None else listening
        return replace(
            fact,
            agent=heard.state if heard is not None else None,
            silent_for=timedelta(seconds=silent),
        )

    def _publish(self, plan: Plan) -> None:
        changed = {n for n, a in plan.answers.items() if self.answers.get(n) != a}
        self.answers = dict(plan.answers)
        for name in sorted(changed):
            self.world.push_answer(self, name)

    def _act(self, action: Action) -> None:
        match action:
            case CreateWorker():
                self._create(action)
            case DeleteWorker():
                self.world.delete_worker(action.name, force=action.force)
            case DeleteRun():
                pass
            case _:
                assert_never(action)

    def _create(self, action: CreateWorker) -> None:
        reason = self.world.refusing
        if reason is None:
            self.refused.pop(action.slot, None)
        else:
            since = self.refused.get(action.slot, (action, self.world.clock.now))[1]
            self.refused[action.slot] = (action, since)
        self.world.create_worker(action)

    def _refused(self) -> tuple[Refused, ...]:
        reason = self.world.refusing
        if reason is None:
            return ()
        return tuple(
            Refused(
                slot=slot,
                name=action.name,
                reason=reason,
                message="not now",
                since=timedelta(seconds=self.world.clock.now - since),
            )
            for slot, (action, since) in self.refused.items()
        )

    def _write_display(self, plan: Plan, version: int) -> None:
        due = self.world.clock.now - self._written >= LAZY_STATUS
        if self.alive and due and plan.status != self.world.status:
            self.world.write_status(plan.status, version=version, transition=False)
            self._written = self.world.clock.now

    def _effect(self) -> None:
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.world.crash_operator(self)


def _news(state: AgentState) -> AgentState:
    """The state without what only grows older."""
    exits = tuple(replace(end, age=0) for end in state.exits)
    return replace(state, sequence=0, exits=exits, first_step=None, stepped=None)
