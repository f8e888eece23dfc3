"""One life of a sweep: faults for a while, then peace, in which it must come to its end.

Layer: simulation. Any life can be lived again by its number: `SweepLife(4711).live()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.simulation.world.sweep.clerks import (
    ClerkDied,
    ClerkNetwork,
    SimulatedClerk,
    SimulatedClerks,
)
from tests.simulation.world.sweep.cluster import SweepCluster, SweepFolders, SweepTime
from tests.simulation.world.sweep.judge import BrokenPromise, SweepJudge
from tests.simulation.world.sweep.operators import SimulatedOperator
from tests.simulation.world.sweep.storage import Moment, SimulatedStorage
from tests.simulation.world.sweep.sweep_object import Spec, at_peace, drawn_spec
from tests.simulation.world.sweep.trials import GANG, LENGTH, SimulatedTrial, loss
from trainrun.contract import layout
from trainrun.errors import StoreUnavailable
from trainrun.sweep.view import SweepView, best, fold
from trainrun_operator.core.sweep.config import folder_name
from trainrun_operator.core.sweep.display import is_settled

PEACE = 20_000
"""Turns in which a sweep without faults comes to its end."""
TURN = 0.5
"""Seconds between two turns, on the average."""
DEEPEST = 3
"""Clerks in the middle of a call while others act, also those that have died there."""
REPLICAS = 2
"""Operators of a cluster."""


class Quarters:
    """A cluster, and who acts in it."""

    def __init__(self, life: SweepLife, cluster: SweepCluster) -> None:
        self.cluster = cluster
        self.network = ClerkNetwork(cluster, life.random, by_wire=life.by_wire)
        self.network.reliable = life.peaceful
        self.clerks = SimulatedClerks(
            lambda uid: SimulatedClerk(
                uid, storage=life.storage, network=self.network, pause=life.between
            ),
            life.clock,
        )
        self._turns: list[Iterator[None]] = []
        for number in range(REPLICAS):
            self.network.operators.append(self._born(number))
            self._turns.append(self.network.operators[number].turns())

    @property
    def operators(self) -> list[SimulatedOperator]:
        """Its replicas."""
        return self.network.operators

    def kill_operator(self, number: int) -> None:
        """It forgets everything, and begins again."""
        self.operators[number] = self._born(number)
        self._turns[number] = self.operators[number].turns()

    def turn_of(self, number: int) -> None:
        """The next effect of an operator."""
        next(self._turns[number])

    def _born(self, number: int) -> SimulatedOperator:
        operator = SimulatedOperator(number, self.cluster, self.clerks)
        operator.reliable = self.network.reliable
        return operator

    def make_peace(self) -> None:
        """No message is lost, nobody is mistaken."""
        self.network.reliable = True
        for operator in self.operators:
            operator.reliable = True
        for clerk in self.clerks.living:
            clerk.dead = clerk.dead or clerk.deleted
        self.cluster.room = max(self.cluster.room, GANG)
        self.cluster.edit(at_peace(self.cluster.sweep.spec))


class SweepLife:
    """Of a sweep of up to 12 trials, with two operators, up to two clerks, one log."""

    def __init__(self, seed: int, spec: Spec | None = None) -> None:
        """`spec`: drawn, unless it is given."""
        self.random = random = Random(seed)
        self.by_wire = seed % 4 == 0
        """Messages travel as they really do, which takes time."""
        self.peaceful = False
        """Nothing breaks any more."""
        self.clock = SweepTime()
        self.judge = SweepJudge()
        self.storage = SimulatedStorage(self.judge)
        self._folders = SweepFolders(self.storage)
        self._spec = spec or drawn_spec(random)
        self.homes: list[Quarters] = []
        """The clusters in which it was applied, one after the other."""
        self.apply()
        self.slow = 0.0
        """How likely it is that a call to the store takes long."""
        self.failing = 0.0
        """How likely it is that a call to the store fails, or is not heard to have succeeded."""
        self.deadly = 0.0
        """How likely it is that a clerk dies at a call."""
        self.dies_at: Callable[[SimulatedClerk, Moment], bool] = lambda _clerk, _moment: False
        self.crashes = 0.0
        """How likely it is that a step of a trial fails."""
        self._waiting = 0
        """Clerks that are in the middle of a call."""

    @property
    def home(self) -> Quarters:
        """The cluster in which it was applied last."""
        return self.homes[-1]

    def apply(self) -> None:
        """In another cluster, with the same store."""
        spec = self.homes[-1].cluster.sweep.spec if self.homes else self._spec
        cluster = SweepCluster(
            spec,
            number=len(self.homes),
            folders=self._folders,
            judge=self.judge,
            clock=self.clock,
            random=self.random,
        )
        self.homes.append(Quarters(self, cluster))

    # --------------------------------------------------------------------------------- turns

    def turn(self) -> None:
        """Of anybody who is not in the middle of something."""
        random = self.random
        self.clock.now += random.random() * 2 * TURN
        home = self.home if len(self.homes) == 1 else random.choice(self.homes)
        runs = list(home.cluster.runs.values())
        clerks = [it for it in home.clerks.living if not it.busy]
        chosen = random.randrange(REPLICAS + len(clerks) + len(runs))
        if chosen < REPLICAS:
            home.turn_of(chosen)
        elif (chosen := chosen - REPLICAS) < len(clerks):
            clerks[chosen].round()
            home.clerks.bury()
        else:
            run: SimulatedTrial = runs[chosen - len(clerks)]
            home.cluster.progress(run, crash=random.random() < self.crashes)

    def between(self, clerk: SimulatedClerk, moment: Moment) -> None:
        """Before or after a call of a clerk. Raises StoreUnavailable, ClerkDied."""
        random = self.random
        if clerk.dead or self.dies_at(clerk, moment) or random.random() < self.deadly:
            raise ClerkDied
        if random.random() < self.slow:
            self.clock.now += random.choice([1.0, 1.0, 40.0])
            self._meanwhile(random.choice([1, 2, 5, 20, 60]))
        if moment[1] != "call" and random.random() < self.failing:
            raise StoreUnavailable("the store has not answered in time")

    def _meanwhile(self, turns: int) -> None:
        if self._waiting == DEEPEST:
            return
        self._waiting += 1
        try:
            for _ in range(turns):
                self.turn()
        finally:
            self._waiting -= 1

    def until(self, holds: Callable[[], object], *, turns: int = PEACE) -> None:
        """Let everybody act until this holds. Raises BrokenPromise where it never does."""
        for _ in range(turns):
            if holds():
                return
            self.turn()
        raise BrokenPromise(f"it came to no end: {self.judge.ledger.log[-3:]}, {self._told()}")

    def _told(self) -> str:
        shown = [
            (home.cluster.sweep.status.get("phase"), home.cluster.sweep.status.get("message"))
            for home in self.homes
        ]
        return f"{shown} {[it.seen() for it in self.home.cluster.runs.values()]}"

    # --------------------------------------------------------------------------------- the end

    def make_peace(self) -> None:
        """From now on nothing breaks."""
        self.storage.away, self.peaceful = False, True
        self.slow = self.failing = self.deadly = self.crashes = 0.0
        for home in self.homes:
            home.make_peace()

    def end(self) -> SweepView:
        """In peace; the log as it is at the end."""
        self.make_peace()
        self.until(lambda: all(is_settled(home.cluster.sweep.raw) for home in self.homes))
        return self._judged()

    def _judged(self) -> SweepView:
        """The numbers of the log are those that were trained, and nothing is left that nobody
        needs."""
        view = fold(self.judge.ledger.log)
        if self.judge.ledger.ends.now is None:
            raise BrokenPromise(f"the sweep is settled, and has no end: {self._told()}")
        objective = self.home.cluster.sweep.config.search.objective
        succeeded = [it for it in view.trials.values() if it.state == "Succeeded"]
        for trial in succeeded:
            if trial.value != loss(trial.number, LENGTH):
                raise BrokenPromise(f"{trial} counts with what it did not reach")
        found = best(view, objective)
        values = [loss(it.number, LENGTH) for it in succeeded]
        if values and (found is None or found.own.value > min(values)):
            raise BrokenPromise(f"the best is {found}, and the table has {min(values)}")
        if len({it.number for it in view.trials.values()}) != view.asked:
            raise BrokenPromise("a number is missing")
        self._judge_end(view)
        self._judge_runs(view)
        self._judge_checkpoints(view)
        return view

    def _judge_end(self, view: SweepView) -> None:
        """A search whose trials or time are used up has succeeded where it has a result."""
        end = self.judge.ledger.ends.now
        if end is None or end.reason in ("TargetReached", "TooManyFailedTrials"):
            return
        results = [it for it in view.trials.values() if it.state in ("Succeeded", "Stopped")]
        found = any(it.value is not None for it in results)
        if found != (end.verdict == "Succeeded"):
            raise BrokenPromise(f"it has {'a' if found else 'no'} result, and its end is {end}")

    def _judge_runs(self, view: SweepView) -> None:
        for home in self.homes:
            runs, config = home.cluster.runs.values(), home.cluster.sweep.config
            if working := [it.name for it in runs if it.seen().live]:
                raise BrokenPromise(f"the sweep is over, and {working} work")
            closed = [it.name for it in runs if not view.trials[it.trial].open]
            if config.uid == view.sessions[-1].uid and len(closed) > config.failed_runs:
                raise BrokenPromise(f"runs of closed trials are left: {closed}")

    def _judge_checkpoints(self, view: SweepView) -> None:
        """Those of the best are there, as far as they were ever; those of others are not."""
        self._judge_left(view)
        for number in self.judge.best(self.judge.fewest_kept):
            folder = self._folders.of(folder_name(view.trials[number]))
            if folder.newest is None:
                continue
            manifest = layout.folder(folder.newest) + layout.MANIFEST
            if not self.storage.holds(folder.run.key(manifest)):
                raise BrokenPromise(f"the checkpoint of trial {number} is gone, one of the best")

    def _judge_left(self, view: SweepView) -> None:
        most = self.home.cluster.sweep.config.best_checkpoints
        # What is saved at last on the way out of one cluster no clerk of the other looks for.
        if most is None or len(self.homes) > 1:
            return
        kept_runs = (it.trial for it in self.home.cluster.runs.values())
        needed = {*self.judge.best(most), *kept_runs}
        for trial in view.trials.values():
            folder = self._folders.of(folder_name(trial)).run
            kept = trial.number in needed or trial.state in ("Open", "Errored")
            if not kept and (left := folder.objects(layout.CHECKPOINTS)):
                raise BrokenPromise(f"trial {trial.number} is not needed, and has left {left[0]}")
