"""One life of one run: a cluster, operators, and what they say to each other over a bad network.

Layer: simulation. The operators are what production runs: reconciler, agents and wake-ups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.world.faults import FaultyCluster
from tests.simulation.world.heartbeat import next_state
from tests.simulation.world.operator import SimOperator
from trainrun.contract.agent_state import AgentState
from trainrun_operator.core.run.boundary import NAMELESS, Installation

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from trainrun.contract.answer import Answer


@dataclass
class Simulation(FaultyCluster):
    """One life of one run."""

    operators: list[SimOperator] = field(default_factory=list)
    beat: float = 1.0
    """Seconds between two heartbeats of an agent without news; so long an answer is held back."""
    tended: bool = False
    """Its user looks at it, and may let it go on after it has failed."""
    installation: Installation = NAMELESS
    """Of the operators, unless told otherwise."""

    def __post_init__(self) -> None:
        """Start with one operator."""
        super().__post_init__()
        self._born = 0
        self.add_operator()

    # ------------------------------------------------------------------ operators

    def add_operator(
        self, installation: Installation | None = None, *, behind: int = 0
    ) -> SimOperator:
        """Another incarnation, with nothing but the status, of so many versions ago."""
        self._born += 1
        operator = SimOperator(
            self,
            name=f"operator-{self._born}",
            installation=installation or self.installation,
            crash=self.crash_operator,
            behind=behind,
        )
        self.operators.append(operator)
        if len(self.operators) > 1:
            self.judge.leaders_overlap()
        return operator

    def crash_operator(self, operator: SimOperator, *, back_after: float = 3.0) -> None:
        """It dies where it stands; another one starts later."""
        if operator.alive:
            operator.die()
            self.operators.remove(operator)
            self.judge.disturbed(back_after)
            if not self.operators:
                self.clock.after(back_after, self._replace_operator)

    def hand_over(self, operator: SimOperator, *, behind: int, seconds: float) -> None:
        """Another one leads, which saw the run so many versions ago and learns no more for now."""
        self.crash_operator(operator)
        successor = self.add_operator(behind=behind)
        successor.world.stale = True
        self.judge.disturbed(seconds)
        self.clock.after(seconds, lambda: setattr(successor, "stale_status", False))

    def _replace_operator(self) -> None:
        if not self.operators:
            self.add_operator()
            if any(w.phase == "Running" and not w.agent.sequence for w in self.workers.values()):
                # It has listened for none of the time in which that one has not called.
                self.judge.disturbed(self.config.start_timeout.total_seconds())

    # ------------------------------------------------------------------ network

    def has_told(self, agent: SimAgent) -> bool:
        """Whether an operator that lives has heard of this agent's notice."""
        heard = (each.agents.contact(agent.name).state for each in self.operators)
        return any(state is not None and state.notice is not None for state in heard)

    def agent_runs(self, agent: SimAgent) -> None:
        """The agent's loop: it asks again and again, and at once when it has news."""
        if agent.alive:
            self._post(agent, wait=self.beat)
            agent.tick()
            self.clock.after(self.beat, lambda: self.agent_runs(agent))

    def send(self, agent: SimAgent) -> None:
        """News are posted at once."""
        self._post(agent, wait=0.0)

    def _post(self, agent: SimAgent, *, wait: float) -> None:
        """One heartbeat to one of its installation's operators, over this weather."""
        agent.unheard |= agent.silent
        holder = self.status.holder
        called = [each for each in self.operators if each.installation.may_lead(holder)]
        if not agent.alive or agent.silent or not called:
            return
        state = next_state(agent)
        if state.exits or state.problems or state.metrics:  # texts: as the other end reads them
            state = AgentState.from_json(state.to_json())
        operator = self.rng.choice(called)
        for _ in range(2 if self.rng.random() < self.weather.duplicate else 1):
            self._deliver(agent, operator, state, wait=wait)

    def _deliver(
        self, agent: SimAgent, operator: SimOperator, state: AgentState, *, wait: float
    ) -> None:
        def arrive() -> None:
            # What comes late from an earlier worker of this name is refused: its token is of
            # another pod.
            if self.workers[agent.name].agent is not agent:
                return
            operator.hear(
                state,
                wait=wait,
                reply=lambda answer: self._reply(agent, answer),
                otherwise=lambda: self._nothing_new(agent),
            )

        if self.rng.random() >= self.weather.loss:
            self.clock.after(self.rng.uniform(0.001, self.weather.delay), arrive)

    def _nothing_new(self, agent: SimAgent) -> None:
        if not agent.silent:
            agent.heard = self.clock.now

    def _reply(self, agent: SimAgent, answer: Answer) -> None:
        if self.rng.random() >= self.weather.loss:
            delay = self.rng.uniform(0.001, self.weather.delay)
            self.clock.after(delay, lambda: self._tell(agent, answer))

    def _tell(self, agent: SimAgent, answer: Answer) -> None:
        if agent.alive and not agent.silent:
            before = agent.news
            agent.heard = self.clock.now
            agent.apply(answer)
            if agent.news != before:
                self.send(agent)

    # ------------------------------------------------------------------ living

    def live(self, seconds: float) -> None:
        """Let time pass until the run is over, or so many virtual seconds are."""
        while self.clock.now < seconds and not self.over() and self.clock.step():
            pass

    def come_to_rest(self) -> None:
        """Let what is under way end; then whoever looks at the run again writes nothing.

        A request that hangs, or a user who resumes it, may come after its end: that is written.
        """
        self._pass(max(0.0, self.judge.case.disturbed_until - self.clock.now))
        before = self.status
        for _ in range(4):  # by then whoever has left is no longer shown
            before = self.status
            self.changed()
            self._pass(10.0)
        if self.status is not before:
            self.judge.wrong("a run that is over is still written")

    def _pass(self, seconds: float) -> None:
        end = self.clock.now + seconds
        self.clock.after(seconds, lambda: None)  # that it does not jump beyond
        while self.clock.now < end and self.clock.step():
            pass

    def over(self) -> bool:
        """The run has its verdict and nobody is left."""
        ends = (self.status.finished and not self.tended) or self.deleted
        return ends and all(w.phase == "Ended" for w in self.workers.values())
