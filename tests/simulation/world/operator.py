"""An operator of the simulated cluster: what production runs, on virtual time.

Layer: simulation. One incarnation: it knows the cluster, and what agents told it since it lives.
When it dies all its tasks end, wherever they wait; the next one starts with nothing but the status.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.simulation.world.world import SimWorld
from trainrun_operator.core.run.planner import decide
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.runtime.reconciler import Reconciler, Wakeup
from trainrun_operator.runtime.run_events import RunEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.world.cluster import SimCluster
    from trainrun.contract.agent_state import AgentState
    from trainrun.contract.answer import Answer
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.boundary import Installation, Observation, Plan
    from trainrun_operator.core.run.config import RunConfig
    from trainrun_operator.runtime.run_events import RunNews


class SimOperator:
    """One incarnation of the operator."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        name: str,
        installation: Installation,
        crash: Callable[[SimOperator], None],
        behind: int = 0,
    ) -> None:
        """`crash` lets it die, when `crash_after` is used up; `behind`: it begins with the run's
        object of so many versions ago."""
        self.cluster = cluster
        self.installation = installation
        self.name = name
        self.alive = True
        self.crash_after: int | None = None
        """Die after so many more effects (status write, action); for crash-everywhere tests."""
        self._crash = crash
        self._plan: Plan | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order of their making: a set would have that of their addresses."""
        clock = cluster.clock
        self._wakeup = Wakeup()
        self.agents = RunAgents(
            run_uid=cluster.config.uid,
            on_news=self._wakeup.now,
            on_progress=self._wakeup.soon,
            clock=clock.time,
        )
        self.world = SimWorld(
            cluster,
            installation=installation,
            wake=self._wakeup.after,
            is_transition=self._is_transition,
            effect=self._effect,
            known=cluster.versions[-min(behind + 1, len(cluster.versions))],
        )
        reconciler = Reconciler(
            world=self.world,
            agents=self.agents,
            decide=self._decide,
            events=self,
            wakeup=self._wakeup,
            rerecord=timedelta(minutes=10),
            cpu=clock.time,
        )
        cluster.watchers.append(self._watch)
        self._spawn(reconciler.run(lambda _seen, _plan: cluster.deleted))

    @property
    def stale_status(self) -> bool:
        """Its watch of the run tells nothing new."""
        return self.world.stale

    @stale_status.setter
    def stale_status(self, stale: bool) -> None:
        self.world.stale = stale
        self._watch()

    @property
    def blind(self) -> bool:
        """Its watch of the workers tells nothing new."""
        return self.world.blind

    @blind.setter
    def blind(self, blind: bool) -> None:
        self.world.blind = blind
        self._watch()

    def die(self) -> None:
        """Wherever it stands."""
        self.alive = False
        self.cluster.watchers.remove(self._watch)
        for task in tuple(self._tasks):
            task.cancel()

    # ------------------------------------------------------------------ the run

    def _watch(self) -> None:
        # Watches bring news after a while.
        self.cluster.clock.after(self.cluster.rng.uniform(0.0, 0.2), self._notice)

    def _notice(self) -> None:
        if self.alive:
            self.world.watch()
            self._wakeup.now()

    def _decide(self, observation: Observation, config: RunConfig) -> Plan:
        try:
            plan = decide(observation, config)
        except Exception as error:
            self.cluster.judge.wrong(f"a pass raised {error!r}")
            raise
        self.cluster.judge.plan_made(observation, plan)
        self._plan = plan
        return plan

    def _is_transition(self, status: TrainRunStatus) -> bool:
        plan = self._plan
        return plan is not None and plan.transition and plan.status is status

    def _effect(self) -> None:
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self._crash(self)

    def emit(self, news: RunNews) -> None:
        """Events are told to whoever watches the cluster; nobody shows passes."""
        if isinstance(news, RunEvent):
            self.cluster.tell(news.event, news.time)

    # ------------------------------------------------------------------ agents

    def hear(
        self,
        state: AgentState,
        *,
        wait: float,
        reply: Callable[[Answer], None],
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """A heartbeat, as the agent server takes it; its answer may be held back. `otherwise` is
        called where there is none."""
        if self.alive:
            self._spawn(self._answer(state, wait=wait, reply=reply, otherwise=otherwise))

    async def _answer(
        self,
        state: AgentState,
        *,
        wait: float,
        reply: Callable[[Answer], None],
        otherwise: Callable[[], None],
    ) -> None:
        agents = self.agents
        answer = None
        if self.cluster.deleted:
            return
        if agents.workers_known and agents.knows(state.worker) and agents.receive(state):
            answer = await agents.answer(state, wait=wait)
        if answer is None:
            otherwise()
        else:
            reply(answer)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self.cluster.clock.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
