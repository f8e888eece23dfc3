"""A life over a network that is cut here and there: nodes, two replicas, and the ways between them.

Layer: simulation. Which way an agent tries next is its own rule (`OperatorAddresses` of
`exchange.heartbeat`), and how long a new leader takes no silence for a loss the operator's
(`runtime.agents`). A model stands for the rest: the Lease; connections that are refused, cut or
swallowed; each node's kube-proxy, which knows who leads while it reaches the API server, and is
late when it does again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Literal

from tests.simulation.world.heartbeat import next_state
from tests.simulation.world.simulation import Simulation
from trainrun.agent.exchange.heartbeat import FIRST_PAUSE, LONGEST_PAUSE, SERVICE, OperatorAddresses
from trainrun.agent.exchange.http import CONNECT_TIMEOUT, REACH_TIMEOUT
from trainrun_operator.runtime.agents import silence_grace

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.operator import SimOperator
    from trainrun.contract.agent_state import AgentState
    from trainrun.contract.answer import Answer

LEASE_SECONDS, STEPS_DOWN = 10.0, 6.0
"""Seconds without a renewal after which others take the Lease, and before its holder gives up."""
TICK = 1.0
"""Seconds between two looks at the Lease."""
OUTAGE = 5.0
"""Seconds without the API server that a replica takes for an outage."""
HOLD = 3.0
"""Seconds that an answer without news is held back."""
LOST_PACKETS, SENT_AGAIN = 0.3, 0.2
"""Of a bad network; and the seconds until a packet is sent again, doubled each time."""
LATE_KUBELET, LATE_PROXY = 10.0, 90.0
"""Seconds after an outage until a node is heard again, and until its kube-proxy is up to date."""

CutKind = Literal["api", "operators", "to", "from", "loss"]
"""A node cannot reach the API server; its pods, and operators on other nodes, do not reach each
other; only what they send there, or what comes from there, is lost; it loses 30 % of packets."""


class NoLeader(Exception):
    """This way leads to none."""


@dataclass(slots=True, eq=False)
class Replica:
    """One operator's pod."""

    name: str
    """Its address, too."""
    node: str
    operator: SimOperator | None = None
    """While it leads."""
    listens: bool = True
    """It has read what it needs from the API server before."""
    told: tuple[str, ...] = ()
    """What it says of where all operators are, the leader first."""
    renewal: float = 0.0
    """The one of the Lease that it saw last, and when it saw it first."""
    seen_at: float = 0.0
    away_since: float | None = None
    back_at: float = -inf
    """When it found the API server gone, and back after an outage."""
    held: set[asyncio.Future[Answer | None]] = field(default_factory=set)
    """Requests under way."""


@dataclass(slots=True, eq=False)
class Talk:
    """The exchange of one agent."""

    agent: SimAgent
    node: str
    ways: OperatorAddresses = field(default_factory=OperatorAddresses)
    connection: Replica | None = None


@dataclass
class PartitionedLife(Simulation):
    """One life of one run whose worker of slot 0 is on node `n0`, and so on."""

    leader_node: str = "n0"
    standby_node: str = "n1"
    addresses_told: bool = True
    """Operators say where all of them are."""

    def __post_init__(self) -> None:
        """Start with a leader and a standby."""
        super().__post_init__()
        leader, standby = Replica("a", self.leader_node), Replica("b", self.standby_node)
        leader.operator = self.operators[0]
        self.replicas = {replica.name: replica for replica in (leader, standby)}
        self.api_server_away = False
        self.cuts: dict[str, set[CutKind]] = {}
        self._holder, self._renewed = "a", 0.0
        nodes = {leader.node, standby.node, *(f"n{n}" for n in range(self.config.replicas))}
        self._services = dict.fromkeys(sorted(nodes), "a")
        """Where the kube-proxy of each node leads."""
        self._talks: dict[SimAgent, Talk] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        for replica in self.replicas.values():
            self._spawn(self._contend(replica))

    # ------------------------------------------------------------------ what is cut

    def cut(self, node: str, kind: CutKind, seconds: float) -> None:
        """Cut a node for a while."""
        self.cuts.setdefault(node, set()).add(kind)
        self.judge.blinded(seconds)
        if kind == "api":
            self._spawn(self._miss(node, self.rng.uniform(5.0, 40.0)))
        self.clock.after(seconds, lambda: self._heal(node, kind))

    def _heal(self, node: str, kind: CutKind) -> None:
        self.cuts[node].discard(kind)
        if kind == "api":
            self._catch_up(node)

    def stop_api_server(self, seconds: float) -> None:
        """Nobody reaches it for a while; then all nodes look lost until they are heard."""
        self.api_server_away = True
        self.judge.blinded(seconds)
        self.clock.after(seconds, self._start_api_server)

    def _start_api_server(self) -> None:
        self.api_server_away = False
        for node in self._services:
            self._show(node, "NotReady")
            self._catch_up(node)

    def _catch_up(self, node: str) -> None:
        """Kubelet and kube-proxy wait between their tries, longer and longer."""
        self.clock.after(self.rng.uniform(0.5, LATE_KUBELET), lambda: self._show(node, ""))
        self._spawn(self._follow(node, self.rng.uniform(0.5, LATE_PROXY)))

    async def _miss(self, node: str, seconds: float) -> None:
        """Nobody hears the node's kubelet any more."""
        await asyncio.sleep(seconds)
        if not self._reaches_api(node):
            self._show(node, "NotReady")

    def _show(self, node: str, suspect: str) -> None:
        for worker in self.workers.values():
            if _node_of(worker.agent) == node:
                worker.suspect_node = suspect
        self.changed()

    def _reaches_api(self, node: str) -> bool:
        return not self.api_server_away and "api" not in self.cuts.get(node, ())

    def _passes(self, sender: str, receiver: str) -> bool:
        """What a pod of one node sends to one of another arrives."""
        sent, received = self.cuts.get(sender, set()), self.cuts.get(receiver, set())
        return sender == receiver or not (
            sent & {"operators", "to"} or received & {"operators", "from"}
        )

    async def _travel(self, sender: str, receiver: str) -> bool:
        """A message is on its way; says whether it arrives."""
        delay, again = self.rng.uniform(0.001, self.weather.delay), SENT_AGAIN
        if "loss" in self.cuts.get(sender, set()) | self.cuts.get(receiver, set()):
            while self.rng.random() < LOST_PACKETS:
                delay, again = delay + again, 2 * again
        await asyncio.sleep(delay)
        return self._passes(sender, receiver)

    # ------------------------------------------------------------------ who leads

    async def _contend(self, replica: Replica) -> None:
        while True:
            reaches = self._reaches_api(replica.node)
            self._note(replica, reaches=reaches)
            if replica.operator is not None:
                self._renew(replica, reaches=reaches)
            elif reaches:
                self._stand_by(replica)
            await asyncio.sleep(self.rng.uniform(0.9, 1.1) * TICK)

    def _note(self, replica: Replica, *, reaches: bool) -> None:
        now = self.clock.now
        if not reaches:
            replica.away_since = now if replica.away_since is None else replica.away_since
            return
        if replica.away_since is not None and now - replica.away_since >= OUTAGE:
            replica.back_at = now
        replica.away_since = None
        others = sorted(self.replicas.keys() - {self._holder})
        replica.told = (self._holder, *others) if self.addresses_told else ()

    def _renew(self, leader: Replica, *, reaches: bool) -> None:
        assert leader.operator is not None
        now = self.clock.now
        leader.operator.blind = leader.operator.stale_status = not reaches
        if reaches:
            self._renewed = now
        elif now - self._renewed < STEPS_DOWN:
            leader.operator.world.hangs_until = now + STEPS_DOWN
        else:
            self._step_down(leader)

    def _step_down(self, leader: Replica) -> None:
        """Its process ends; the next one in its pod knows nothing of what was."""
        assert leader.operator is not None
        self.crash_operator(leader.operator)
        leader.operator, leader.listens, leader.told = None, False, ()
        leader.away_since, leader.back_at, leader.renewal = None, -inf, -inf
        for held in leader.held:
            if not held.done():
                held.set_exception(NoLeader())

    def _stand_by(self, replica: Replica) -> None:
        now, replica.listens = self.clock.now, True
        if replica.renewal != self._renewed:
            replica.renewal, replica.seen_at = self._renewed, now
        if now - replica.seen_at >= LEASE_SECONDS:
            self._lead(replica)

    def _lead(self, replica: Replica) -> None:
        now = self.clock.now
        grace = silence_grace(since_outage=now - replica.back_at, vacant_for=now - self._renewed)
        self._holder, self._renewed = replica.name, now
        replica.operator = self.add_operator()
        replica.operator.agents.restart_listening(grace=grace)
        self._note(replica, reaches=True)
        for node in self._services:
            self._spawn(self._follow(node, self.rng.uniform(0.1, 1.0)))

    def _replace_operator(self) -> None:
        """Who leads next, the Lease says."""

    async def _follow(self, node: str, seconds: float) -> None:
        """Its kube-proxy learns who leads, if it can."""
        await asyncio.sleep(seconds)
        if self._reaches_api(node):
            self._services[node] = self._holder

    # ------------------------------------------------------------------ what agents do

    def agent_runs(self, agent: SimAgent) -> None:
        """The agent's loop begins."""
        self._talks[agent] = talk = Talk(agent, _node_of(agent))
        self._spawn(self._talk(talk))

    def send(self, agent: SimAgent) -> None:
        """News end the wait for the answer to what was told before."""
        talk = self._talks.get(agent)
        leads = (
            talk.connection.operator if talk is not None and talk.connection is not None else None
        )
        if leads is not None:
            leads.agents.release(agent.name)

    async def _talk(self, talk: Talk) -> None:
        agent, pause = talk.agent, FIRST_PAUSE
        while agent.alive:
            since = None if talk.connection is not None else self.clock.now
            try:
                answer = await self._request(talk)
            except NoLeader:
                talk.connection = None
                now = self.clock.now
                if not talk.ways.lost(now if since is None else since, now):
                    await asyncio.sleep(pause * self.rng.uniform(0.5, 1.0))
                    pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            pause = FIRST_PAUSE
            talk.ways.found()
            if answer is None:
                await asyncio.sleep(FIRST_PAUSE)
            elif agent.alive:
                agent.apply(answer)

    async def _request(self, talk: Talk) -> Answer | None:
        """One heartbeat; what the leader answers. Raises NoLeader."""
        way = talk.ways.way
        service = self._services.setdefault(talk.node, self._holder)
        replica = self.replicas[service if way == SERVICE else way]
        there, back = (talk.node, replica.node), (replica.node, talk.node)
        if talk.connection is not replica:
            await self._connect(talk, replica, CONNECT_TIMEOUT if way == SERVICE else REACH_TIMEOUT)
        state, patience = next_state(talk.agent), self._patience
        if not await self._travel(*there):
            await self._give_up(patience)
        if replica.operator is None:
            if replica.listens and await self._travel(*back):
                talk.ways.learn(replica.told)
            raise NoLeader
        answer = await self._answer(replica, replica.operator, state, HOLD + patience)
        if not await self._travel(*back):
            await self._give_up(patience)
        talk.ways.learn(replica.told)
        return answer

    async def _answer(
        self, replica: Replica, leader: SimOperator, state: AgentState, timeout: float
    ) -> Answer | None:
        held: asyncio.Future[Answer | None] = self.clock.create_future()

        def reply(answer: Answer | None) -> None:
            if not held.done():
                held.set_result(answer)

        replica.held.add(held)
        leader.hear(state, wait=HOLD, reply=reply, otherwise=lambda: reply(None))
        await asyncio.wait([held], timeout=timeout)
        replica.held.discard(held)
        if not held.done():
            raise NoLeader
        return held.result()

    async def _connect(self, talk: Talk, replica: Replica, timeout: float) -> None:
        begun = self.clock.now
        arrives = await self._travel(talk.node, replica.node)
        arrives = await self._travel(replica.node, talk.node) and arrives
        took = self.clock.now - begun
        if not arrives or took > timeout:
            await self._give_up(max(0.0, timeout - took))
        if not replica.listens:
            raise NoLeader
        talk.connection = replica

    async def _give_up(self, after: float) -> None:
        await asyncio.sleep(after)
        raise NoLeader

    @property
    def _patience(self) -> float:
        return max(4.0, min(10.0, self.config.heartbeat_timeout.total_seconds() / 3))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self.clock.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


def _node_of(agent: SimAgent) -> str:
    """A worker that is made later avoids the node of the one before."""
    return f"n{agent.slot}" if agent.created_for == 1 else f"n{agent.slot}-{agent.created_for}"
