"""One life of a sweep: faults for a while, then peace, in which it must come to its end.

Layer: simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from trainrun.sweep.fold import fold
from trainrun.sweep.results import best
from trainrun.sweep.search import Objective, Search
from trainrun.sweep.space import FloatRange, Parameter
from trainrun.sweep.stopping_rules import Asha, Percentile, Threshold
from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.simulation.sweep.actors import Actor, Post, SimulatedClerk, SimulatedOperator
from trainrun_operator.simulation.sweep.judge import BrokenPromise
from trainrun_operator.simulation.sweep.world import LENGTH, SweepWorld, loss

PEACE = 6000
"""Turns in which a sweep without faults comes to its end."""

SPEC = '{"fixed": {}, "firstTrials": [], "objective": {}, "sampler": {}, "space": []}'

STOPPING = (None, Asha(1, 2), Percentile(startup_trials=1), Threshold(upper=9.0))


class SweepLife:
    """Two operators, two clerks, one log, up to 12 trials."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        search = Search(
            space=(Parameter("lr", FloatRange(0, 1)),),
            objective=Objective("loss"),
            seed=seed,
            # By a die of its own, so that older lives stay what they were but for this.
            early_stopping=Random(f"stopping {seed}").choice(STOPPING),
        )
        self.world = SweepWorld(
            SweepConfig(
                uid="uid-0",
                search=search,
                immutable=SPEC,
                trials=random.randint(1, 12),
                max_concurrent=random.randint(1, 4),
                max_unplaced=random.randint(1, 3),
                failed_runs=random.randint(0, 3),
                max_failed_trials=random.choice([-1, -1, 0, 2]),
                active_time=random.choice([None, 50.0, 500.0]),
            ),
            random,
        )
        self._post = Post()
        self.operators = [SimulatedOperator(it, self.world, self._post) for it in (0, 1)]
        clerks = [SimulatedClerk(self.world, self._post) for _ in (0, 1)]
        self._actors: list[Actor] = [*self.operators, *clerks]
        self._turns: list[Iterator[None]] = [it.turns() for it in self._actors]

    def live(self, faults: int | None = None) -> SweepView:
        """So many turns with faults (default: drawn), then peace; the log as it is at the end."""
        for _ in range(self._random.choice([100, 500, 2000]) if faults is None else faults):
            self._fault()
            self._turn(crashes=0.3)
        self._make_peace()
        for _ in range(PEACE):
            self._turn(crashes=0.0)
            if self._at_rest():
                return self._judged()
        raise BrokenPromise(f"it came to no end: {self.world.log[-3:]}, {self.world.runs}")

    def _turn(self, *, crashes: float) -> None:
        runs = list(self.world.runs.values())
        chosen = self._random.randrange(len(self._turns) + len(runs))
        if chosen < len(self._turns):
            next(self._turns[chosen])
        else:
            run = runs[chosen - len(self._turns)]
            self.world.progress(run, crash=self._random.random() < crashes)

    # ----------------------------------------------------------------------------- faults

    def _fault(self) -> None:
        world, random = self.world, self._random
        match random.randrange(120):
            case 0 | 1 | 2 | 3 | 4 | 5:  # an operator or a clerk dies, and forgets everything
                dead = random.randrange(len(self._actors))
                self._actors[dead] = self._born(dead)
                self._turns[dead] = self._actors[dead].turns()
            case 6 | 7:
                world.leader = 1 - world.leader
            case 8 | 9:
                world.away = not world.away
            case 10 | 11 if self._post.targets:
                self._post.targets.pop()
            case 12 if self._post.views:
                self._post.views.pop()
            case 13 | 14:
                self._edit()
            case 15:
                errored = random.choice(["", "resume", "restart"])
                config = replace(
                    world.config,
                    token=world.config.token + 1,
                    resume_unfinished=random.random() < 0.7,
                    resume_errored=errored == "resume",
                    restart_errored=errored == "restart",
                )
                if random.random() < 0.5:
                    world.applied_again(config)
                else:
                    world.config = config
            case 16 if world.runs:  # somebody deletes a run
                world.runs.pop(random.choice(sorted(world.runs)))
            case _:
                pass

    def _born(self, number: int) -> SimulatedOperator | SimulatedClerk:
        if number < len(self.operators):
            self.operators[number] = SimulatedOperator(number, self.world, self._post)
            return self.operators[number]
        return SimulatedClerk(self.world, self._post)

    def _edit(self) -> None:
        random, config = self._random, self.world.config
        some = frozenset(it for it in range(config.trials) if random.random() < 0.2)
        edits: list[dict[str, object]] = [
            {"suspend": not config.suspend},
            {"paused": some - config.stopped},
            {"stopped": config.stopped | some, "paused": config.paused - some},
            {"trials": random.randint(1, 12)},
            {"max_failed_trials": random.choice([-1, 0, 3])},
            {"active_time": random.choice([None, 100.0, 1000.0])},
            {"max_unplaced": random.randint(1, 4)},
        ]
        self.world.config = replace(config, **random.choice(edits))  # type: ignore[arg-type]

    def _make_peace(self) -> None:
        self.world.away, self._post.reliable = False, True
        config = self.world.config
        self.world.config = replace(config, suspend=False, paused=frozenset())

    # ----------------------------------------------------------------------------- the end

    def _at_rest(self) -> bool:
        leading = self.operators[self.world.leader].plan
        return leading is not None and leading.over and self.world.judge.over

    def _judged(self) -> SweepView:
        """The numbers of the log are those that were trained."""
        view = fold(self.world.log)
        objective = self.world.config.search.objective
        succeeded = [it for it in view.trials.values() if it.state == "Succeeded"]
        for trial in succeeded:
            if trial.value != loss(trial.number, LENGTH):
                raise BrokenPromise(f"{trial} counts with what it did not reach")
        found = best(view, objective)
        values = [loss(it.number, LENGTH) for it in succeeded]
        if values and (found is None or found.own.value > min(values)):
            raise BrokenPromise(f"the best is {found}, and the table has {min(values)}")
        kept = [it for it in self.world.runs.values() if not view.trials[it.trial].open]
        if len(kept) > self.world.config.failed_runs:
            raise BrokenPromise(f"runs of closed trials are left: {kept}")
        if len({it.number for it in view.trials.values()}) != view.asked:
            raise BrokenPromise("a number is missing")
        return view
