"""Clerks of a simulated sweep: production's work, over a store and a line that are not to be
relied on.

Layer: simulation. Others act between any two calls to the store; any of them may be a clerk's last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulation.world.sweep.cluster import SweepCluster, SweepTime
from tests.simulation.world.sweep.operators import SimulatedOperator
from tests.simulation.world.sweep.storage import SWEEP, Moment, SimulatedStorage, StoreLine
from trainrun.checkpoint.run_store import RunStore
from trainrun_operator.core.sweep.clerking import ClerkOrders, ClerkState
from trainrun_operator.runtime.clerk_exchange import ClerkExchange
from trainrun_operator.runtime.clerk_work import ClerkWork

VOLUME = 9
"""Records in a volume of the log: few, so that searches of a few trials have some."""
DEAF = 45.0
"""Seconds without a word after which a clerk is replaced."""
MOST_CLERKS = 2
"""Alive at once."""
REMEMBERED = 4
"""Messages that may come a second time."""


class ClerkDied(BaseException):
    """In the middle of something."""


@dataclass
class ClerkNetwork:
    """Between the clerks and the operators of a cluster: behind one name are all operators."""

    cluster: SweepCluster
    random: Random
    operators: list[SimulatedOperator] = field(default_factory=list)
    by_wire: bool = True
    """Messages travel as they really do; else they are handed over, which is faster."""
    reliable: bool = False
    _late: list[ClerkState] = field(default_factory=list)

    def reached(self) -> SimulatedOperator | None:
        """The operator that answers now: mostly the leader; None: the request is lost."""
        leader = self.operators[self.cluster.leader]
        if not self.reliable:
            if self.random.random() < 0.1:
                return None
            if self.random.random() < 0.2:
                leader = self.random.choice(self.operators)
        return leader if leader.serves else None

    def tell(self, exchange: ClerkExchange, state: ClerkState) -> None:
        """Let it hear this, and now and then what it, or another one, has heard before."""
        sent = ClerkState.from_json(json.loads(state.to_json())) if self.by_wire else state
        exchange.hear(sent)
        if self.reliable:
            return
        self._late = [*self._late, sent][-REMEMBERED:]
        if self.random.random() < 0.1:
            again = self.random.choice(self._late)
            if again.sweep_uid == exchange.sweep_uid:
                exchange.hear(again)

    def answered(self, orders: ClerkOrders) -> ClerkOrders | None:
        """The orders as they arrive; None: they are lost."""
        if not self.reliable and self.random.random() < 0.1:
            return None
        return ClerkOrders.from_json(orders.to_json()) if self.by_wire else orders


class SimulatedClerk:
    """The process of a clerk."""

    def __init__(
        self,
        uid: str,
        *,
        storage: SimulatedStorage,
        network: ClerkNetwork,
        pause: Callable[[SimulatedClerk, Moment], None],
    ) -> None:
        """`pause` lets others act; it may raise StoreError or ClerkDied."""
        self.uid = uid
        self.born = network.cluster.clock.now
        self.deleted = False
        """Its pod is; its process may live on for a while."""
        self.dead = False
        self.busy = False
        """It is in the middle of a round."""
        self._network = network
        self._pause = pause
        self._line = StoreLine(storage, lambda moment: pause(self, moment))
        self._work = ClerkWork(
            RunStore(self._line, SWEEP),
            sweep_uid=uid,
            clock=network.cluster.clock,
            volume=VOLUME,
        )

    @property
    def orders(self) -> ClerkOrders:
        """What it goes by."""
        return self._work.orders

    def round(self) -> None:
        """Work, tell, and hear what is wanted."""
        self.busy = True
        try:
            self._round()
        except ClerkDied:
            self.dead = True
        finally:
            self.busy = False

    def _round(self) -> None:
        work, orders = self._work, self._work.orders
        self._line.writer = None if orders.targets is None else orders.targets.session
        self._line.best = orders.spec.get("retention", {}).get("bestCheckpoints")
        work.settle()
        operator = self._network.reached()
        state = work.state()
        self._pause(self, ("before", "call", ""))
        if operator is None or not operator.serves:
            return
        exchange = operator.exchange
        if exchange is None or exchange.sweep_uid != self.uid:
            self.dead = True  # its sweep is gone, or over
            return
        self._network.tell(exchange, state)
        answer = self._network.answered(exchange.orders)
        self._pause(self, ("after", "call", ""))
        if answer is not None:
            work.hear(answer)


class SimulatedClerks:
    """The pods of clerks of a cluster."""

    def __init__(self, born: Callable[[str], SimulatedClerk], clock: SweepTime) -> None:
        """`born` makes the process for the sweep with this uid."""
        self._born = born
        self._clock = clock
        self.living: list[SimulatedClerk] = []

    def look_after(self, exchange: ClerkExchange, *, wanted: bool) -> None:
        """As `cluster/sweeping/clerks.py` does."""
        self.bury()
        pods = [it for it in self.living if not it.deleted and it.uid == exchange.sweep_uid]
        good = [it for it in pods if wanted and not self._is_lost(it, exchange)]
        for clerk in pods:
            if clerk not in good[:1]:
                clerk.deleted = True
        if wanted and not good:
            for clerk in self.living[: -MOST_CLERKS + 1 or None]:
                clerk.dead = True  # its node has come back, and ends it
            self.bury()
            self.living.append(self._born(exchange.sweep_uid))

    def bury(self) -> None:
        """Forget those that are dead."""
        self.living = [it for it in self.living if not it.dead]

    def _is_lost(self, clerk: SimulatedClerk, exchange: ClerkExchange) -> bool:
        return exchange.silent_for.total_seconds() > DEAF and self._clock.now - clerk.born > DEAF
