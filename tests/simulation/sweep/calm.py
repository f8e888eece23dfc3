"""Sweeps in which nothing breaks but what a test breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.world.sweep.life import SweepLife
from tests.simulation.world.sweep.sweep_object import BASE
from trainrun.sweep.view import fold
from trainrun_operator.core.sweep.display import is_settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world.sweep.clerks import SimulatedClerk
    from tests.simulation.world.sweep.operators import SimulatedOperator
    from tests.simulation.world.sweep.storage import Moment
    from trainrun.sweep.view import SweepView


def calm_life(seed: int = 4, **spec: Any) -> SweepLife:
    """Four trials, two at a time, unless `spec` says something else."""
    whole = {**BASE, "budget": {"trials": 4}, "maxConcurrent": 2, "maxUnplaced": 2, **spec}
    life = SweepLife(seed, whole)
    life.make_peace()
    return life


def leader(life: SweepLife) -> SimulatedOperator:
    """Who holds the Lease."""
    return life.home.operators[life.home.cluster.leader]


def kill_leader(life: SweepLife) -> None:
    """It forgets everything, and the other one leads."""
    cluster = life.home.cluster
    life.home.kill_operator(cluster.leader)
    cluster.pass_lease()


def until_about_to(life: SweepLife, doing: str) -> None:
    """Until the next effect of the leader is this."""
    life.until(lambda: leader(life).doing.startswith(doing))


def dies_once(life: SweepLife, at: Callable[[Moment], bool]) -> list[Moment]:
    """Let a clerk die where this holds for the first time; returns where that was."""
    died: list[Moment] = []

    def dies(_clerk: SimulatedClerk, moment: Moment) -> bool:
        if died or not at(moment):
            return False
        died.append(moment)
        return True

    life.dies_at = dies
    return died


def params(life: SweepLife) -> list[dict[str, Any]]:
    """What was asked, in order."""
    return [dict(it) for it in life.judge.ledger.params.values()]


def late_session() -> SweepView:
    """A clerk is ordered to begin, and does so once another cluster leads; the log of then."""
    life = calm_life()
    life.until(lambda: [it for it in life.home.clerks.living if it.orders.targets])
    (late,) = life.home.clerks.living
    life.apply()
    first = life.homes.pop(0)
    life.until(lambda: life.judge.ledger.params)
    life.homes.insert(0, first)
    late.round()
    return fold(life.judge.ledger.log)


def raised_budget() -> SweepView:
    """The budget of a sweep that is over is raised, and its operator dies before it has heard of
    the log; the log at the end."""
    life = calm_life()
    life.end()
    cluster = life.home.cluster
    cluster.edit({**cluster.sweep.spec, "budget": {"trials": 6}})
    life.until(lambda: reason(life) in ("ClerkNotHeard", "ReadingLog"))
    kill_leader(life)
    life.until(lambda: is_settled(cluster.sweep.raw))
    return fold(life.judge.ledger.log)


def resumed_error() -> SweepView:
    """A trial has errored and is resumed, while the run that failed is kept for its logs; the log
    at the end."""
    life = calm_life(budget={"trials": 1})
    life.crashes = 1.0
    life.until(lambda: life.judge.ledger.ends.now is not None)
    life.crashes = 0.0
    life.end()
    cluster = life.home.cluster
    cluster.edit({**cluster.sweep.spec, "resume": {"token": 1, "resumeErrored": True}})
    return life.end()


def reason(life: SweepLife) -> str:
    """Of the TrainSweep."""
    return str(life.home.cluster.sweep.status["reason"])
